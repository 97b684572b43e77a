"""Distribution of what yields global batches: every rank reads all of them and keeps its rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import tree

from . import early, graph
from .adapter import DataAdapter, MicroBatches, TFDatasetAdapter
from .shares import Slicer, has_rows, rows_of


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
    plan = early.plan(dataset)
    if isinstance(plan, early.Plan):
        return "every rank reads all elements and maps its own rows only"
    return f"every rank reads and maps all rows and keeps its own, because {plan}"


def unbatched(dataset: tf.data.Dataset, what: str, input_shapes: list[tuple[Any, ...]]) -> str | None:
    """Why a dataset cannot be one of batches, or None. Raises ValueError for one that is empty.

    `input_shapes` are the model's input shapes with their batch dimension, where they are known.
    """
    shapes = [spec.shape for spec in tree.flatten(dataset.element_spec) if hasattr(spec, "shape")]
    if not shapes:
        raise ValueError(f"{what} has no tensors in its elements")
    if int(dataset.cardinality()) == 0:
        raise ValueError(f"{what} is empty")
    if any(shape.rank == 0 for shape in shapes):
        return f"{what} is not batched"
    lengths = {shape[0] for shape in shapes if shape.rank and shape[0] is not None}
    if len(lengths) > 1:
        return f"{what} is not batched, or its parts differ in length ({sorted(lengths)})"
    for shape, wanted in zip(_input_leaves(dataset), input_shapes, strict=False):
        # Keras itself adds a last dimension of 1, so batches of numbers fit an Input((1,)).
        grows = wanted[-1:] == (1,) and shape.is_compatible_with(wanted[:-1])
        if shape.rank == len(wanted) - 1 and shape.is_compatible_with(wanted[1:]) and not grows:
            return f"{what} is not batched: its samples have the shape {tuple(shape)}"
    return None


def _input_leaves(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec
    return [leaf.shape for leaf in tree.flatten(inputs) if hasattr(leaf, "shape")]


def length(batch: Any) -> tf.Tensor:
    """The rows of one batch."""
    return rows_of(next(leaf for leaf in tree.flatten(batch) if has_rows(leaf)))


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """The rows of a full batch of a dataset, None where neither its type nor what it is made of says it."""
    return _rows_of_every_batch(dataset) or early.batch_size(dataset)


def _rows_of_every_batch(dataset: tf.data.Dataset) -> int | None:
    lengths = [spec.shape[0] for spec in tree.flatten(dataset.element_spec) if getattr(spec, "shape", None)]
    return next((int(length) for length in lengths if length is not None), None)


def distribute(adapter: DataAdapter, rank: int, size: int, positions: bool = False) -> MicroBatches:
    """The micro batches of `rank`, cut from the batches of `adapter`, whose order is forced to be the same."""
    dataset = adapter.get_tf_dataset()
    # Without drop_remainder the length of the last batch is unknown: it may be shorter than `size`.
    slicer = Slicer(rank, size, padded=(_rows_of_every_batch(dataset) or 0) < size, positions=positions)
    plan = early.plan(dataset)
    if isinstance(plan, early.Plan):
        plan = plan._replace(source=graph.made_safe(plan.source, rank))
        sliced = early.split(plan, dataset.element_spec, slicer)
    else:
        sliced = graph.made_safe(dataset, rank).enumerate().map(lambda index, batch: slicer.cut(index, batch))
    options = tf.data.Options()
    options.deterministic = True
    if dataset.options().autotune.enabled is None:
        # Its thread delays the end of every epoch by up to its period, which doubles each time.
        options.autotune.enabled = False
    sliced = sliced.with_options(dataset.options().merge(options))
    if isinstance(adapter, TFDatasetAdapter):  # Keras reads ahead in Python's where it may
        sliced = sliced.prefetch(2)
    return MicroBatches(adapter, sliced, adapter.num_batches)
