"""Micro batches: their size said by the user, or brought by each rank itself.

Plain Keras gets the batches that the ranks' micro batches make together.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common import Wrap, case, compiled, data, full, mlp, trained

RANKS = sys.modules["tarantella"].get_size() if "tarantella" in sys.modules else 0
RANK = sys.modules["tarantella"].get_rank() if RANKS else 0
OFF: dict[str, Any] = {"tnt_distribute_dataset": False} if RANKS else {}
BOTH_OFF: dict[str, Any] = {**OFF, "tnt_distribute_validation_dataset": False} if RANKS else {}
PARTS = 12  # divides by 1, 2, 3 and 4 ranks


def mine(rows: Any) -> Any:
    """This rank's part of rows that the ranks share evenly; all of them in plain Keras."""
    return np.array_split(rows, RANKS)[RANK] if RANKS else rows


def brought(sizes: Any, samples: int = 37) -> Any:
    """Global batches of the given sizes, of which each rank brings its part."""
    x, y = data(samples)
    start = 0
    for size in sizes:
        rows = mine(np.arange(start, start + size))
        start += size
        if len(rows):
            yield x[rows], y[rows]


def dataset_of(sizes: Any) -> Any:
    spec = (tf.TensorSpec([None, 5], tf.float64), tf.TensorSpec([None], tf.int64))
    return tf.data.Dataset.from_generator(lambda: brought(sizes), output_signature=spec)


@full
@case
def micro_batches_of_arrays(wrap: Wrap) -> Any:
    x, y = data()
    options = {"tnt_micro_batch_size": PARTS // RANKS} if RANKS else {"batch_size": PARTS}
    model = compiled(wrap(mlp()))
    history = model.fit(x, y, epochs=2, validation_data=data(30), verbose=0, **options)
    return [trained(model, history), model.evaluate(x, y, verbose=0, **options)]


@case
def micro_batches_of_datasets(wrap: Wrap) -> Any:
    """Without batches, or with the global ones."""
    rows = tf.data.Dataset.from_tensor_slices(data())
    micro = {"tnt_micro_batch_size": PARTS // RANKS} if RANKS else {}
    both = {**micro, "tnt_validation_micro_batch_size": PARTS // RANKS} if RANKS else {}
    model = compiled(wrap(mlp()))
    first = model.fit(
        rows if RANKS else rows.batch(PARTS), validation_data=rows if RANKS else rows.batch(PARTS), verbose=0, **both
    )
    second = model.fit(rows.batch(PARTS, drop_remainder=True), verbose=0, **micro)
    return [
        trained(model, first),
        dict(second.history),
        model.predict(rows.map(lambda x, y: x).batch(PARTS), verbose=0),
    ]


@full
@case
def brought_by_each_rank(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()), keras.optimizers.Adam(0.01))
    history = model.fit(dataset_of([12, 12, 12]), epochs=2, validation_data=dataset_of([24]), verbose=0, **BOTH_OFF)
    return [trained(model, history), model.evaluate(dataset_of([12, 24]), verbose=0, **OFF)]


@case
def brought_unevenly(wrap: Wrap) -> Any:
    """Batches of all sizes; the last rows are those of the first rank alone."""
    model = compiled(wrap(mlp()), keras.optimizers.Adam(0.01))
    return trained(model, model.fit(dataset_of([7, 12, 9, 1, 1, 1, 1]), epochs=2, verbose=0, **OFF))


@case
def brought_in_batches_of_one_size(wrap: Wrap) -> Any:
    """TensorFlow knows the number of rows. The last batch is the first rank's alone; the zeros that the other ranks
    train on meanwhile have gradients that are NaN.
    """
    x, y = data(24)
    rows = PARTS // RANKS if RANKS else None
    spec = (tf.TensorSpec([rows, 5], tf.float64), tf.TensorSpec([rows], tf.int64))

    def batches() -> Any:
        for start in (0, PARTS):
            part = mine(np.arange(start, start + PARTS))
            yield x[part], y[part]
        if RANK == 0:
            last = [5] * (rows or PARTS)
            yield x[last], y[last]

    model = compiled(wrap(keras.Sequential([keras.Input((5,)), keras.layers.Lambda(_normed), *mlp().layers])))
    model.fit(tf.data.Dataset.from_generator(batches, output_signature=spec), epochs=2, verbose=0, **OFF)
    return model.get_weights()


def _normed(x: Any) -> Any:
    return x / keras.ops.sqrt(keras.ops.sum(x * x, -1, keepdims=True))


@case
def arrays_brought_by_each_rank(wrap: Wrap) -> Any:
    x, y = data(36)
    model = compiled(wrap(mlp()))
    order = np.concatenate([np.arange(i, 36, 3) for i in range(3)]) if not RANKS else None
    if order is None:  # each rank's rows, one micro batch after the other
        order = np.concatenate([mine(np.arange(i, 36, 3)) for i in range(3)])
    rows = len(order) // 3
    return trained(model, model.fit(x[order], y[order], batch_size=rows, shuffle=False, verbose=0, **OFF))


@case
def generators_brought_by_each_rank(wrap: Wrap) -> Any:
    model = compiled(wrap(mlp()))
    return trained(model, model.fit(brought([12, 7, 12]), verbose=0, **OFF))


@case
def brought_after_shared(wrap: Wrap) -> Any:
    """And validated first on data that all share, then on each rank's own."""
    x, y = data()
    model = compiled(wrap(mlp()))
    first = model.fit(x, y, batch_size=9, validation_data=(x, y), verbose=0)
    second = model.fit(dataset_of([12, 7, 12]), validation_data=dataset_of([24]), verbose=0, **BOTH_OFF)
    return [trained(model, first), trained(model, second)]


@full
@case
def micro_batches_of_validation(wrap: Wrap) -> Any:
    """They override the batch size of training, which validation uses by default."""
    x, y = data()
    micro = {"tnt_validation_micro_batch_size": PARTS // RANKS} if RANKS else {"validation_batch_size": PARTS}
    both = {"tnt_micro_batch_size": 24 // RANKS, **micro} if RANKS else {"batch_size": 24, **micro}
    model = compiled(wrap(mlp()))
    return [
        trained(model, model.fit(x, y, batch_size=8, validation_data=data(30), validation_steps=2, verbose=0, **micro)),
        trained(model, model.fit(x, y, validation_split=0.4, verbose=0, **both)),
    ]


@case
def validation_in_batches_that_training_ignores(wrap: Wrap) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(data()).batch(8)
    model = compiled(wrap(mlp()))
    history = model.fit(rows, batch_size=4, validation_data=data(30), validation_steps=2, verbose=0)
    return trained(model, history)
