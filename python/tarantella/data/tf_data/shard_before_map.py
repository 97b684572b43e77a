"""Splits a dataset before its maps, so that each rank maps only its own rows. Only if the result is provably the same.

source → map … map → batch becomes source → batch → this rank's rows → map … map → micro batch. Every rank reads the
whole source; the ranks share the cost of the maps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ..rows import rows_of_rank
from . import structure
from .cached_map import cached_map, unbatched
from .slicer import Slicer, fingerprint, rows_of

_PASSING = ("Prefetch", "Options")  # operations that pass every element on unchanged
# Stateful for TensorFlow, but with the same result for the same element.
_HARMLESS = ("Assert", "ReadFile", "NoOp")


class Plan(NamedTuple):
    """How `split` splits a dataset."""

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


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """The rows of a full batch, None if the last operation is not batch."""
    node = structure.before(dataset, _PASSING)
    return structure.number(node, "_batch_size") if structure.kind(node) in structure.BATCHES else None


def least_rows(dataset: tf.data.Dataset) -> int | None:
    """The rows of the smallest batch, None if unknown."""
    node, full = structure.before(dataset, _PASSING), batch_size(dataset)
    if full is None or not structure.inputs(node):
        return None
    if structure.number(node, "_drop_remainder"):
        return full
    samples = int(structure.inputs(node)[0].cardinality())
    return None if samples < 0 else samples % full or full


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


def split(plan: Plan, element_spec: Any, slicer: Slicer) -> tf.data.Dataset:
    """The elements that `slicer` would cut from the batches, which are of type `element_spec`."""
    _, rows = rows_of_rank(plan.batch_size, slicer.rank, slicer.size)
    whole = plan.source.batch(plan.batch_size, drop_remainder=plan.drop_remainder).enumerate()
    local = cached_map(
        unbatched(cached_map(whole, _cut, slicer)), _apply, plan.functions, parallel=True, kept_by=plan.functions[-1]
    )
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
