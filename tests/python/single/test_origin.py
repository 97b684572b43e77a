"""Which lookups of a table come from the rows of a batch, and what becomes of their slices."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tarantella._backend import tensorflow_origin, tensorflow_slices
from tarantella._backend.tensorflow_slices import Origin

CAPTURED, VARIABLE = tf.range(4), tf.Variable(tf.range(4))


def counted(first):
    return tf.while_loop(lambda i: tf.reduce_sum(i) < 9, lambda i: (i + 1,), (first,))[0]


OF_THE_BATCH = {
    "constant": lambda x: ops.arange(4),
    "captured": lambda x: CAPTURED,
    "variable": lambda x: VARIABLE,
    "length": lambda x: ops.arange(ops.shape(x)[-1]),
    "one row of positions": lambda x: ops.expand_dims(ops.arange(ops.shape(x)[1]), 0),
    "unstacked length": lambda x: tf.range(tf.unstack(tf.shape(x), num=2)[1]),
    "sliced length": lambda x: tf.range(tf.shape(x)[1:][0]),
    "length of what is computed": lambda x: tf.range(tf.shape(tf.one_hot(x, 3))[1]),
    "loop": lambda x: counted(tf.range(4)),
}
OF_ROWS = {
    "tokens": lambda x: x,
    "number of rows": lambda x: tf.range(tf.shape(x)[0]),
    "number of rows, from the end": lambda x: tf.range(tf.shape(x)[-2]),
    "number of tokens": lambda x: tf.range(tf.size(x)),
    "positions of each row": lambda x: ops.broadcast_to(ops.arange(ops.shape(x)[1]), ops.shape(x)),
    "positions like tokens": lambda x: ops.zeros_like(x) + ops.arange(4),
    "counted positions": lambda x: ops.cumsum(ops.ones_like(x), axis=1),
    "both": lambda x: tf.concat([tf.reshape(x, [-1]), tf.range(4)], 0),
    "random": lambda x: tf.random.uniform([4], 0, 9, tf.int32),
    "python": lambda x: tf.numpy_function(np.asarray, [4], tf.int32),
    "loop": lambda x: counted(x),
}


def judged(look, nested):
    table, found = tf.Variable(tf.ones([60, 3])), []

    def looked_up(x):
        return tf.gather(table, look(x))

    inner = tf.function(looked_up, autograph=False) if nested else looked_up

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(inner(x))
        found.append(tensorflow_origin.from_rows(tape.gradient(loss, table).indices))

    tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec([None, None], tf.int32))
    return found


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("looks", "from_rows"), [(OF_THE_BATCH, False), (OF_ROWS, True)])
def test_where_indices_come_from(looks, from_rows, nested):
    for name, look in looks.items():
        assert judged(look, nested) == [from_rows], name


def test_a_table_looked_up_twice_has_pieces_of_both_origins():
    table, found = tf.Variable(tf.ones([60, 3])), []

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(i * tf.gather(table, at)) for i, at in enumerate((tf.range(4), x, x + 1), 1))
        found.extend(tensorflow_slices.pieces(tape.gradient(loss, table)))
        return [(each.slices.indices, each.slices.values[:, 0]) for each in found]

    rows, batch = step(tf.constant([[7, 8]]))
    assert [each.origin for each in found] == [Origin.ROWS, Origin.BATCH]
    assert sorted(np.transpose(rows).tolist()) == [[7, 2], [8, 2], [8, 3], [9, 3]]
    assert np.transpose(batch).tolist() == [[0, 1], [1, 1], [2, 1], [3, 1]]


@pytest.mark.parametrize(
    ("origin", "counts", "indices", "once"),
    [
        (Origin.BATCH, [2, 2], [5, 5, 5, 5], True),
        (Origin.BATCH, [2, 0, 2], [1, 0, 1, 0], True),  # the second rank has no rows
        (Origin.BATCH, [2, 2], [0, 1, 0, 2], False),
        (Origin.BATCH, [3, 1], [0, 1, 2, 0], False),
        (Origin.BATCH, [0, 0], [], False),
        (Origin.UNKNOWN, [2, 2], [1, 2, 1, 2], True),
        (Origin.UNKNOWN, [2, 2], [5, 5, 5, 5], False),  # words that are the same
        (Origin.UNKNOWN, [1, 1], [5, 5], False),
    ],
)
def test_slices_that_all_ranks_have_alike_are_summed(origin, counts, indices, once):
    values = np.arange(len(indices), dtype=np.float32)[:, None]
    summed, at = tensorflow_slices._once(origin, np.array(counts), values, np.array(indices, np.int32))
    half = len(indices) // 2
    assert list(at) == (indices[:half] if once else indices)
    np.testing.assert_array_equal(summed, values[:half] + values[half:] if once else values)
    assert (summed.dtype, at.dtype) == (np.float32, np.int32)
