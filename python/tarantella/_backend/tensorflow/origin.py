"""Whether a tensor of a graph is computed from the rows of the batch, found by walking the graph backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# What a batch comes out of where a function has its loop inside.
ITERATORS = ("IteratorGetNext", "OptionalGetValue")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Stateful in TensorFlow's eyes, but alike on all ranks if their inputs are.
_READS = ("ReadVariableOp", "ResourceGather")
# What they make has the axes of its inputs.
# fmt: off
_ELEMENTWISE = {
    "Identity", "Cast", "StopGradient", "ZerosLike", "OnesLike", "Neg", "Relu", "Tanh", "Sigmoid", "Softmax",
    "LogicalNot", "LogicalAnd", "LogicalOr", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual",
    "AddV2", "Sub", "Mul", "RealDiv", "FloorMod", "Maximum", "Minimum", "SelectV2", "BiasAdd",
}


# fmt: on


class _Call(NamedTuple):
    """The call of a function inside of which a tensor lies."""

    op: Any
    around: Any  # the call that this one lies in, or None


_Place = tuple[Any, _Call | None]


def from_rows(tensor: tf.Tensor) -> bool:
    """Whether the values, or the number of rows, of the batch can change this tensor of a graph.

    Constants and variables cannot, nor other dimensions of a shape than that of the rows. A number of rows that
    TensorFlow knows is a constant: see `has_shape_of`. What cannot be told counts as computed from rows.
    """
    return _any_from_rows([(tensor, None)])


def has_shape_of(tensor: tf.Tensor, rows: Sequence[int]) -> bool:
    """Whether an axis of these indices, before they were made flat, is as long as one of these numbers of rows.

    An axis of 1 that `expand_dims` has put there does not count.
    """
    places: list[_Place] = [(tensor, None)]
    while places:
        each, call = places[0]
        op = each.op
        through = _through(each, call)
        if op.type in ("Cast", "ExpandDims", "Identity"):
            through = [(op.inputs[0], call)]
        elif not through:
            if (each.shape.rank or 0) > 1 and any(length in rows for length in each.shape):
                return True
            through = [(op.inputs[0], call)] if op.type == "Reshape" else []
        places = _symbolic(through)
    return False


def _any_from_rows(pending: list[_Place]) -> bool:
    return not _all(_before, pending)


def _all(step: Callable[[Any, _Call | None], list[_Place] | None], pending: list[_Place]) -> bool:
    """Whether no tensor on the way back from the pending ones gives None."""
    seen: set[tuple[int, str, _Call | None]] = set()
    while pending:
        each, call = pending.pop()
        key = (id(each.graph), each.name, call)
        if key in seen:
            continue
        seen.add(key)
        before = step(each, call)
        if before is None:
            return False
        pending.extend(_symbolic(before))
    return True


def _symbolic(places: Iterable[_Place]) -> list[_Place]:
    """Without what functions have captured of eager tensors: it is a constant."""
    return [place for place in places if tf.is_symbolic_tensor(place[0])]


def _before(tensor: Any, call: _Call | None) -> list[_Place] | None:
    """The tensors that decide, each with the call it lies in; None if this one comes from rows or is not known."""
    op = tensor.op
    if op.type == "Const" or op.type == "ReadVariableOp":
        return []
    if op.type == "Placeholder" or op.type in _CALLS:
        return _through(tensor, call)
    if not op.inputs or (op.op_def.is_stateful and op.type not in _READS):
        return None
    shape = op.inputs[0].op
    if shape.type == "Shape":
        measured = shape.inputs[0]
        picked = _picked(op, tensor.value_index, measured.shape.rank)
        if 0 not in picked and _all(_rows_first, [(measured, call)]):
            return []
    return [(each, call) for each in op.inputs if each.dtype != tf.resource]


def _rows_first(tensor: Any, call: _Call | None) -> list[_Place] | None:
    """The tensors that must have the rows as axis 0, and on no other, for this one to have them so; None if unknown."""
    op = tensor.op
    if op.type == "Placeholder" or op.type in _CALLS:
        outer = _through(tensor, call)
        return [] if outer is None and op.type == "Placeholder" else outer
    if op.type in ITERATORS:
        return []
    if op.type in _ELEMENTWISE:
        found = [(each, call) for each in op.inputs if _any_from_rows([(each, call)])]
        # Broadcasting moves the axes of what has fewer.
        return found if all(each.shape.rank == tensor.shape.rank is not None for each, _ in found) else None
    if op.type == "ResourceGather" and not op.get_attr("batch_dims"):
        return [(op.inputs[1], call)]
    if op.type == "GatherV2" and not op.get_attr("batch_dims") and tf.get_static_value(op.inputs[2]) == 0:
        return None if _any_from_rows([(op.inputs[0], call)]) else [(op.inputs[1], call)]
    if op.type == "OneHot" and op.get_attr("axis") == -1:
        return [(op.inputs[0], call)]
    if op.type == "ExpandDims":
        axis = tf.get_static_value(op.inputs[1])
        return (
            None
            if axis is None or tensor.shape.rank is None or axis % tensor.shape.rank == 0
            else [(op.inputs[0], call)]
        )
    if op.type == "StridedSlice":
        masks = [op.get_attr(f"{name}_mask") for name in ("new_axis", "shrink_axis", "ellipsis")]
        return None if any(mask & 1 for mask in masks) else [(op.inputs[0], call)]
    return None


def _through(tensor: Any, call: _Call | None) -> list[_Place] | None:
    """What a function's placeholder, or the output of a call, stands for; nothing for other tensors."""
    op = tensor.op
    if op.type in _CALLS:
        body = _body(op)
        return None if body is None else [(body.outputs[tensor.value_index], _Call(op, call))]
    if op.type != "Placeholder":
        return []
    if call is not None:
        places = [i for i, each in enumerate(_body(call.op).inputs) if each is tensor]
        return [(call.op.inputs[places[0]], call.around)] if places else None
    captured = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
    return [(captured[0], None)] if captured else None


def _body(op: Any) -> Any:
    function = op.graph._get_function(op.get_attr("f").name)
    return getattr(function, "graph", None)


def _picked(op: Any, output: int, rank: int | None) -> Sequence[int]:
    """Which dimensions an operation takes out of a shape; all that there may be where it is not known."""
    every = range(rank or 1)
    if op.type == "Unpack":
        return every[output : output + 1] if rank else every
    if op.type != "StridedSlice" or rank is None or op.get_attr("new_axis_mask") or op.get_attr("ellipsis_mask"):
        return every
    begin, end, stride = (tf.get_static_value(each) for each in op.inputs[1:4])
    if begin is None or end is None or stride is None or len(begin) != 1:
        return every
    if op.get_attr("shrink_axis_mask"):
        return [every[int(begin[0])]]
    first = None if op.get_attr("begin_mask") else int(begin[0])
    last = None if op.get_attr("end_mask") else int(end[0])
    return every[first : last : int(stride[0])]
