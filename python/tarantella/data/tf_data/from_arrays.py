"""Distribution of arrays: Keras's adapter orders the indices, each rank gathers its rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from numpy.typing import NDArray
from tensorflow.python.eager import context

from ..._backend.tensorflow.steps import type_of
from ...keras import private
from ...keras.private import ArrayDataAdapter
from .. import adapter as adapters
from ..adapter import ShardedAdapter, rows_of_arrays
from ..rows import PredictBatch, rows_of_rank
from .rewrite import cached_map
from .slicer import Slicer, fingerprint, micro_batch

# Samples of which the order is kept for the next call. For more, tracing takes a small part of the call.
_KEPT = 2**20


def describe(adapter: ArrayDataAdapter) -> list[str]:
    """The properties that must be equal on all ranks, one per line."""
    return adapters.described(adapter, lambda leaf: checksum(sliceable(leaf)))


def sliceable(data: Any) -> Any:
    """Converts arrays of any structure and kind to arrays that TensorFlow can slice by rows."""
    return tree.lists_to_tuples(private.array_slicing.convert_to_sliceable(data, target_backend="tensorflow"))


def checksum(data: Any) -> int:
    """The checksum, a signed number of 64 bits, of the values in a structure from `sliceable`."""
    parts = tf.nest.flatten(data, expand_composites=True)
    return adapters.checksum([part for part in parts if part is not None], _bytes)


def _bytes(block: Any) -> NDArray[np.uint8]:
    block = np.asarray(block)
    if block.dtype.hasobject:
        block = tf.strings.to_hash_bucket_fast(block, 2**62).numpy()
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def distribute(adapter: ArrayDataAdapter, rank: int, size: int, positions: bool = False) -> ShardedAdapter:
    """The micro batches of `rank`, in the order in which plain Keras visits the samples."""
    samples, batch_size = private.rows_of(adapter), adapter.batch_size
    least = min(adapter.partial_batch_size or batch_size, batch_size)
    slicer = Slicer(rank, size, padded=least < size, positions=positions)
    order = _kept_order if samples <= _KEPT else _order
    indices = order(samples, batch_size, private.is_shuffled(adapter), context.global_seed())
    # The arrays are one repeated element, because captured constants would be copied into the graph.
    whole = tf.data.Dataset.from_tensors(sliceable(private.arrays_of(adapter))).repeat()
    options = tf.data.Options()
    options.deterministic = True
    # Cheap gathers gain nothing from autotuning, and its thread delays the end of every epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE

    def seek(batch: int) -> tf.data.Dataset:
        dataset = tf.data.Dataset.zip((indices.enumerate().skip(batch) if batch else indices.enumerate(), whole))
        return cached_map(dataset, _rows_of_batch, slicer).with_options(options).prefetch(2)

    return ShardedAdapter(adapter, seek(0), adapter.num_batches, seek)


def _order(samples: int, batch_size: int, shuffle: bool | str, seed: int | None) -> tf.data.Dataset:
    """The indices of the samples, batch by batch, as Keras orders them while `seed` is TensorFlow's global seed."""
    if not shuffle:
        return tf.data.Dataset.range(samples).batch(batch_size)
    adapter = ArrayDataAdapter(np.arange(samples, dtype=np.int64), batch_size=batch_size, shuffle=shuffle)
    return tf.autograph.experimental.do_not_convert(adapter.get_tf_dataset)()  # Keras maps its own functions


@functools.lru_cache(maxsize=8)
def _kept_order(samples: int, batch_size: int, shuffle: bool | str, seed: int | None) -> tf.data.Dataset:
    """`_order`; a constant dataset where every iterator has the same order, as with a seed: that runs no functions.

    Do not repeat it: in a single iterator, each repetition of Keras's dataset has another order.
    """
    order = _order(samples, batch_size, shuffle, seed)
    epochs = [next(order.rebatch(samples).as_numpy_iterator()) for _ in range(2)] if shuffle else []
    if not epochs or (epochs[0] != epochs[1]).any():
        return order
    return tf.data.Dataset.from_tensor_slices(epochs[0]).batch(batch_size)


def _rows_of_batch(slicer: Slicer, numbered: tuple[tf.Tensor, tf.Tensor], data: Any) -> Any:
    index, indices = numbered
    total = tf.shape(indices, out_type=tf.int64)[0]
    bounds = start, taken, _ = slicer.bounds(total)
    local = take_rows(data, indices[start : start + taken])
    return slicer.pack(local, index, total, fingerprint([indices], total), bounds)


def one_batch(batch: Sequence[Any], rank: int, size: int, positions: bool = False) -> Any:
    """The rows of a rank of one global batch of arrays: a micro batch, with `positions` one to predict."""
    total = rows_of_arrays(batch)
    start, rows = rows_of_rank(total, rank, size)
    whole = sliceable(tuple(batch))
    data = take_rows(whole, slice(start, start + rows) if rows else slice(0, 1))
    if positions:
        places = np.arange(start, start + rows) if rows else np.array([-1])
        return PredictBatch(data, tf.constant(places, tf.int64))
    local, whole_batch, mark = (tf.constant(n, tf.int64) for n in (rows, total, checksum(whole)))
    return micro_batch(data, local, whole_batch, mark, padded=total < size)


def types_of(batch: Any) -> Any:
    """The types of the parts of a batch, with any number of rows. None stays None."""
    return tree.map_structure(type_of, batch)


def take_rows(data: Any, rows: Any) -> Any:
    """The rows of a structure from `sliceable` as tensors; `rows` is a slice or a tensor of indices."""
    return tree.traverse(lambda leaf: _take(leaf, rows), data)


def _take(leaf: Any, rows: Any) -> Any:
    if isinstance(leaf, private.array_slicing.TensorflowSparseWrapper):
        return private.array_slicing.slice_tensorflow_sparse_wrapper(leaf, rows)
    if isinstance(leaf, (list, tuple, dict)):
        return None  # makes tree.traverse descend into the structure
    if not hasattr(leaf, "shape"):
        return leaf
    part = leaf[rows] if isinstance(rows, slice) else tf.gather(leaf, rows, axis=0)
    return part if tf.is_tensor(part) else tf.convert_to_tensor(part)
