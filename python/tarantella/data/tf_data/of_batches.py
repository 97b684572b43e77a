"""Distribution of what yields global batches: every rank reads all of them and keeps its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras import tree

from ...keras.private import DataAdapter, TFDatasetAdapter
from ..adapter import MicroBatches
from ..rows import SHARED, has_rows
from . import before_map, rewrite, structure
from .slicer import Slicer, mapped, rows_of


def is_dataset(data: Any) -> bool:
    """Whether it is a tf.data.Dataset."""
    return isinstance(data, tf.data.Dataset)


def describe(adapter: DataAdapter) -> list[str]:
    """What all ranks must have alike, a line each."""
    dataset = adapter.get_tf_dataset()
    specs = tree.flatten(dataset.element_spec)
    batches = adapter.num_batches
    return [
        f"{'unknown or infinitely many' if batches is None else batches} batches",
        *(f"part {i}: {spec}" for i, spec in enumerate(specs)),
        who_maps(dataset),
    ]


def who_maps(dataset: tf.data.Dataset) -> str:
    """Says in a line what work the ranks share."""
    plan = before_map.plan(dataset)
    if isinstance(plan, before_map.Plan):
        return "every rank reads all elements and maps its own rows only"
    return f"every rank reads and maps all rows and keeps its own, because {plan}"


def unbatched(dataset: tf.data.Dataset, what: str, input_shapes: dict[str, tuple[Any, ...]]) -> str | None:
    """Why a dataset cannot be one of batches, or None. Raises ValueError for one that is empty.

    `input_shapes` are the model's input shapes by name, with their batch dimension, where they are known.
    """
    specs = tree.flatten(dataset.element_spec)
    shapes = [spec.shape for spec in specs if has_rows(spec)]
    scalars = [spec for spec in specs if not has_rows(spec) and hasattr(spec, "shape")]
    if not shapes and not scalars:
        raise ValueError(f"{what} has no tensors in its elements")
    if int(dataset.cardinality()) == 0:
        raise ValueError(f"{what} is empty")
    # One number for a batch, which a step of the user's own may take, can be made of batches only.
    if not shapes or (scalars and not structure.has_batches(dataset)):
        return f"{what} is not batched: its elements hold single numbers"
    lengths = {shape[0] for shape in shapes if shape.rank and shape[0] is not None}
    if len(lengths) > 1 and not structure.ends_in_batches(dataset):
        return f"{what} is not batched, or its parts differ in length ({sorted(lengths)}; {SHARED})"
    found = list(_inputs(dataset, input_shapes))
    if found and all(_is_sample(shape, wanted) for shape, wanted in found):
        return f"{what} is not batched: its samples have the shape {tuple(found[0][0])}"
    return None


def _inputs(
    dataset: tf.data.Dataset, input_shapes: dict[str, tuple[Any, ...]]
) -> Iterator[tuple[tf.TensorShape, tuple[Any, ...]]]:
    """The shapes of what the dataset has for the model's inputs, and those that the inputs have."""
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec
    if isinstance(inputs, dict):
        pairs = [(leaf, input_shapes[name]) for name, leaf in inputs.items() if name in input_shapes]
    else:
        pairs = list(zip(tree.flatten(inputs), input_shapes.values(), strict=False))
    return ((leaf.shape, wanted) for leaf, wanted in pairs if hasattr(leaf, "shape"))


def _is_sample(shape: tf.TensorShape, wanted: tuple[Any, ...]) -> bool:
    """Whether it is that of one row for an input of batches of the shape `wanted`."""
    # Keras itself adds a last dimension of 1, so batches of numbers fit an Input((1,)).
    grows = wanted[-1:] == (1,) and shape.is_compatible_with(wanted[:-1])
    return shape.rank == len(wanted) - 1 and shape.is_compatible_with(wanted[1:]) and not grows


def length(batch: Any) -> tf.Tensor:
    """The rows of one batch."""
    return rows_of(next(leaf for leaf in tree.flatten(batch) if has_rows(leaf)))


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """The rows of a full batch of a dataset, None where neither its type nor what it is made of says it."""
    return _rows_of_every_batch(dataset) or before_map.batch_size(dataset)


def _rows_of_every_batch(dataset: tf.data.Dataset) -> int | None:
    shapes = [spec.shape for spec in tree.flatten(dataset.element_spec) if has_rows(spec)]
    return next((int(shape[0]) for shape in shapes if shape.rank and shape[0] is not None), None)


def distribute(adapter: DataAdapter, rank: int, size: int, positions: bool = False) -> MicroBatches:
    """The micro batches of `rank`, cut from the batches of `adapter`, whose order is forced to be the same."""
    dataset = adapter.get_tf_dataset()
    # Without drop_remainder the length of the last batch is unknown: it may be shorter than `size`.
    padded = (_rows_of_every_batch(dataset) or 0) < size
    slicer = Slicer(rank, size, padded, positions, several_sizes=structure.ends_in_batches(dataset))
    plan = before_map.plan(dataset)
    if isinstance(plan, before_map.Plan):
        plan = plan._replace(source=rewrite.made_safe(plan.source, rank))
        sliced = before_map.split(plan, dataset.element_spec, slicer)
    else:
        sliced = mapped(rewrite.made_safe(dataset, rank).enumerate(), slicer.cut)
    options = tf.data.Options()
    options.deterministic = True
    if dataset.options().autotune.enabled is None:
        # Its thread delays the end of every epoch by up to its period, which doubles each time.
        options.autotune.enabled = False
    sliced = sliced.with_options(dataset.options().merge(options))
    if isinstance(adapter, TFDatasetAdapter):  # Keras reads ahead in Python's where it may
        sliced = sliced.prefetch(2)
    return MicroBatches(adapter, sliced, adapter.num_batches)
