"""Micro batches that each rank brings itself, where the user has switched distribution off.

How many rows the others bring is known only when the step runs, so each step begins with adding them up.
Where the data of some ranks end before those of others, they go on with batches that count for nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree

from ..._job import runtime
from ...keras.private import DataAdapter
from ..adapter import MicroBatches
from ..rows import has_rows
from .of_batches import length
from .slicer import mapped


class LocalBatch(NamedTuple):
    """A micro batch of this rank's own."""

    data: Any
    # Scalar int32, since TensorFlow compares tuples by their parts, and this is no MicroBatch; 0 where one row fills up
    # because this rank has no more data.
    rows: Any


def distribute(adapter: DataAdapter) -> MicroBatches:
    """The batches of `adapter`, then rows that do not count without end. Collective.

    An epoch ends with the longest data: known beforehand where all ranks know their number of batches,
    else by the step in which no rank has rows.
    """
    dataset = adapter.get_tf_dataset()
    options = tf.data.Options()
    options.deterministic = True
    counted = mapped(dataset.enumerate(), lambda _, batch: LocalBatch(batch, tf.cast(length(batch), tf.int32)))
    filler = tree.map_structure(_one_row, dataset.element_spec)
    fillers = tf.data.Dataset.from_tensors(LocalBatch(filler, tf.constant(0, tf.int32))).repeat()
    whole = counted.concatenate(fillers).with_options(options)
    known = runtime.context().allgather(np.array([adapter.num_batches or 0], np.int64), "number of batches").ravel()
    return MicroBatches(adapter, whole, int(known.max()) if (known > 0).all() else None)


def _one_row(spec: Any) -> Any:
    """A row of zeros of a type of tensors."""
    if isinstance(spec, tf.OptionalSpec):
        return tf.experimental.Optional.empty(None)
    if not has_rows(spec):
        return tf.zeros(spec.shape, spec.dtype) if hasattr(spec, "shape") else None
    if spec.shape.rank is None:
        raise ValueError(
            "data that is not distributed must say the number of its dimensions: dataset.map(…) with tf.ensure_shape"
        )
    shape = [1, *(1 if length is None else length for length in spec.shape[1:])]
    dense = tf.zeros(shape, spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_tensor(dense, ragged_rank=spec.ragged_rank, row_splits_dtype=spec.row_splits_dtype)
    return tf.sparse.from_dense(dense) if isinstance(spec, tf.SparseTensorSpec) else dense
