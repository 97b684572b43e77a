"""Which lookups of a table use indices from the rows of a batch, and how their slices are reduced."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
import types

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tarantella._backend.tensorflow import provenance, reduce, slices
from tarantella._job import runtime
from tarantella._job.groups import Group

CAPTURED, VARIABLE = tf.range(4), tf.Variable(tf.range(4))


def counted(first):
    return tf.while_loop(lambda i: tf.reduce_sum(i) < 9, lambda i: (i + 1,), (first,))[0]


def differs_between_ranks(tensor):
    return provenance.differs_between_ranks([(tensor, None)])


OF_THE_BATCH = {
    "constant": lambda x: ops.arange(4),
    "captured": lambda x: CAPTURED,
    "variable": lambda x: VARIABLE,
    "length": lambda x: ops.arange(ops.shape(x)[-1]),
    "one row of positions": lambda x: ops.expand_dims(ops.arange(ops.shape(x)[1]), 0),
    "unstacked length": lambda x: tf.range(tf.unstack(tf.shape(x), num=2)[1]),
    "sliced length": lambda x: tf.range(tf.shape(x)[1:][0]),
    "length of what is computed": lambda x: tf.range(tf.shape(tf.one_hot(x, 3))[1]),
    "length of what is looked up": lambda x: tf.range(tf.shape(tf.cast(tf.gather(CAPTURED, x % 4) + 1, "float32"))[1]),
    "length of a part": lambda x: tf.range(tf.shape(x[:, 1:, tf.newaxis])[1]),
    "length with a class token": lambda x: tf.range(tf.shape(tf.concat([x[:, :1], x], 1))[1]),
    "length, time major": lambda x: tf.range(tf.shape(tf.transpose(x))[0]),
    "loop": lambda x: counted(tf.range(4)),
}
OF_ROWS = {
    "tokens": lambda x: x,
    "number of rows": lambda x: tf.range(tf.shape(x)[0]),
    "number of rows, from the end": lambda x: tf.range(tf.shape(x)[-2]),
    "number of rows, picked with a new axis": lambda x: tf.zeros([tf.shape(x)[tf.newaxis][0][0]], tf.int32),
    "number of rows, picked with an ellipsis": lambda x: tf.zeros([tf.shape(x)[...][0]], tf.int32),
    "number of rows, time major": lambda x: tf.zeros([tf.shape(tf.transpose(x))[1]], tf.int32),
    "number of rows, time major and computed": lambda x: tf.range(tf.shape(tf.abs(tf.transpose(x)))[1]),
    "random": lambda x: tf.random.uniform([4], 0, 9, tf.int32),
    "number of tokens": lambda x: tf.range(tf.size(x)),
    "positions of each row": lambda x: ops.broadcast_to(ops.arange(ops.shape(x)[1]), ops.shape(x)),
    "positions like tokens": lambda x: ops.zeros_like(x) + ops.arange(4),
    "counted positions": lambda x: ops.cumsum(ops.ones_like(x), axis=1),
    "both": lambda x: tf.concat([tf.reshape(x, [-1]), tf.range(4)], 0),
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
        found.append(differs_between_ranks(tape.gradient(loss, table).indices))

    tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec([None, None], tf.int32))
    return found


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("looks", "own"), [(OF_THE_BATCH, False), (OF_ROWS, True)])
def test_where_indices_come_from(looks, own, nested):
    for name, look in looks.items():
        assert judged(look, nested) == [own], name


def test_numbers_of_rows_that_are_known_in_a_loop_of_the_user():
    found = []

    @tf.function
    def epoch(batches, first):
        for x, _ in batches:
            found.append(reduce._rows_of_function())
            positions = tf.range(tf.shape(x)[1])
            found.append(differs_between_ranks(positions))

    rows = tf.data.Dataset.from_tensor_slices((tf.zeros([12, 5]), tf.zeros([12])))
    for static in (True, False):
        epoch(rows.batch(4, drop_remainder=static), tf.zeros([3, 7]))
    assert found == [(3, 4), False, (3,), False]


def test_each_lookup_of_a_table_has_a_piece():
    table, found = tf.Variable(tf.ones([60, 3])), []

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(i * tf.gather(table, at)) for i, at in enumerate((tf.range(4), x, x + 1), 1))
        found.extend(slices.by_lookup(tape.gradient(loss, table)))
        return [(each.slices.indices, each.slices.values[:, 0]) for each in found]

    results = step(tf.constant([[7, 8]]))
    made = {
        tuple(at.numpy()): (piece.origin.own, set(values.numpy()))
        for (at, values), piece in zip(results, found, strict=True)
    }
    assert made == {
        (0, 1, 2, 3): (False, {1}),
        (7, 8): (True, {2}),
        (8, 9): (True, {3}),
    }


@pytest.mark.parametrize(
    ("indices", "rows", "own"),
    [
        ([0, 1, 2, 3], 4, 0),
        ([0, 1, 2, 3], 1, 0),
        ([0, 0, 0, 0], 4, -1),
        ([0, 0, 0, 0], 2, -1),
        ([0, 0, 0, 0], 3, 0),
        ([0], 1, -1),
        ([0], 2, 0),
        ([0, 1, 2, 0, 1, 2], 2, -1),
        ([0, 0, 1, 1, 2, 2], 2, -1),  # time major
        ([1, 2, 3, 0, 1, 2], 2, 0),  # relative positions
        ([], 2, 0),
    ],
)
def test_constants_that_repeat_once_a_row_may_be_made_of_rows(indices, rows, own):
    assert slices._row(slices.Origin(False, (rows,)), np.array(indices, np.int32)).own == own


class Job:
    """All ranks of a job, in one process: each collective runs once the last rank has called it."""

    def __init__(self, size):
        self.size, self.given, self.meet, self.asked = size, [None] * size, threading.Barrier(size, timeout=20), []

    def of_rank(self, rank):
        def collective(combine):
            def call(array, name="", *_):
                self.given[rank] = (name, array)
                self.meet.wait()
                names, arrays = zip(*self.given, strict=True)
                assert len(set(names)) == 1, names
                result = combine(arrays)
                if rank == 0:
                    self.asked.append(combine.__name__)
                self.meet.wait()
                return result

            return call

        combine = {"allgather": np.stack, "allgatherv": np.concatenate, "allreduce": functools.partial(np.sum, axis=0)}
        functions = {name: functools.wraps(getattr(f, "func", f))(f) for name, f in combine.items()}
        return types.SimpleNamespace(size=self.size, **{name: collective(f) for name, f in functions.items()})


def joined(ranks, monkeypatch):
    """What each rank has after the exchange of one piece: the origin and the indices of each rank; values are 1."""
    job, local = Job(len(ranks)), threading.local()
    monkeypatch.setattr(runtime, "context", lambda: local.context)

    def run(rank):
        local.context = job.of_rank(rank)
        origin, indices = ranks[rank]
        values = np.full((len(indices), 2), rank + 1, np.float32)
        return slices._exchanged(Group(), [origin], [], np.int64(0), values, np.array(indices, np.int32))

    with concurrent.futures.ThreadPoolExecutor(len(ranks)) as pool:
        results = list(pool.map(run, range(len(ranks))))
    values, indices = results[0]
    assert (values.dtype, indices.dtype) == (np.float32, np.int32)
    for other in results[1:]:
        assert [each.tobytes() for each in other] == [each.tobytes() for each in results[0]]
    return values[:, 0].tolist(), indices.tolist(), job.asked


OWN, ONCE, UNKNOWN = True, False, None


@pytest.mark.parametrize(
    ("ranks", "values", "indices"),
    [
        ([(ONCE, [5, 5]), (ONCE, [5, 5])], [3, 3], [5, 5]),
        ([(ONCE, [1, 0]), (ONCE, []), (ONCE, [1, 0])], [4, 4], [1, 0]),  # the second rank has no rows
        ([(ONCE, []), (ONCE, [1, 0])], [2, 2], [1, 0]),
        ([(ONCE, [0, 1]), (ONCE, [0, 2])], [3, 1, 2], [0, 1, 2]),
        ([(ONCE, [0, 1, 2]), (ONCE, [0])], [3, 1, 1], [0, 1, 2]),  # rows of other lengths
        ([(ONCE, [0, 0]), (ONCE, [0])], [1, 1, 2], [0, 0, 0]),
        ([(ONCE, []), (ONCE, [])], [], []),
        ([(OWN, [0, 1]), (OWN, [0, 1])], [1, 1, 2, 2], [0, 1, 0, 1]),
        ([(OWN, [0, 1]), (ONCE, [0, 1])], [1, 1, 2, 2], [0, 1, 0, 1]),
        ([(ONCE, [5]), (UNKNOWN, [5])], [3], [5]),  # one position, where one rank has one row
        ([(UNKNOWN, [1, 2]), (UNKNOWN, [1, 2])], [3, 3], [1, 2]),
        ([(UNKNOWN, [2, 1]), (UNKNOWN, [2, 1])], [1, 1, 2, 2], [2, 1, 2, 1]),  # words that are the same
        ([(UNKNOWN, [5, 5]), (UNKNOWN, [5, 5])], [1, 1, 2, 2], [5, 5, 5, 5]),
        ([(UNKNOWN, [5]), (UNKNOWN, [5])], [1, 2], [5, 5]),
        ([(UNKNOWN, [0, 1]), (UNKNOWN, [0])], [1, 1, 2], [0, 1, 0]),
    ],
)
def test_ranks_agree_on_what_becomes_of_slices(ranks, values, indices, monkeypatch):
    by_origin = [(slices.Origin(own), at) for own, at in ranks]
    assert joined(by_origin, monkeypatch)[:2] == (values, indices)


def test_slices_that_all_ranks_have_alike_are_reduced_not_gathered(monkeypatch):
    ranks = [(slices.Origin(False), [0, 1, 2])] * 2
    *_, asked = joined(ranks, monkeypatch)
    assert asked == ["stack", "sum"]


@pytest.mark.parametrize(("batch", "own"), [([3, 1], [[0] * 3, [0]]), ([2, 1], [[0, 1, 0, 1], [0, 1]])])
def test_constants_made_of_rows_are_not_summed_whatever_share_a_rank_has(batch, own, monkeypatch):
    """Of one rank with one row nothing tells whether its constant is made of it."""
    ranks = [(slices.Origin(False, (rows,)), at) for rows, at in zip(batch, own, strict=True)]
    assert joined(ranks, monkeypatch)[1] == own[0] + own[1]
