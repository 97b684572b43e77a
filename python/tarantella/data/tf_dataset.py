"""Distribution of a batched tf.data.Dataset: every rank reads all of it and keeps its rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from .shares import Slicer


def check(dataset: tf.data.Dataset, what: str, input_shapes: list[tuple[Any, ...]] | None = None) -> None:
    """Raises ValueError for a dataset that is empty or not batched.

    `input_shapes` are the model's input shapes with their batch dimension, where they are known.
    """
    cure = f"{what} must be batched by the global batch size: dataset.batch(…)"
    leaves = [spec for spec in tree.flatten(dataset.element_spec) if hasattr(spec, "shape")]
    shapes = [spec.shape for spec in leaves]
    if not shapes:
        raise ValueError(f"{what} has no tensors in its elements")
    if any(shape.rank == 0 for shape in shapes):
        raise ValueError(f"{what} is not batched; {cure}")
    lengths = {shape[0] for shape in shapes if shape.rank and shape[0] is not None}
    if len(lengths) > 1:
        raise ValueError(f"{what} is not batched, or its parts differ in length ({sorted(lengths)}); {cure}")
    for shape, wanted in zip(_input_leaves(dataset), input_shapes or [], strict=False):
        # Keras itself adds a last dimension of 1, so batches of numbers fit an Input((1,)).
        grows = wanted[-1:] == (1,) and shape.is_compatible_with(wanted[:-1])
        if shape.rank == len(wanted) - 1 and shape.is_compatible_with(wanted[1:]) and not grows:
            raise ValueError(f"{what} is not batched: its samples have the shape {tuple(shape)}; {cure}")
    if int(dataset.cardinality()) == 0:
        raise ValueError(f"{what} is empty")


def _input_leaves(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec
    return [leaf.shape for leaf in tree.flatten(inputs) if hasattr(leaf, "shape")]


def _least_batch(dataset: tf.data.Dataset) -> int:
    lengths = [spec.shape[0] for spec in tree.flatten(dataset.element_spec) if getattr(spec, "shape", None)]
    return min((int(length) for length in lengths if length is not None), default=0)


def distribute(
    dataset: tf.data.Dataset, rank: int, size: int, class_weight: Any = None, positions: bool = False
) -> tf.data.Dataset:
    """The micro batches of `rank`. The order of `dataset` is forced to be the same on all ranks."""
    if class_weight is not None:
        dataset = TFDatasetAdapter(dataset, class_weight=class_weight).get_tf_dataset()
    # Without drop_remainder the length of the last batch is unknown: it may be shorter than `size`.
    slicer = Slicer(rank, size, padded=_least_batch(dataset) < size, positions=positions)
    sliced = dataset.enumerate().map(lambda index, batch: slicer.cut(index, batch))
    options = tf.data.Options()
    options.deterministic = True
    if dataset.options().autotune.enabled is None:
        # Its thread delays the end of every epoch by up to its period, which doubles each time.
        options.autotune.enabled = False
    return sliced.with_options(options).prefetch(2)
