"""Micro batches that each rank brings itself, where the user has switched distribution off.

How many rows the others bring is known only when the step runs, so each step begins with adding them up.
Where the data of some ranks end before those of others, they go on with batches that count for nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree

from .. import _runtime
from .._backend import tensorflow as backend
from .._backend.tensorflow_dispatch import TAKES_BATCHES_IN_GRAPH
from .adapter import DataAdapter, MicroBatches
from .shares import has_rows, mapped, micro_batch
from .tf_dataset import length


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
    known = _runtime.context().allgather(np.array([adapter.num_batches or 0], np.int64), "number of batches").ravel()
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


@contextlib.contextmanager
def together(owner: Any, batch: Any) -> Iterator[Any]:
    """For a step, a `LocalBatch` with the rows of the global batch; other batches as they are. Collective.

    `owner` is the model. Raises tf.errors.OutOfRangeError, which ends the epoch, when no rank has rows.
    """
    if not isinstance(batch, LocalBatch):
        yield batch
        return
    total = backend.sum_over_ranks(owner, "rows of a step", tf.cast(tf.reshape(batch.rows, [1]), tf.float64))
    total = tf.cast(total[0], tf.int64)
    # Nothing of a step that ends the epoch may run: a gradient of zeros, too, would move the optimizer.
    end = _end_where(total == 0)
    with tf.control_dependencies([end]):
        data, rows, total = tree.map_structure(
            lambda leaf: None if leaf is None else tf.identity(leaf), (batch.data, batch.rows, total)
        )
    # What does not depend on the batch, the count of an optimizer's steps, runs where in Keras it does too.
    with tf.control_dependencies([] if TAKES_BATCHES_IN_GRAPH else [end]):
        yield micro_batch(data, tf.cast(rows, tf.int64), total, tf.zeros_like(total), padded=True)


def _end_where(condition: tf.Tensor) -> tf.Tensor:
    def end() -> Any:
        raise StopIteration  # TensorFlow makes an OutOfRangeError of it

    return tf.cond(condition, lambda: tf.numpy_function(end, [], tf.int64), lambda: tf.constant(0, tf.int64))
