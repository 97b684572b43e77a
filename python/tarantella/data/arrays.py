"""Distribution of arrays: Keras's own adapter orders the indices, each rank gathers its rows."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays

from .adapter import ArrayDataAdapter, MicroBatches
from .shares import Slicer, fingerprint

can_distribute = can_convert_arrays

_FINGERPRINT_ROWS = 64


def adapt(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: Any = None,
) -> ArrayDataAdapter:
    """Keras's adapter of the arrays; raises its ValueError where lengths or structures do not fit."""
    leaves = [leaf for leaf in tree.flatten((x, y, sample_weight)) if leaf is not None]
    if any(len(leaf.shape) == 0 or leaf.shape[0] == 0 for leaf in leaves if hasattr(leaf, "shape")):
        raise ValueError("the data is empty: every array needs at least one row")
    return ArrayDataAdapter(
        x,
        y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps=steps,
        shuffle=shuffle,
        class_weight=class_weight,
    )


def rows(batch: Any) -> int:
    """The rows of arrays in any structure. Raises ValueError for what is no array, and where lengths differ."""
    if not can_distribute(batch):
        raise ValueError("a batch must be arrays or tensors, or lists, tuples or dicts of them")
    return int(adapt(*batch)._num_samples)


def describe(adapter: ArrayDataAdapter) -> list[str]:
    """What all ranks must have alike, a line each."""
    whole = [leaf for leaf in tree.flatten(adapter._inputs) if leaf is not None]
    sliceable = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="numpy")
    leaves = [leaf for leaf in tree.flatten(sliceable) if leaf is not None]
    return [
        f"{adapter._num_samples} rows",
        f"batches of {adapter.batch_size}, shuffle={adapter._shuffle}",
        *(f"part {i}: {getattr(leaf, 'dtype', 'columns')} {tuple(leaf.shape)}" for i, leaf in enumerate(whole)),
        *(f"part {i} with the fingerprint {_fingerprint(leaf, adapter)}" for i, leaf in enumerate(leaves)),
    ]


def _fingerprint(leaf: Any, adapter: ArrayDataAdapter) -> str:
    """Of a few rows, spread evenly: enough to catch data that each rank has made up for itself."""
    rows = np.unique(np.linspace(0, adapter._num_samples - 1, _FINGERPRINT_ROWS).astype(np.int64))
    some = np.asarray(leaf.convert_to_numpy(leaf[rows]))
    return "none" if some.dtype.hasobject else f"{zlib.crc32(some.tobytes()):08x}"


def distribute(adapter: ArrayDataAdapter, rank: int, size: int, positions: bool = False) -> MicroBatches:
    """The micro batches of `rank`, in the very order in which plain Keras visits the samples."""
    samples, batch_size = adapter._num_samples, adapter.batch_size
    least = min(adapter.partial_batch_size or batch_size, batch_size)
    slicer = Slicer(rank, size, padded=least < size, positions=positions)
    order = ArrayDataAdapter(np.arange(samples, dtype=np.int64), batch_size=batch_size, shuffle=adapter._shuffle)
    inputs = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    inputs = tree.lists_to_tuples(inputs)

    def take(index: tf.Tensor, indices: tf.Tensor, data: Any) -> Any:
        total = tf.shape(indices, out_type=tf.int64)[0]
        start, taken, _ = slicer.bounds(total)
        mine = indices[start : start + taken]
        taken_rows = tree.traverse(lambda leaf: _gather(leaf, mine), data)
        return slicer.pack(taken_rows, index, total, fingerprint([indices], total))

    # The arrays travel as one element that is repeated: captured constants would be copied into the graph.
    whole = tf.data.Dataset.from_tensors(inputs).repeat()
    dataset = tf.data.Dataset.zip((order.get_tf_dataset().enumerate(), whole)).map(
        lambda numbered, data: take(numbered[0], numbered[1], data)
    )
    options = tf.data.Options()
    options.deterministic = True
    # Cheap gathers gain nothing from tuning, whose thread delays the end of every epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return MicroBatches(order, dataset.with_options(options).prefetch(2), order.num_batches)


def _gather(leaf: Any, indices: tf.Tensor) -> Any:
    if isinstance(leaf, array_slicing.TensorflowSparseWrapper):
        return array_slicing.slice_tensorflow_sparse_wrapper(leaf, indices)
    if isinstance(leaf, (list, tuple, dict)):
        return None  # lets tree.traverse go on into the structure
    return tf.gather(leaf, indices, axis=0) if tf.is_tensor(leaf) else leaf
