"""Measures what it costs that a loss of the user's is computed on the global batch.

Each network trains with a loss of Keras's, with one of the user's that declares `tnt_reduction`, and with the same one
on the global batch, in turns of an epoch in the same processes. The table has the median seconds of a step and their
ratios to those of Keras's loss. There is no goal.

    python bench/gathered.py --ranks 2 4
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import machine
import numpy as np
from keras import layers, ops
from libraries import BUILD, say
from processes import Command, launcher, run

KINDS = ("keras", "declared", "gathered")


class Task(NamedTuple):
    """A network, a loss of Keras's and one of the user's, and the rows of a rank."""

    model: Callable[[], Any]
    keras_own: Any
    own: Callable[[Any, Any], Any]
    data: Callable[[int], tuple[Any, Any]]
    rows: int
    steps: int  # of an epoch


def of_each_row(true: Any, predicted: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(true, predicted, from_logits=True)


def of_chosen_words(true: Any, predicted: Any) -> Any:
    losses = of_each_row(ops.maximum(true, 0), predicted)
    chosen = ops.cast(true >= 0, losses.dtype)
    return ops.sum(losses * chosen) / ops.maximum(ops.sum(chosen), 1.0)


def dice(true: Any, predicted: Any) -> Any:
    return 1 - (2 * ops.sum(true * predicted) + 1) / (ops.sum(true) + ops.sum(predicted) + 1)


def classes(rows: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(rows, 784)).astype("float32"), random.integers(0, 10, rows)


def words(rows: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.integers(1, 8000, (rows, 32))
    return x, np.where(random.random(x.shape) < 0.15, x, -1)


def masks(rows: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 128, 128, 1)).astype("float32")
    return x, (x > 0).astype("float32")


def network(shape: tuple[int, ...], *parts: Any) -> Any:
    return keras.Sequential([layers.Input(shape), *(make() for make in parts)])


part = functools.partial
TASKS = {
    "10 classes, a value for each row": Task(
        part(network, (784,), part(layers.Dense, 128, activation="relu"), part(layers.Dense, 10)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        of_each_row,
        classes,
        64,
        200,
    ),
    "8,000 words, masked": Task(
        part(network, (32,), part(layers.Embedding, 8000, 64), part(layers.Dense, 8000)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
        of_chosen_words,
        words,
        8,
        8,
    ),
    "Dice of masks of 128 x 128": Task(
        part(network, (128, 128, 1), part(layers.Conv2D, 8, 3, padding="same"), part(layers.Conv2D, 1, 1)),
        keras.losses.BinaryCrossentropy(from_logits=True),
        lambda true, predicted: dice(true, ops.sigmoid(predicted)),
        masks,
        32,
        8,
    ),
}


def train(task: Task, ranks: int, epochs: int) -> dict[str, list[float]]:
    """Seconds of a step in each epoch but the first two, by kind of loss."""
    import tarantella as tnt

    models = {}
    for kind in KINDS:
        loss: Any = task.keras_own
        if kind != "keras":
            loss = functools.wraps(task.own)(lambda true, predicted: task.own(true, predicted))
            if kind == "declared":
                loss.tnt_reduction = "mean"
        models[kind] = tnt.Model(task.model())
        models[kind].compile(keras.optimizers.SGD(0.001), loss)
    batch = task.rows * ranks
    x, y = task.data(batch * task.steps)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for epoch in range(epochs + 2):
        for kind, model in models.items():
            began = time.perf_counter()
            model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
            if epoch > 1:
                seconds[kind].append((time.perf_counter() - began) / task.steps)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=1, help="starts of the processes")
    parser.add_argument("--json", type=Path, default=BUILD / "gathered.json")
    parser.add_argument("--output", type=Path, help="of a rank: a folder, which gets a file")
    parser.add_argument("--task", choices=TASKS, help="of a rank")
    options = parser.parse_args()
    if options.output:
        found = train(TASKS[options.task], options.ranks[0], options.epochs)
        (options.output / f"{os.getpid()}.json").write_text(json.dumps(found), encoding="utf-8")
        return
    where = machine.describe()
    machine.warn_if_busy(where)
    table = []
    for task in TASKS:
        for ranks in options.ranks:
            seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(1, options.rounds + 1):
                say(f"{task}, {ranks} ranks: round {number} of {options.rounds}")
                words_of = [
                    *launcher(ranks),
                    __file__,
                    f"--task={task}",
                    f"--ranks={ranks}",
                    f"--epochs={options.epochs}",
                ]
                for each in run([Command(words_of)], task).outputs:
                    for kind, values in each.items():
                        seconds[kind] += values
            table.append({"task": task, "ranks": ranks, **{k: statistics.median(v) for k, v in seconds.items()}})
    print("\nmedian ms of a step, and the ratio to Keras's loss:")
    for row in table:
        parts = ", ".join(f"{kind} {1e3 * row[kind]:.2f} ({row[kind] / row['keras']:.2f})" for kind in KINDS)
        print(f"{row['task']}, {row['ranks']} ranks: {parts}", flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": where, "rows": table}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
