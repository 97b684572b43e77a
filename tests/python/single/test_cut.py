"""The core's operation that cuts a rank's rows gives what TensorFlow's operations give, and fails as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")

from tarantella.data.rows import ROWS_LIMIT  # noqa: E402
from tarantella.data.tf_data import from_batches, slicer  # noqa: E402
from tarantella.data.tf_data.rewrite import _known  # noqa: E402
from tarantella.data.tf_data.slicer import Slicer  # noqa: E402
from tarantella.keras.private import TFDatasetAdapter  # noqa: E402

TYPES = [tf.float32, tf.float64, tf.bfloat16, tf.int8, tf.int64, tf.bool]


def by_tensorflow(cutter: Slicer, index: int, batch: Any) -> Any:
    every_type = slicer._WITHOUT_BYTES
    slicer._WITHOUT_BYTES = (*every_type, *TYPES)
    try:
        return cutter.cut(tf.constant(index, tf.int64), batch)
    finally:
        slicer._WITHOUT_BYTES = every_type


def by_the_core(cutter: Slicer, index: int, batch: Any) -> Any:
    return cutter.cut(tf.constant(index, tf.int64), batch)


def part(kind: Any, *shape: int) -> Any:
    return tf.cast(np.arange(np.prod(shape)).reshape(shape) % 100, kind)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    total=st.integers(1, 20),
    size=st.integers(1, 5),
    index=st.integers(0, 2**30),
    kinds=st.lists(st.tuples(st.sampled_from(TYPES), st.integers(0, 3)), min_size=1, max_size=3),
    positions=st.booleans(),
)
def test_it_gives_what_tensorflow_gives(total: int, size: int, index: int, kinds: Any, positions: bool) -> None:
    batch = {str(place): part(kind, total, *[2] * more) for place, (kind, more) in enumerate(kinds)}
    for rank in range(size):
        cutter = Slicer(rank, size, padded=True, positions=positions)
        expected, actual = by_tensorflow(cutter, index, batch), by_the_core(cutter, index, batch)
        assert type(actual) is type(expected)
        for name in batch:
            assert actual.data[name].dtype == expected.data[name].dtype
            np.testing.assert_array_equal(actual.data[name], expected.data[name])
        if positions:
            np.testing.assert_array_equal(actual.positions, expected.positions)
            continue
        np.testing.assert_array_equal(actual.metadata[:2], expected.metadata[:2])
        assert bool(actual.is_padding) == bool(expected.is_padding)


def test_parts_of_several_sizes() -> None:
    batch = (part(tf.float32, 6, 2), part(tf.int64, 3))
    cutter = Slicer(1, 3, padded=False, positions=False, several_sizes=True)
    expected, actual = by_tensorflow(cutter, 5, batch), by_the_core(cutter, 5, batch)
    np.testing.assert_array_equal(actual.data[0], expected.data[0])
    np.testing.assert_array_equal(actual.data[1], expected.data[1])
    np.testing.assert_array_equal(actual.metadata[:2], expected.metadata[:2])


@pytest.mark.parametrize("several_sizes", [False, True])
@pytest.mark.parametrize("lengths", [(0,), (4, 0), (4, 3), (6, 4)])
def test_it_refuses_what_tensorflow_refuses(lengths: tuple[int, ...], several_sizes: bool) -> None:
    cutter = Slicer(0, 3, padded=True, positions=False, several_sizes=several_sizes)
    batch = tuple(part(tf.float32, length, 2) for length in lengths)
    for cut in (by_tensorflow, by_the_core):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="must have the same number of rows, at least one"
        ) as e:
            cut(cutter, 0, batch)
        assert ("or each a multiple of the 3 ranks" in str(e.value)) == several_sizes
        assert "put values that all rows share into the model" in str(e.value)


def mark(*batch: Any, index: int = 3, rank: int = 0) -> int:
    tensors = tuple(map(tf.constant, batch))
    return int(by_the_core(Slicer(rank, 2, padded=False, positions=False), index, tensors).metadata[2])


def test_the_mark_is_that_of_all_values_and_of_the_position() -> None:
    x, y = np.ones((8, 3), np.float32), np.zeros(8, np.int64)
    same = mark(x, y)
    assert mark(x, y, rank=1) == same
    assert mark(x, y, index=4) != same
    for place in np.ndindex(*x.shape):
        other = x.copy()
        other[place] = np.nextafter(np.float32(1), np.float32(2))
        assert mark(other, y) != same
    assert mark(x, y + 1) != same
    rows = np.arange(8, dtype=np.float32)
    assert mark(rows[::-1].copy(), y) != mark(rows, y)


def test_positions_beyond_the_first_batch() -> None:
    made = by_the_core(Slicer(1, 2, padded=True, positions=True), 7, part(tf.int8, 5))
    np.testing.assert_array_equal(made.positions, 7 * ROWS_LIMIT + np.array([3, 4]))


def test_what_has_no_rows_or_no_bytes() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((np.array(list("abcdef")), np.arange(6))).batch(4)
    dataset = dataset.map(lambda text, number: (text, number, tf.constant(2.0)))
    (first, *_) = from_batches.distribute(TFDatasetAdapter(dataset), 1, 2).get_tf_dataset()
    assert [each.numpy().tolist() for each in first.data] == [[b"c", b"d"], [2, 3], 2.0]


def test_a_function_has_few_operations() -> None:
    """Each costs every iterator up to half a millisecond."""
    dataset = tf.data.Dataset.from_tensor_slices((np.ones((8, 3)), np.arange(8))).batch(4)
    for positions in (False, True):
        _known.clear()
        from_batches.distribute(TFDatasetAdapter(dataset), 0, 2, positions)
        (made,) = _known
        parts = 2
        assert len(made.graph.graph.get_operations()) <= 4 + 3 * parts
