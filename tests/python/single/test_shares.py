"""The rows of each rank: every row once, evenly distributed, and the same with tf.data."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

import numpy as np
import tensorflow as tf

from tarantella.data.adapter import adapt_arrays
from tarantella.data.rows import rows_of_rank
from tarantella.data.tf_data import from_arrays, from_batches
from tarantella.keras.private import TFDatasetAdapter
from tarantella.verify import observe


def cut(dataset: tf.data.Dataset, rank: int, size: int, positions: bool = False) -> tf.data.Dataset:
    return from_batches.distribute(TFDatasetAdapter(dataset), rank, size, positions).get_tf_dataset()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1000), st.integers(1, 50))
def test_shares_cover_every_row_once(total: int, size: int) -> None:
    parts = [rows_of_rank(total, rank, size) for rank in range(size)]
    rows = [row for start, count in parts for row in range(start, start + count)]
    assert rows == list(range(total))
    counts = [count for _, count in parts]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("samples", "batch", "size"), [(10, 4, 3), (9, 8, 2), (7, 2, 4), (12, 6, 2), (5, 20, 3)])
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_micro_batches_together_are_the_global_batches(kind: str, samples: int, batch: int, size: int) -> None:
    x = np.arange(samples, dtype="float32")
    seen = []
    for rank in range(size):
        if kind == "arrays":
            source = from_arrays.distribute(adapt_arrays(x, x, batch_size=batch), rank, size)
        else:
            adapter = TFDatasetAdapter(tf.data.Dataset.from_tensor_slices((x, x)).batch(batch))
            source = from_batches.distribute(adapter, rank, size)
        batches = list(source.get_tf_dataset())
        assert source.num_batches == len(batches) == -(-samples // batch)
        for number, element in enumerate(batches):
            total = min(batch, samples - number * batch)
            start, count = rows_of_rank(total, rank, size)
            assert int(element.metadata[1]) == total
            assert int(element.metadata[0]) == count
            wanted = x[number * batch :][:total][start : start + count] if count else x[number * batch :][:1]
            np.testing.assert_array_equal(element.data[0], wanted)
            if count:
                seen += wanted.tolist()
            else:
                assert bool(element.is_padding)
    assert sorted(seen) == x.tolist()


def test_sparse_and_ragged_rows() -> None:
    sparse = tf.sparse.from_dense(np.eye(5, 3))
    ragged = tf.ragged.constant([[1], [2, 2], [], [4], [5, 5, 5]])
    source = tf.data.Dataset.from_tensor_slices((sparse, ragged)).batch(5)
    (element,) = cut(source, 1, 2)
    np.testing.assert_array_equal(tf.sparse.to_dense(element.data[0]), np.eye(5, 3)[3:])
    assert element.data[1].to_list() == [[4], [5, 5, 5]]


def test_zipped_batches_of_two_sizes() -> None:
    large = tf.data.Dataset.range(24).batch(12).prefetch(1)
    small = tf.data.Dataset.range(6).batch(6, drop_remainder=True).repeat()
    for zipped in (tf.data.Dataset.zip((large, small)), tf.data.Dataset.zip({"a": large, "b": (small, large)})):
        batch = next(iter(zipped))
        parts = [next(iter(cut(zipped.take(1).prefetch(1), rank, 3))).data for rank in range(3)]
        tf.nest.map_structure(
            lambda whole, *of: np.testing.assert_array_equal(np.concatenate(of), whole), batch, *parts
        )


ANCHORS = tf.data.Dataset.from_tensors(np.arange(10.0))
TEN = tf.data.Dataset.range(10).batch(10)
NO_ROWS = {
    "repeated": lambda rows: tf.data.Dataset.zip((rows, ANCHORS.repeat())),
    "first": lambda rows: tf.data.Dataset.zip((ANCHORS, rows)),
    "mapped": lambda rows: rows.map(lambda x: (x, tf.range(10))),
    "mapped to after a batch": lambda rows: tf.data.Dataset.zip((rows, TEN.map(lambda x: x[:4]))),
    "zipped within": lambda rows: tf.data.Dataset.zip((TEN, tf.data.Dataset.zip((rows, ANCHORS)))),
    "generated": lambda rows: tf.data.Dataset.from_generator(
        lambda: ((np.ones(8), np.ones(10)) for _ in range(3)),
        output_signature=(tf.TensorSpec([None]), tf.TensorSpec([None])),
    ),
}


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("kind", NO_ROWS)
def test_parts_that_are_no_rows_are_refused(kind: str, drop: bool) -> None:
    """Both numbers are multiples of the ranks: if they were cut, each rank would get another part of a shared array."""
    dataset = NO_ROWS[kind](tf.data.Dataset.range(8).batch(8, drop_remainder=drop))
    if drop and kind in ("repeated", "first", "mapped", "zipped within"):  # the lengths are known beforehand
        assert "values that all rows share into the model" in str(from_batches.unbatched(dataset, "it", {}))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"same number of rows.*all rows share into the model"):
        next(iter(cut(dataset, 0, 2)))


@pytest.mark.parametrize("in_graph", [False, True])
def test_checksums_of_rows(in_graph: bool) -> None:
    def of(*batches: tuple[np.ndarray, ...]) -> tuple[int, int]:
        rows = observe.Rows()
        note = tf.function(rows.note) if in_graph else rows.note
        for batch in batches:
            note(tuple(map(tf.constant, batch)))
        return rows.take()

    x, y, z = np.arange(8.0), np.arange(8), np.arange(4.0)
    whole = of((x, y, z))
    assert whole[0] == 8
    assert of((x[:4], y[:4], z[:2]), (x[4:], y[4:], z[2:])) == whole
    assert of((x[::-1], y[::-1], z[::-1])) == whole
    others = [(x[::-1], y, z), (x + 1, y, z), (x, y, z + 1), (x, y + 1, z)]
    assert len({whole, *map(of, others)}) == 5


def test_positions_put_rows_in_order() -> None:
    source = tf.data.Dataset.range(7).batch(3)
    found = []
    for rank in range(2):
        for element in cut(source, rank, 2, positions=True):
            found += [p for p in zip(element.positions.numpy(), element.data.numpy(), strict=True) if p[0] >= 0]
    assert [row for _, row in sorted(found)] == list(range(7))


@pytest.mark.parametrize("order", ["tarantella, tensorflow", "tensorflow, tarantella"])
def test_the_default_seed_is_set_once_tensorflow_comes(order: str) -> None:
    code = f"import {order}\nfrom tensorflow.python.eager import context\nprint(context.global_seed())\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TNT_SIZE": "2", "TNT_RANK": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "42"
