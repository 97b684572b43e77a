"""What the target of a tape is: a value for each row of the batch, a mean over rows, or of a single row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .graphs import (
    BRANCHES,
    CALLS,
    ELEMENTWISE,
    WITH_WEIGHTS,
    FunctionCall,
    TensorInCall,
    keeps_first_axis,
    reduces_first_axis,
    resolved,
    takes_one,
    walk_completes,
)
from .provenance import GATHER, ITERATORS, READS, computed_from, differs_between_ranks, is_from_own_rows, reaches

_SIZES = ("Shape", "Size")
_SCALING = ("Mul", "RealDiv", "DivNoNan", "Pow", "Fill")
_ADDING = ("Identity", "StopGradient", "Neg", "AddV2", "Sub", "Cast", "Reshape", "Squeeze", "Maximum", "Minimum")
_ARITHMETIC = (*_SCALING, *_ADDING)


def has_rows(target: Any, seed: Any, rows: Sequence[int]) -> bool:
    """Whether a target has a value for each row of the batch, or of something computed from rows, and is summed.

    Not where the values, or the `seed` that they are multiplied by, are divided by their number: then the sum is a
    mean. `rows` are the numbers of rows that TensorFlow knows. Eagerly only the length tells: a target with as many
    values as there are rows has one for each.
    """
    if not isinstance(target, (tf.Tensor, tf.Variable)) or not target.shape.rank:
        return False
    if not tf.is_symbolic_tensor(target):
        return target.shape[0] in rows
    is_of_all_rows = reaches((target, None), (GATHER,)) and not has_rows_first(target)
    if target.shape[0] not in (None, *rows) or is_of_all_rows:
        return False
    seeds = [seed] if seed is not None and tf.is_symbolic_tensor(seed) else []
    return not any(_is_mean(each, rows) for each in (target, *seeds))


def has_rows_first(tensor: tf.Tensor, call: FunctionCall | None = None) -> bool:
    """Whether it is certain that the first axis of a tensor is that of the batch's rows, and no other axis is."""
    return is_from_own_rows([(tensor, call)]) and walk_completes(_rows_first, [(tensor, call)])


def _rows_first(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
    """The tensors that must have the rows on the first axis only, so that this one has too; None if unknown."""
    op = tensor.op
    if op.type == "Placeholder" or op.type in CALLS:
        outer = resolved(tensor, call)
        return [] if outer is None and op.type == "Placeholder" else outer
    if op.type in ITERATORS:
        return []
    if op.type in ELEMENTWISE:
        found = [(each, call) for each in op.inputs if is_from_own_rows([(each, call)])]
        # Broadcasting moves the axes of what has fewer.
        return found if all(each.shape.rank == tensor.shape.rank is not None for each, _ in found) else None
    if op.type == "ResourceGather" and not op.get_attr("batch_dims"):
        return [(op.inputs[1], call)]
    if op.type == "GatherV2" and not op.get_attr("batch_dims") and tf.get_static_value(op.inputs[2]) == 0:
        return None if is_from_own_rows([(op.inputs[0], call)]) else [(op.inputs[1], call)]
    weights = [(each, call) for each in op.inputs[1:] if op.type in WITH_WEIGHTS]
    return [(op.inputs[0], call)] if keeps_first_axis(tensor) and not is_from_own_rows(weights) else None


def _is_mean(tensor: Any, rows: Sequence[int]) -> bool:
    """Whether the sum of the values is a mean: they are divided by their number, or are not values of rows."""

    def before(each: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        op = each.op
        is_scaled = op.type in _SCALING and any(_counts_rows(i, rows) for i in op.inputs if i.shape.rank == 0)
        if is_scaled or _is_stack(each) or reduces_first_axis(op) or (op.type == "Softmax" and _rank(each) == 1):
            return None
        if op.type in BRANCHES:
            return (resolved(each, call, control_flow=True) or [])[1:]
        if op.type not in _ARITHMETIC:
            outer = resolved(each, call) or []
            return outer if len(outer) == 1 else []
        longest = max(map(_rank, op.inputs))
        most = [(i, call) for i in op.inputs if _rank(i) == longest]
        return [] if op.type == "Fill" else most if op.type in _SCALING else most[:1]

    return not walk_completes(before, [(tensor, None)])


def _rank(tensor: Any) -> int:
    return -1 if tensor.shape.rank is None else int(tensor.shape.rank)


def _is_stack(tensor: Any) -> bool:
    op = tensor.op
    is_long = _rank(tensor) > 0 and tensor.shape[0] is not None
    return is_long and (op.type == "Pack" or (op.type == "ConcatV2" and len(op.inputs) > 3))


def _counts_rows(tensor: Any, rows: Sequence[int]) -> bool:
    """Whether a number is computed from that of the rows, or of the valid rows."""

    def before(each: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        op, value = each.op, tf.get_static_value(each)
        is_sum_of_rows = op.type == "Sum" and differs_between_ranks([(each, call)]) and not _is_of_variables(each, call)
        if is_sum_of_rows or op.type in (*_SIZES, "OnesLike"):
            return None
        if value is not None and ((np.ndim(value) and len(value) in rows) or np.isin(np.ravel(value)[:8], rows).any()):
            return None  # of a known shape, too
        if op.type in _ARITHMETIC or op.type in ("Reciprocal", "Prod", "Sum", "Pack"):
            return [(each, call) for each in op.inputs]
        return [(op.inputs[0], call)] if op.type == "StridedSlice" else resolved(each, call) or []

    return not walk_completes(before, [(tensor, None)])


def is_of_one_row(target: Any) -> bool:
    """Whether a target depends on a single row of the batch, as far as the graph shows."""
    if not tf.is_symbolic_tensor(target):
        return False
    picked: set[Any] = set()

    def before(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
        if _picks_one_row(tensor, call):
            if tensor.shape.rank == 0 and not _is_of_variables(tensor, call):
                return []  # a coefficient
            if _is_in_loop(call) and isinstance(_which(tensor), str):
                return None  # another row in each iteration
            picked.add(_which(tensor))
            return []
        if tensor.op.type in (*_SIZES, "ZerosLike", "OnesLike"):
            return []
        kind, places = computed_from(tensor, call)
        return None if kind == "own" else places

    return walk_completes(before, [(target, None)]) and len(picked) == 1


def _is_of_variables(tensor: Any, call: FunctionCall | None) -> bool:
    return reaches((tensor, call), READS, but=_SIZES)


def _is_in_loop(call: FunctionCall | None) -> bool:
    return call is not None and (call.attribute == "body" or _is_in_loop(call.around))


def _picks_one_row(tensor: Any, call: FunctionCall | None) -> bool:
    op = tensor.op
    if op.type == "TensorListGetItem":
        return not walk_completes(_no_list_of_rows, [(op.inputs[0], call)])
    return takes_one(op) and has_rows_first(op.inputs[0], call)


def _which(tensor: Any) -> Any:
    """The index of the row that is picked, or the name of the tensor with this index."""
    if tensor.op.type == "Unpack":
        return int(tensor.value_index)
    index = tensor.op.inputs[1]
    value = tf.get_static_value(index)
    return index.name if value is None else int(np.ravel(value)[0])


def _no_list_of_rows(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
    op = tensor.op
    if op.type == "TensorListFromTensor":
        return None if has_rows_first(op.inputs[0], call) else []
    return resolved(tensor, call, control_flow=True)
