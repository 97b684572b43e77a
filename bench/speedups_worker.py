"""One process of a row of bench/speedups.py: trains a network, and writes the samples per second of each epoch as JSON.

Ways: `keras` is plain Keras; `tarantella` the same program with `tnt.Model`, started by the launcher; `strategy` a loop
of its own under MultiWorkerMirroredStrategy, since Keras 3's `fit` does not run there; `torch` and `ddp` the same Keras
network with Keras's torch backend, alone or in DistributedDataParallel over gloo, as Keras's guide has it.
All train on batches of the same global size. The first epoch does not count. `losses` trains LeNet-5 on digits instead,
with `tnt.Model` where the launcher has started it, and writes the loss of each epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import nets
import numpy as np

EPOCHS = 4
# Steps of an epoch, for about two seconds of plain Keras on two cores.
STEPS = {"lenet5": 200, "resnet20": 12, "mlp": 12, "transformer": 24}


def timed(epoch: Callable[[], Any], samples: int, epochs: int) -> list[float]:
    """Samples per second of each epoch but the first."""
    rates = []
    for _ in range(epochs):
        began = time.perf_counter()
        epoch()
        rates.append(samples / (time.perf_counter() - began))
    return rates[1:]


class Rates(keras.callbacks.Callback):
    """Samples per second, from the end of an epoch's first step to the end of its last one: the first step waits for
    the thread in which tf.data tunes the pipeline."""

    def __init__(self, batch: int, steps: int) -> None:
        super().__init__()
        self._samples, self.rates = batch * (steps - 1), list[float]()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._now = time.perf_counter()
        if batch == 0:
            self._began = self._now

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch:
            self.rates.append(self._samples / (self._now - self._began))


def fitted(net: nets.Net, batch: int, steps: int, epochs: int, distributed: bool) -> list[float]:
    import tensorflow as tf

    if distributed:
        import tarantella as tnt

        net = net._replace(model=tnt.Model(net.model))
    nets.compile_net(net)
    data = tf.data.Dataset.from_tensor_slices(nets.data(net, batch * steps)).batch(batch).prefetch(2)
    clock = Rates(batch, steps)
    net.model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[clock])
    return clock.rates


def losses(net: nets.Net, epochs: int) -> list[float]:
    import tensorflow as tf
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = tf.image.resize(digits.images[..., None] / 16.0, (28, 28)).numpy()
    data = tf.data.Dataset.from_tensor_slices((images, digits.target)).shuffle(len(images), seed=1).batch(64)
    if "TNT_RANK" in os.environ:
        import tarantella as tnt

        net = net._replace(model=tnt.Model(net.model))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return net.model.fit(data, epochs=epochs, shuffle=False, verbose=0).history["loss"]


def under_strategy(name: str, steps: int, epochs: int) -> list[float]:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        net = nets.NETS[name]()
        batch = 2 * net.rows
        nets.compile_net(net)
        model, optimizer, loss = net.model, net.model.optimizer, net.model.loss
        optimizer.build(model.trainable_variables)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices(nets.data(net, batch * steps)).batch(batch, drop_remainder=True)
    distributed = strategy.experimental_distribute_dataset(data.prefetch(2).with_options(options))

    def on_replica(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(tf.distribute.get_replica_context().all_reduce("MEAN", gradients), model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> None:
        strategy.run(on_replica, (x, y))

    def epoch() -> None:
        for x, y in distributed:
            step(x, y)
        model.trainable_variables[0].numpy()

    return timed(epoch, batch * steps, epochs)


def on_torch(net: nets.Net, batch: int, steps: int, epochs: int, ranks: int, rank: int) -> list[float]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    x, y = nets.data(net, batch * steps)
    x = np.concatenate([part[rank::ranks] for part in np.split(x, steps)])
    y = np.concatenate([part[rank::ranks] for part in np.split(y, steps)])
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(tensors, batch_size=batch // ranks)
    model: Any = net.model
    if ranks > 1:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()

    def epoch() -> None:
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss(model(inputs, training=True), labels).backward()
            optimizer.step()

    rates = timed(epoch, batch * steps, epochs)
    if ranks > 1:
        dist.destroy_process_group()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=nets.NETS)
    parser.add_argument("way", choices=("keras", "tarantella", "strategy", "torch", "ddp", "losses"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    steps, epochs = (3, 2) if options.tiny else (STEPS[options.net], EPOCHS)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    keras.utils.set_random_seed(1)
    if options.way == "losses":
        rates = losses(nets.NETS[options.net](), 2 if options.tiny else 10)
    elif options.way == "strategy":
        rates = under_strategy(options.net, steps, 2)  # an epoch of it takes minutes
    else:
        net = nets.NETS[options.net]()
        batch = 2 * net.rows
        if options.way in ("keras", "tarantella"):
            rates = fitted(net, batch, steps, epochs, options.way == "tarantella")
        else:
            rates = on_torch(net, batch, steps, epochs, ranks, rank)
    rank = int(os.environ.get("TNT_RANK", rank))
    (options.output / f"{rank}.json").write_text(json.dumps(rates), encoding="utf-8")


if __name__ == "__main__":
    main()
