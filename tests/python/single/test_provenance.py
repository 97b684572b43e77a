"""What the walk through a graph finds out about gradients, targets of tapes and indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tarantella._backend.tensorflow import provenance, targets

SCALE = tf.Variable([2.0, 3.0])
ROWS = tf.TensorSpec([None, 2])


def found(function: Callable[[Any], Any], look: Callable[[Any], Any], spec: Any = ROWS) -> Any:
    """What `look` returns for the result of a function that is traced for rows."""
    seen = []

    def run(x: Any) -> None:
        seen.append(look(function(x)))

    tf.function(run).get_concrete_function(spec)
    return seen[0]


def in_turns(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + tf.reduce_sum(x)), (0, 0.0))[1]


def in_a_function(x: Any) -> Any:
    return tf.function(lambda y: tf.reduce_sum(y) * 2)(x)


OWN = {
    "a mean": tf.reduce_mean,
    "in a branch": lambda x: tf.cond(SCALE[0] > 1, lambda: tf.reduce_sum(x), lambda: 0.0),
    "decides on a branch": lambda x: tf.cond(tf.reduce_sum(x) > 1, lambda: 1.0, lambda: 0.0),
    "in a loop": in_turns,
    "decides on the turns": lambda x: tf.while_loop(lambda i: i < tf.shape(x)[0], lambda i: (i + 1,), (0,))[0],
    "in a function": in_a_function,
    "the number of rows": lambda x: tf.cast(tf.shape(x)[0], tf.float32),
}
ALIKE = {
    "a variable": lambda x: SCALE * 2,
    "another axis, transposed": lambda x: tf.cast(tf.shape(tf.transpose(x))[0], tf.float32) * SCALE,
    "another axis": lambda x: tf.cast(tf.shape(x)[1], tf.float32) * SCALE,
    "a loop beside rows": lambda x: tf.while_loop(
        lambda i, s, y: i < 3, lambda i, s, y: (i + 1, s + SCALE[0], y + 1), (0, 0.0, tf.reduce_sum(x))
    )[1],
    "with a seed": lambda x: tf.random.stateless_normal([2], [1, 2]),
}
RANDOM = {
    "random": lambda x: SCALE + tf.random.normal([2]),
    "by a variable": lambda x: tf.random.stateless_normal([2], tf.cast(SCALE, tf.int32)),
}


@pytest.mark.parametrize(
    ("function", "own", "random"),
    [*((f, True, False) for f in OWN.values()), *((f, False, False) for f in ALIKE.values())]
    + [(f, False, True) for f in RANDOM.values()],
    ids=[*OWN, *ALIKE, *RANDOM],
)
def test_what_a_tensor_is_computed_from(function: Any, own: bool, random: bool) -> None:
    assert found(function, provenance.provenance_of) == (False, random, own)


def test_an_eager_tensor_does_not_say() -> None:
    assert provenance.provenance_of(SCALE * 2) is None


def squares(x: Any) -> Any:
    return tf.reduce_sum((tf.matmul(tf.tanh(x * SCALE), tf.ones((2, 3)))) ** 2, -1)


def masked_mean(values: Any) -> Any:
    mask = tf.cast(tf.random.uniform(tf.shape(values)) < 2, tf.float32)
    return values * mask / tf.reduce_sum(mask)


SINGLE = {
    "an entry": lambda x: squares(x)[1],
    "an entry, scaled": lambda x: squares(x)[1] / 2 + tf.reduce_sum(SCALE),
    "a row": lambda x: tf.reduce_mean(squares(x[1:2])),
    "the first": lambda x: tf.reduce_mean(squares(x[:1])),
    "the last": lambda x: tf.reduce_mean(squares(x)[-1:]),
    "gathered": lambda x: tf.gather(squares(x), 1),
}
WHOLE = {
    "of two entries": lambda x: squares(x)[0] - squares(x)[1],
    "a mean": lambda x: tf.reduce_mean(squares(x)),
    "times an entry": lambda x: tf.reduce_mean(squares(x)) * x[0, 0],
    "only times an entry": lambda x: tf.reduce_sum(SCALE**2) * x[0, 0],
    "all in turn": lambda x: tf.reduce_mean(tf.map_fn(lambda row: squares(row[None])[0], x)),
    "but one": lambda x: tf.reduce_mean(squares(x[:-1])) + tf.reduce_mean(squares(x[1:])),
    "half of the rows": lambda x: tf.reduce_mean(squares(x[: tf.shape(x)[0] // 2])),
    "a feature": lambda x: tf.reduce_mean(x[:, 0]),
    "of tasks": lambda x: tf.stack([tf.reduce_mean(x), tf.reduce_sum(x)])[0],
    "no rows": lambda x: SCALE[0],
    "steps of time": lambda x: tf.scan(lambda s, y: s + tf.reduce_mean(y), tf.transpose(x), 0.0)[-1],
}


@pytest.mark.parametrize(
    ("function", "single"), [*((f, True) for f in SINGLE.values()), *((f, False) for f in WHOLE.values())],
    ids=[*SINGLE, *WHOLE],
)  # fmt: skip
def test_targets_of_single_rows(function: Any, single: bool) -> None:
    assert found(function, targets.is_of_one_row) is single


def test_an_unstacked_row() -> None:
    assert found(lambda x: tf.unstack(squares(x))[1], targets.is_of_one_row, tf.TensorSpec([4, 2]))


@pytest.mark.parametrize(
    ("function", "rows", "along"),
    [
        (lambda x: tf.reduce_sum(x, -1), None, True),
        (tf.reduce_sum, None, False),
        (lambda x: tf.stack([tf.reduce_sum(x)] * 3), None, False),
        (lambda x: tf.reduce_sum(x, -1), 3, True),
        (lambda x: tf.stack([tf.reduce_sum(x)] * 3), 3, False),
        (lambda x: 2 * tf.stack([tf.reduce_sum(x)] * 3), 3, False),
        (lambda x: tf.reduce_sum(x, -1) / tf.cast(tf.shape(x)[0], tf.float32), None, False),
        (lambda x: tf.reduce_sum(x, -1) * (1 / tf.cast(tf.size(x), tf.float32)), None, False),
        (lambda x: tf.reduce_sum(x, -1) / 3, 3, False),
        (
            lambda x: tf.reshape(tf.reduce_sum(x, -1, keepdims=True) / tf.cast(tf.shape(x)[0], "float32"), [-1]),
            3,
            False,
        ),
        (lambda x: tf.reduce_sum(x, -1) ** 1.0 * tf.pow(tf.cast(tf.shape(x)[0], tf.float32), -1.0), None, False),
        (lambda x: tf.reduce_sum(x, -1) / tf.reduce_sum(tf.ones_like(x[:, 0])), None, False),
        (lambda x: tf.reduce_sum(x, -1) / tf.reduce_sum(tf.ones(tf.shape(x)[0])), None, False),
        (lambda x: tf.reduce_sum(x, -1) / tf.reduce_sum(tf.cast(x[:, 0] > 0, tf.float32)), None, False),
        (lambda x: tf.reduce_sum(x, -1) / tf.reduce_sum(tf.constant([0.5, 2.0])), None, True),
        (tf.function(lambda x: tf.reduce_sum(x, -1) / tf.cast(tf.shape(x)[0], tf.float32)), None, False),
        (lambda x: tf.reduce_sum(tf.tile(x[:, :1], (1, 3)), 0), 3, False),
        (lambda x: tf.reduce_sum(x, -1) / 16, 3, True),
        (lambda x: tf.reduce_sum(x, -1) + tf.reduce_sum(x * SCALE) / tf.reduce_sum(x), 3, True),
        (lambda x: masked_mean(tf.reduce_sum(x, -1)), None, False),
        (lambda x: masked_mean(tf.reduce_sum(x, -1)), 3, False),
        (lambda x: masked_mean(squares(x)), None, False),
    ],
)
def test_targets_along_the_rows(function: Any, rows: int | None, along: bool) -> None:
    known = () if rows is None else (rows,)
    assert found(function, lambda t: targets.has_rows(t, None, known), tf.TensorSpec([rows, 2])) is along


def test_a_seed_makes_a_mean_of_rows() -> None:
    def look(x: Any) -> bool:
        seed = tf.ones_like(x[:, 0]) / tf.cast(tf.shape(x)[0], tf.float32)
        return targets.has_rows(tf.reduce_sum(x, -1), seed, ())

    assert not found(lambda x: x, look)


def test_unique_indices() -> None:
    spec = tf.TensorSpec([None], tf.int64)
    assert found(lambda x: tf.cast(tf.unique(x)[0], tf.int32), provenance.are_unique, spec)
    assert found(tf.function(lambda x: tf.unique(x).y), provenance.are_unique, spec)
    assert not found(lambda x: tf.unique(x)[1], provenance.are_unique, spec)
    assert not found(lambda x: x, provenance.are_unique, spec)


FIRST = {
    "flat": lambda x: tf.reshape(x, [-1, 2]),
    "a layer": lambda x: tf.nn.bias_add(tf.matmul(x, tf.ones((2, 4))), tf.ones(4)),
    "images": lambda x: tf.nn.conv2d(tf.reshape(x, [-1, 1, 2, 1]), tf.ones((1, 1, 1, 2)), 1, "SAME"),
    "sums": lambda x: tf.reduce_sum(x, 1),
}
NOT_FIRST = {
    "transposed": tf.transpose,
    "summed": lambda x: tf.reduce_sum(x, 0),
    "coupled": lambda x: tf.matmul(x, x, transpose_a=True),
    "split": lambda x: tf.reshape(x, [-1, 1]),
    "a variable": lambda x: SCALE[:, None] * np.float32(1),
}


@pytest.mark.parametrize(
    ("function", "first"), [*((f, True) for f in FIRST.values()), *((f, False) for f in NOT_FIRST.values())],
    ids=[*FIRST, *NOT_FIRST],
)  # fmt: skip
def test_rows_on_the_first_axis(function: Any, first: bool) -> None:
    assert found(function, targets.has_rows_first) is first
