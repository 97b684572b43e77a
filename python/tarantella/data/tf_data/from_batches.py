"""Distribution of inputs that yield global batches: every rank reads all of them and keeps its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras import tree

from ...keras.private import DataAdapter, TFDatasetAdapter
from ..adapter import ShardedAdapter
from ..rows import SHARED, has_rows
from . import rewrite, shard_before_map, structure
from .cached_map import cached_map
from .slicer import Slicer, rows_of

Plan = shard_before_map.Plan | str
plan = shard_before_map.plan


def describe(adapter: DataAdapter, dataset: tf.data.Dataset, plan: Plan) -> list[str]:
    """The properties that must be equal on all ranks, one per line."""
    specs = tree.flatten(dataset.element_spec)
    batches = adapter.num_batches
    return [
        f"{'unknown or infinitely many' if batches is None else batches} batches",
        *(f"part {i}: {spec}" for i, spec in enumerate(specs)),
        who_maps(plan),
    ]


def who_maps(plan: Plan) -> str:
    """One line that says which work the ranks share."""
    if isinstance(plan, shard_before_map.Plan):
        return "every rank reads all elements and maps its own rows only"
    return f"every rank reads and maps all rows and keeps its own, because {plan}"


def unbatched(dataset: tf.data.Dataset, what: str, input_shapes: dict[str, tuple[Any, ...]]) -> str | None:
    """The reason why a dataset cannot be batched, or None. Raises ValueError if it is empty.

    `input_shapes` are the known input shapes of the model by name, with the batch dimension.
    """
    specs = tree.flatten(dataset.element_spec)
    shapes = [spec.shape for spec in specs if has_rows(spec)]
    scalars = [spec for spec in specs if not has_rows(spec) and hasattr(spec, "shape")]
    if not shapes and not scalars:
        raise ValueError(f"{what} has no tensors in its elements")
    if int(dataset.cardinality()) == 0:
        raise ValueError(f"{what} is empty")
    # A scalar per batch, which a user-defined step may accept, can only come after an operation that batches.
    if not shapes or (scalars and not structure.has_batches(dataset)):
        return f"{what} is not batched: its elements contain scalars"
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
    """Pairs of the dataset's shape and the model's shape for each input."""
    spec = dataset.element_spec
    inputs = spec[0] if isinstance(spec, tuple) else spec
    if isinstance(inputs, dict):
        pairs = [(leaf, input_shapes[name]) for name, leaf in inputs.items() if name in input_shapes]
    else:
        pairs = list(zip(tree.flatten(inputs), input_shapes.values(), strict=False))
    return ((leaf.shape, wanted) for leaf, wanted in pairs if hasattr(leaf, "shape"))


def _is_sample(shape: tf.TensorShape, wanted: tuple[Any, ...]) -> bool:
    """Whether `shape` is that of a single row, for an input whose batches have the shape `wanted`."""
    # Keras adds a last dimension of 1, so batches of scalars match an Input((1,)).
    grows = wanted[-1:] == (1,) and shape.is_compatible_with(wanted[:-1])
    return shape.rank == len(wanted) - 1 and shape.is_compatible_with(wanted[1:]) and not grows


def length(batch: Any) -> tf.Tensor:
    """The number of rows of one batch."""
    return rows_of(next(leaf for leaf in tree.flatten(batch) if has_rows(leaf)))


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """The rows of a full batch of a dataset, None if neither its type nor its operations tell."""
    return _rows_of_every_batch(dataset) or shard_before_map.batch_size(dataset)


def _rows_of_every_batch(dataset: tf.data.Dataset) -> int | None:
    shapes = [spec.shape for spec in tree.flatten(dataset.element_spec) if has_rows(spec)]
    return next((int(shape[0]) for shape in shapes if shape.rank and shape[0] is not None), None)


def distribute(
    adapter: DataAdapter, rank: int, size: int, positions: bool = False, planned: Plan | None = None
) -> ShardedAdapter:
    """The micro batches of `rank`, cut from the batches of `adapter`, in the same order on all ranks.

    `planned` is the `plan` of the adapter's pipeline, made here by default.
    """
    dataset = adapter.get_tf_dataset()
    sliced = _sliced_once(dataset, planned, rank, size, positions)
    sliced = read_ahead(sliced, adapter)
    sliced._made_from = dataset  # keeps its Python functions alive
    return ShardedAdapter(adapter, sliced, adapter.num_batches)


def read_ahead(made: tf.data.Dataset, adapter: DataAdapter) -> tf.data.Dataset:
    """What was made from the dataset of `adapter`, two batches ahead."""
    # For Python inputs, Keras itself reads ahead if it may.
    return made.prefetch(2) if isinstance(adapter, TFDatasetAdapter) else made


def _sliced_once(dataset: tf.data.Dataset, planned: Plan | None, *how: Any) -> tf.data.Dataset:
    """What `_sliced` returns, made in the first call for a dataset and kept on it.

    What is kept does not refer to the dataset's Python object, which would then outlive the user's last use of it.
    """
    known = vars(dataset).setdefault("_tarantella_sliced", {})
    if how not in known:
        made = _sliced(dataset, planned or plan(dataset), *how)
        known[how] = tf.data.experimental.to_variant(made), made.element_spec
    return tf.data.experimental.from_variant(*known[how])


def _sliced(dataset: tf.data.Dataset, planned: Plan, rank: int, size: int, positions: bool) -> tf.data.Dataset:
    # Without drop_remainder the length of the last batch is unknown: it may be shorter than `size`.
    padded = (_rows_of_every_batch(dataset) or 0) < size
    slicer = Slicer(rank, size, padded, positions, not positions and structure.ends_in_batches(dataset))
    if isinstance(planned, shard_before_map.Plan):
        planned = planned._replace(source=rewrite.made_safe(planned.source, rank))
        sliced = shard_before_map.split(planned, dataset.element_spec, slicer)
    else:
        sliced = cached_map(rewrite.made_safe(dataset, rank).enumerate(), Slicer.cut, slicer)
    return in_order(sliced, dataset)


def in_order(made: tf.data.Dataset, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """What was made from a dataset, with its options and in a fixed order."""
    options = tf.data.Options()
    options.deterministic = True
    if dataset.options().autotune == tf.data.experimental.AutotuneOptions():
        # The autotuning thread delays the end of every epoch by up to its period, which doubles each time.
        options.autotune.enabled = False
    return made.with_options(dataset.options().merge(options))
