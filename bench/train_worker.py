"""One process of bench/train_step.py: trains a network and prints the seconds of each epoch's step as JSON.

Under the launcher it trains as a rank; with --silent R of N it is a process that talks to nobody, on the same
rows, through the same input pipeline and settings, as rank R would.
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

import tarantella as tnt
from tarantella.data import arrays


class Clock(keras.callbacks.Callback):
    """Seconds a step of each epoch but the first, from the first batch's end to the last batch's."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._count += 1
        self._last = time.perf_counter()
        if self._count == 1:
            self._first = self._last

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch > 0:
            self.steps.append((self._last - self._first) / (self._count - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=nets.NETS)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--silent", type=int, nargs=2, metavar=("RANK", "SIZE"))
    parser.add_argument("--output", type=Path, required=True, help="a folder; this process writes RANK.json")
    options = parser.parse_args()
    rank, size = options.silent or (tnt.get_rank(), tnt.get_size())
    if options.silent:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    keras.utils.set_random_seed(1)
    net = nets.NETS[options.net]()
    nets.compile_net(net)
    batch = net.rows * size
    x, y = nets.data(net, batch * options.steps)
    clock = Clock()
    fit = {"epochs": options.epochs, "verbose": 0, "callbacks": [clock]}
    if options.silent:
        dataset = arrays.distribute(arrays.adapt(x, y, batch_size=batch), rank, size)
        net.model.fit(dataset.map(lambda micro_batch: micro_batch.data), **fit)
    else:
        tnt.Model(net.model).fit(x, y, batch_size=batch, shuffle=False, **fit)
    (options.output / f"{rank}.json").write_text(json.dumps(clock.steps))


if __name__ == "__main__":
    sys.exit(main())
