"""Distribution of arrays: Keras's own adapter orders the indices, each rank gathers its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays

from .shares import Slicer

can_distribute = can_convert_arrays


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


def distribute(adapter: ArrayDataAdapter, rank: int, size: int, positions: bool = False) -> tf.data.Dataset:
    """The micro batches of `rank`, in the very order in which plain Keras visits the samples."""
    samples, batch_size = adapter._num_samples, adapter.batch_size
    least = min(adapter.partial_batch_size or batch_size, batch_size)
    slicer = Slicer(rank, size, padded=least < size, positions=positions)
    order = ArrayDataAdapter(
        np.arange(samples, dtype=np.int64), batch_size=batch_size, shuffle=adapter._shuffle
    ).get_tf_dataset()
    inputs = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    inputs = tree.lists_to_tuples(inputs)

    def take(index: tf.Tensor, indices: tf.Tensor, data: Any) -> Any:
        total = tf.shape(indices, out_type=tf.int64)[0]
        start, taken, _ = slicer.bounds(total)
        mine = indices[start : start + taken]
        return slicer.pack(tree.traverse(lambda leaf: _gather(leaf, mine), data), index, total, [indices])

    # The arrays travel as one element that is repeated: captured constants would be copied into the graph.
    whole = tf.data.Dataset.from_tensors(inputs).repeat()
    dataset = tf.data.Dataset.zip((order.enumerate(), whole)).map(
        lambda numbered, data: take(numbered[0], numbered[1], data)
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(adapter.num_batches))
    options = tf.data.Options()
    options.deterministic = True
    # Cheap gathers gain nothing from tuning, whose thread delays the end of every epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return dataset.with_options(options).prefetch(2)


def _gather(leaf: Any, indices: tf.Tensor) -> Any:
    if isinstance(leaf, array_slicing.TensorflowSparseWrapper):
        return array_slicing.slice_tensorflow_sparse_wrapper(leaf, indices)
    if isinstance(leaf, (list, tuple, dict)):
        return None  # lets tree.traverse go on into the structure
    return tf.gather(leaf, indices, axis=0) if tf.is_tensor(leaf) else leaf
