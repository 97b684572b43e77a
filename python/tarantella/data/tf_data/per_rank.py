"""Micro batches from each rank's own data, if the user has switched distribution off.

The global number of rows is known only when the step runs, so each step begins with its sum over the ranks. A rank
whose data ends before the others' continues with batches that do not count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree

from ..._job import runtime
from ...keras.private import DataAdapter
from ..adapter import ShardedAdapter
from ..rows import has_rows
from .cached_map import cached_map
from .from_batches import in_order, length, read_ahead


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
