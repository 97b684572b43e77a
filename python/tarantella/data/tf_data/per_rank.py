"""Micro batches from each rank's own data, if the user has switched distribution off.

The global number of rows is known only when the step runs, so each step begins with its sum over the ranks. A rank
whose data ends before the others' continues with batches that do not count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree

from ..._backend import backend
from ..._job import runtime
from ...keras import private
from ...keras.private import DataAdapter
from ..adapter import ShardedAdapter
from ..rows import MicroBatch, PaddedMicroBatch, has_rows
from .from_batches import in_order, length, read_ahead
from .rewrite import cached_map
from .slicer import micro_batch

# Up to 3.15 Keras takes the batch in the step's graph. What does not depend on the batch runs there even where the data
# has ended: an optimizer counts one step more.
_TAKES_BATCHES_IN_GRAPH = private.version() < (3, 16)


class PerRankBatch(NamedTuple):
    """A micro batch from this rank's own data."""

    data: Any
    # Scalar int32: another dtype than in MicroBatch, because TensorFlow compares tuples by their parts. 0 for the
    # filler row of a rank that has no more data.
    rows: Any


def distribute(adapter: DataAdapter) -> ShardedAdapter:
    """The batches of `adapter`, then an infinite number of rows that do not count. Collective.

    An epoch ends with the data of the rank that has most: after a known number of batches if all ranks know theirs,
    otherwise with the first step in which no rank has rows.
    """
    dataset = adapter.get_tf_dataset()
    counted = cached_map(dataset.enumerate(), _counted)
    filler = tree.map_structure(_one_row, dataset.element_spec)
    fillers = tf.data.Dataset.from_tensors(PerRankBatch(filler, tf.constant(0, tf.int32))).repeat()
    whole = read_ahead(in_order(counted.concatenate(fillers), dataset), adapter)
    known = runtime.context().allgather(np.array([adapter.num_batches or 0], np.int64), "number of batches").ravel()
    return ShardedAdapter(adapter, whole, int(known.max()) if (known > 0).all() else None)


@contextlib.contextmanager
def with_global_rows(owner: Any, batch: PerRankBatch) -> Iterator[MicroBatch | PaddedMicroBatch]:
    """Within a step: the micro batch, which knows the rows of all ranks. Collective. `owner` is the model.

    Where no rank has rows, the epoch ends with tf.errors.OutOfRangeError.
    """
    rows = tf.cast(tf.reshape(batch.rows, [1]), tf.float64)
    total = tf.cast(backend.sum_over_ranks(owner, "rows of a step", rows)[0], tf.int64)
    # Nothing of a step that ends the epoch may run: a gradient of zeros, too, would move the optimizer.
    end = _end_where(total == 0)
    with tf.control_dependencies([end]):
        data, own, total = tree.map_structure(
            lambda leaf: None if leaf is None else tf.identity(leaf), (batch.data, batch.rows, total)
        )
    # What does not depend on the batch, the count of an optimizer's steps, runs where in Keras it does too.
    with tf.control_dependencies([] if _TAKES_BATCHES_IN_GRAPH else [end]):
        # Nobody compares the fingerprint.
        yield micro_batch(data, tf.cast(own, tf.int64), total, tf.zeros_like(total), padded=True)


def _end_where(condition: tf.Tensor) -> tf.Tensor:
    def end() -> Any:
        raise StopIteration  # TensorFlow makes an OutOfRangeError of it

    return tf.cond(condition, lambda: tf.numpy_function(end, [], tf.int64), lambda: tf.constant(0, tf.int64))


def _counted(_: tf.Tensor, batch: Any) -> PerRankBatch:
    return PerRankBatch(batch, tf.cast(length(batch), tf.int32))


def _one_row(spec: Any) -> Any:
    """One row of zeros of the type `spec`."""
    if isinstance(spec, tf.OptionalSpec):
        return tf.experimental.Optional.empty(None)
    if not has_rows(spec):
        return tf.zeros(spec.shape, spec.dtype) if hasattr(spec, "shape") else None
    if spec.shape.rank is None:
        raise ValueError(
            "data that is not distributed must have a known number of dimensions: dataset.map(…) with tf.ensure_shape"
        )
    shape = [1, *(1 if length is None else length for length in spec.shape[1:])]
    dense = tf.zeros(shape, spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_tensor(dense, ragged_rank=spec.ragged_rank, row_splits_dtype=spec.row_splits_dtype)
    return tf.sparse.from_dense(dense) if isinstance(spec, tf.SparseTensorSpec) else dense
