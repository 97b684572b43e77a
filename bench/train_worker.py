"""One process of bench/train_step.py: trains a network and writes the seconds per step of each epoch as JSON.

Modes: `tarantella` trains as a rank, or alone if no launcher started it. `silent` does not communicate, but trains on
the rows of a rank, with the same input pipeline and settings. `dispatched` is `silent` and also calls its steps as a
rank does. `plain` is Keras; Tarantella is not even imported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import nets
import numpy as np


class Clock(keras.callbacks.Callback):
    """Records the seconds per step of each epoch except the first, including the start and the end of the epoch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.epoch_steps = steps
        self.steps: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch > 0:
            self.steps.append((time.perf_counter() - self._began) / self.epoch_steps)


def data(net: nets.Net, steps: int, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns x, y and the global batch size."""
    batch = net.rows * size
    return *nets.data(net, batch * steps), batch


def plain(net: nets.Net, steps: int, **fit: Any) -> None:
    x, y, batch = data(net, steps, 1)
    net.model.fit(x, y, batch_size=batch, shuffle=False, **fit)


def tarantella(net: nets.Net, steps: int, **fit: Any) -> None:
    import tarantella as tnt

    x, y, batch = data(net, steps, tnt.get_size())
    tnt.Model(net.model).fit(x, y, batch_size=batch, shuffle=False, **fit)


def silent(net: nets.Net, steps: int, rank: int, size: int, **fit: Any) -> None:
    from tarantella.data import adapter, arrays
    from tarantella.data.tf_data import of_arrays

    x, y, batch = data(net, steps, size)
    source = arrays.adapt(x, y, batch_size=batch)
    dataset = of_arrays.distribute(source, rank, size).get_tf_dataset().map(lambda micro_batch: micro_batch.data)
    net.model.fit(adapter.MicroBatches(source, dataset, steps), shuffle=False, **fit)


def dispatched(net: nets.Net, *arguments: Any, **fit: Any) -> None:
    from tarantella._backend.tensorflow.dispatch import step_function

    net.model.make_train_function()
    net.model.train_function = step_function(net.model, "train", net.model.train_function)
    silent(net, *arguments, **fit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=nets.NETS)
    parser.add_argument("mode", choices=["tarantella", "silent", "dispatched", "plain"])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--silent", type=int, nargs=2, metavar=("RANK", "SIZE"), default=(0, 1))
    parser.add_argument("--output", type=Path, required=True, help="a folder, which gets a file a process")
    options = parser.parse_args()
    clock = Clock(options.steps)
    fit = {"epochs": options.epochs, "verbose": 0, "callbacks": [clock]}
    pinned = options.mode in ("silent", "dispatched")
    if pinned:  # before TensorFlow makes its threads
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[options.silent[0]]})
    keras.utils.set_random_seed(1)
    net = nets.NETS[options.net]()
    nets.compile_net(net)
    if pinned:
        {"silent": silent, "dispatched": dispatched}[options.mode](net, options.steps, *options.silent, **fit)
    else:
        {"plain": plain, "tarantella": tarantella}[options.mode](net, options.steps, **fit)
    (options.output / f"{os.getpid()}.json").write_text(json.dumps(clock.steps), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
