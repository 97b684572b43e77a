"""One process of bench/cost.py. Writes its measurements as JSON, in seconds.

Modes: `alone` evaluates and predicts in plain Keras on one core; `ranks` does the same as a rank; `train` trains as a
rank and times Tarantella's functions for metrics and for comparing weights; `arrays` times how it checks the data.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
import nets
import numpy as np
import tensorflow as tf
from keras import ops
from train_worker import Clock

UPDATES = 1000


def confidence(labels: Any, outputs: Any) -> Any:
    """Returns one number per batch, the kind of metric that costs most to make global."""
    return ops.mean(ops.max(ops.softmax(outputs), axis=-1))


confidence.tnt_reduction = "mean"  # type: ignore[attr-defined]

METRICS = ["accuracy", "sparse_top_k_categorical_accuracy", confidence]


class Timer:
    """Records the seconds of each call of a function, without nested calls of other timed functions."""

    total = 0.0  # of all timed calls so far

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds: list[float] = []
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            before, began = Timer.total, time.perf_counter()
            result = function(*args, **kwargs)
            took = time.perf_counter() - began - (Timer.total - before)
            Timer.total += took
            self.seconds.append(took)
            return result

        setattr(owner, name, timed)


def own_cost() -> float:
    """Returns the seconds that a Timer itself adds to a call."""

    class Nothing:
        def run(self) -> None:
            pass

    timer, nothing = Timer(Nothing, "run"), Nothing()
    for _ in range(UPDATES):
        nothing.run()
    return statistics.median(timer.seconds)


def infer(model: Any, x: np.ndarray, y: np.ndarray, batch: int, calls: int) -> dict[str, list[float]]:
    """Returns {name: seconds} of all calls except the first."""
    seconds: dict[str, list[float]] = {"evaluate": [], "predict": []}
    for _ in range(calls):
        for name, arrays in (("evaluate", (x, y)), ("predict", (x,))):
            began = time.perf_counter()
            getattr(model, name)(*arrays, batch_size=batch, verbose=0)
            seconds[name].append(time.perf_counter() - began)
    return {name: each[1:] for name, each in seconds.items()}


def train(model: Any, x: np.ndarray, y: np.ndarray, batch: int, epochs: int) -> dict[str, Any]:
    import tarantella as tnt
    from tarantella.keras import consistency, epoch_end

    combine = Timer(epoch_end, "combine_metrics")
    compare = Timer(consistency, "same_weights")
    count = Timer(consistency, "before_step")
    clock = Clock(len(x) // batch)
    tnt.Model(model).fit(x, y, batch_size=batch, shuffle=False, epochs=epochs, verbose=0, callbacks=[clock])
    return {
        "steps": clock.steps,
        "update": updates(model, x, y, batch),
        "combine": combine.seconds,
        "count": max(statistics.median(count.seconds) - own_cost(), 0.0),
        "compare": compare.seconds,
        "interval": consistency.INTERVAL,
    }


def check_arrays(model: Any, x: np.ndarray, y: np.ndarray, batch: int, epochs: int) -> dict[str, Any]:
    import tarantella as tnt
    from tarantella.data.tf_data import from_arrays

    check = Timer(from_arrays, "describe")
    clock = Clock(len(x) // batch)
    tnt.Model(model).fit(x, y, batch_size=batch, epochs=epochs + 1, verbose=0, callbacks=[clock])
    return {"steps": clock.steps, "check": check.seconds}


def updates(model: Any, x: np.ndarray, y: np.ndarray, batch: int) -> float:
    """Returns the seconds per step that hooks add to the metrics. Both variants alternate, to share the noise."""
    import tarantella as tnt
    from tarantella.data import adapter
    from tarantella.data.tf_data import from_arrays
    from tarantella.keras.private import loss_trackers
    from tarantella.keras.step.step import Step, running

    dataset = from_arrays.distribute(adapter.adapt_arrays(x, y, batch_size=batch), tnt.get_rank(), tnt.get_size())
    micro_batch = next(iter(dataset.get_tf_dataset()))
    outputs, loss = model(micro_batch.data[0]), tf.constant(1.0)

    def plain(micro_batch: Any, outputs: Any, loss: Any) -> Any:
        x, y = micro_batch.data
        for tracker in loss_trackers(model):
            tracker.update_state(loss, sample_weight=tf.shape(x)[0])
        return model.compute_metrics(x, y, outputs)

    def hooked(micro_batch: Any, outputs: Any, loss: Any) -> Any:
        with running(Step(model, micro_batch)):
            return plain(micro_batch, outputs, loss)

    functions = [tf.function(each, autograph=False) for each in (plain, hooked)]
    seconds: list[list[float]] = [[], []]
    for _ in range(UPDATES):
        for function, times in zip(functions, seconds, strict=True):
            began = time.perf_counter()
            function(micro_batch, outputs, loss)
            times.append(time.perf_counter() - began)
    without, with_hooks = map(statistics.median, seconds)
    return with_hooks - without


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=nets.NETS)
    parser.add_argument("mode", choices=["alone", "ranks", "train", "arrays"])
    parser.add_argument("--ranks", type=int, default=2, help="for which the global batch is made, alone too")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=5, help="epochs or calls")
    parser.add_argument("--output", type=Path, required=True, help="a folder, which gets a file a process")
    options = parser.parse_args()
    if options.mode == "alone":  # before TensorFlow makes its threads
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    keras.utils.set_random_seed(1)
    net = nets.NETS[options.net]()
    nets.compile_net(net, METRICS)
    batch = net.rows * options.ranks
    arguments = (*nets.data(net, batch * options.steps), batch, options.repeat)
    if options.mode == "train":
        measured: dict[str, Any] = train(net.model, *arguments)
    elif options.mode == "arrays":
        measured = check_arrays(net.model, *arguments)
    elif options.mode == "ranks":
        import tarantella as tnt

        measured = infer(tnt.Model(net.model), *arguments)
    else:
        measured = infer(net.model, *arguments)
    (options.output / f"{os.getpid()}.json").write_text(json.dumps(measured), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
