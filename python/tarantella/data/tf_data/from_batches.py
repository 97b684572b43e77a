"""Distribution of inputs that yield global batches: every rank reads all of them and keeps its rows.

A pipeline is split before its maps if the result is provably the same: source → map … map → batch becomes source →
batch → this rank's rows → map … map → micro batch. Every rank reads the whole source; the ranks share the cost of the
maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from keras import tree

from ...keras.private import DataAdapter, TFDatasetAdapter
from ..adapter import ShardedAdapter
from ..rows import SHARED, has_rows, rows_of_rank
from . import rewrite, structure
from .rewrite import cached_map, unbatched_rows
from .slicer import Slicer, fingerprint, rows_of

_PASSING = ("Prefetch", "Options")  # operations that pass every element on unchanged
# Stateful for TensorFlow, but with the same result for the same element.
_HARMLESS = ("Assert", "ReadFile", "NoOp")


class Plan(NamedTuple):
    """How `_split` splits a dataset."""

    source: tf.data.Dataset
    functions: list[Any]  # of the maps, in order
    batch_size: int
    drop_remainder: bool


def plan(dataset: tf.data.Dataset) -> Plan | str:
    """How to split a batched dataset before its maps, or the reason why that is impossible."""
    node = structure.before(dataset, _PASSING)
    if structure.kind(node) not in structure.BATCHES[:2]:
        return f"its last operation is {structure.kind(node)}, not batch"
    batch_size, drop = structure.number(node, "_batch_size"), structure.number(node, "_drop_remainder")
    (node,) = structure.inputs(node) or (None,)
    functions: list[Any] = []
    while node is not None and (structure.kind(node) in _PASSING or structure.function(node) is not None):
        found = structure.function(node)
        functions = functions if found is None else [found, *functions]
        (node,) = structure.inputs(node) or (None,)
    if node is None or batch_size is None or drop is None:
        return "this version of TensorFlow does not show its operations"
    if not functions:
        return f"the operation before batch is {structure.kind(node)}, not map"
    reason = next(filter(None, map(_impure, functions)), None)
    if reason is None and not all(_is_fixed(spec) for spec in tf.nest.flatten(node.element_spec)):
        reason = "the elements before the map are not dense tensors of one shape"
    return reason or Plan(node, functions, batch_size, bool(drop))


def _impure(function: Any) -> str | None:
    """The reason why the results of a map may depend on more than the element, None if there is none."""
    stateful = {op.type for op in function.graph.get_operations() if op.op_def is not None and op.op_def.is_stateful}
    stateful -= {*_HARMLESS}
    if stateful:
        return f"its map calls {', '.join(sorted(stateful))}, which may give different results for the same element"
    if not all(tensor.dtype not in (tf.variant, tf.resource) for tensor in (*function.inputs, *function.outputs)):
        return "its map has inputs or outputs that are not dense tensors"
    return None


def _is_fixed(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()


def describe(adapter: DataAdapter, dataset: tf.data.Dataset, plan: Plan | str) -> list[str]:
    """The properties that must be equal on all ranks, one per line."""
    specs = tree.flatten(dataset.element_spec)
    batches = adapter.num_batches
    return [
        f"{'unknown or infinitely many' if batches is None else batches} batches",
        *(f"part {i}: {spec}" for i, spec in enumerate(specs)),
        who_maps(plan),
    ]


def who_maps(plan: Plan | str) -> str:
    """One line that says which work the ranks share."""
    if isinstance(plan, Plan):
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
    return _rows_of_every_batch(dataset) or _size_of_operation(dataset)


def least_rows(dataset: tf.data.Dataset) -> int | None:
    """The rows of the smallest batch, None if unknown."""
    node, full = structure.before(dataset, _PASSING), _size_of_operation(dataset)
    if full is None or not structure.inputs(node):
        return None
    if structure.number(node, "_drop_remainder"):
        return full
    samples = int(structure.inputs(node)[0].cardinality())
    return None if samples < 0 else samples % full or full


def _size_of_operation(dataset: tf.data.Dataset) -> int | None:
    node = structure.before(dataset, _PASSING)
    return structure.number(node, "_batch_size") if structure.kind(node) in structure.BATCHES else None


def _rows_of_every_batch(dataset: tf.data.Dataset) -> int | None:
    shapes = [spec.shape for spec in tree.flatten(dataset.element_spec) if has_rows(spec)]
    return next((int(shape[0]) for shape in shapes if shape.rank and shape[0] is not None), None)


def distribute(
    adapter: DataAdapter, rank: int, size: int, positions: bool = False, planned: Plan | str | None = None
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


def _sliced_once(dataset: tf.data.Dataset, planned: Plan | str | None, *how: Any) -> tf.data.Dataset:
    """What `_sliced` returns, made in the first call for a dataset and kept on it.

    What is kept does not refer to the dataset's Python object, which would then outlive the user's last use of it.
    """
    known = vars(dataset).setdefault("_tarantella_sliced", {})
    if how not in known:
        made = _sliced(dataset, planned or plan(dataset), *how)
        known[how] = tf.data.experimental.to_variant(made), made.element_spec
    return tf.data.experimental.from_variant(*known[how])


def _sliced(dataset: tf.data.Dataset, planned: Plan | str, rank: int, size: int, positions: bool) -> tf.data.Dataset:
    # Without drop_remainder the length of the last batch is unknown: it may be shorter than `size`.
    padded = (_rows_of_every_batch(dataset) or 0) < size
    slicer = Slicer(rank, size, padded, positions, not positions and structure.ends_in_batches(dataset))
    if isinstance(planned, Plan):
        planned = planned._replace(source=rewrite.made_safe(planned.source, rank))
        sliced = _split(planned, dataset.element_spec, slicer)
    else:
        sliced = cached_map(rewrite.made_safe(dataset, rank).enumerate(), Slicer.cut, slicer)
    return in_order(sliced, dataset)


def _split(plan: Plan, element_spec: Any, slicer: Slicer) -> tf.data.Dataset:
    """The elements that `slicer` would cut from the batches, which are of type `element_spec`."""
    _, rows = rows_of_rank(plan.batch_size, slicer.rank, slicer.size)
    whole = plan.source.batch(plan.batch_size, drop_remainder=plan.drop_remainder).enumerate()
    own = unbatched_rows(cached_map(whole, _cut, slicer))
    local = cached_map(own, _apply, plan.functions, parallel=True, kept_by=plan.functions[-1])
    # Only the last batch can be short, and a rank never has more rows of it than of a full batch.
    return cached_map(local.batch(max(rows, 1)), _pack, slicer, element_spec)


def _cut(slicer: Slicer, index: tf.Tensor, batch: Any) -> Any:
    leaves = tf.nest.flatten(batch)
    total = rows_of(leaves[0])
    start, taken, _ = slicer.bounds(total)
    whole = tf.stack([index, total, fingerprint(leaves, total)])
    return tf.repeat(whole[None], taken, axis=0), tuple(leaf[start : start + taken] for leaf in leaves)


def _apply(functions: list[Any], whole: tf.Tensor, row: Any) -> Any:
    for function in functions:
        row = tuple(tf.nest.flatten(function(*row)))
    return whole, row


def _pack(slicer: Slicer, element_spec: Any, whole: tf.Tensor, rows: Any) -> Any:
    index, total, mark = tf.unstack(whole[0], 3)
    data = tf.nest.pack_sequence_as(element_spec, list(rows))
    return slicer.pack(data, index, total, mark, slicer.bounds(total))


def in_order(made: tf.data.Dataset, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """What was made from a dataset, with its options and in a fixed order."""
    options = tf.data.Options()
    options.deterministic = True
    if dataset.options().autotune == tf.data.experimental.AutotuneOptions():
        # The autotuning thread delays the end of every epoch by up to its period, which doubles each time.
        options.autotune.enabled = False
    return made.with_options(dataset.options().merge(options))
