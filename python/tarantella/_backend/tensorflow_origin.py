"""Whether a tensor of a graph is computed from the rows of the batch, found by walking the graph backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Stateful in TensorFlow's eyes, but alike on all ranks if their inputs are.
_READS = ("ReadVariableOp", "ResourceGather")


class _Call(NamedTuple):
    """The call of a function inside of which a tensor lies."""

    op: Any
    around: Any  # the call that this one lies in, or None


def from_rows(tensor: tf.Tensor) -> bool:
    """Whether the values, or the number of rows, of the batch can change this tensor of a graph.

    Constants, variables and the other dimensions of the batch's shape cannot; axis 0 is taken for that of the rows.
    What cannot be told counts as computed from rows.
    """
    pending: list[tuple[Any, _Call | None]] = [(tensor, None)]
    seen: set[tuple[int, str, _Call | None]] = set()
    while pending:
        each, call = pending.pop()
        key = (id(each.graph), each.name, call)
        if key in seen:
            continue
        seen.add(key)
        before = _before(each, call)
        if before is None:
            return True
        # What a function has captured of an eager tensor is a constant.
        pending.extend(pair for pair in before if tf.is_symbolic_tensor(pair[0]))
    return False


def _before(tensor: Any, call: _Call | None) -> list[tuple[Any, _Call | None]] | None:
    """The tensors that decide, each with the call it lies in; None if this one comes from rows or is not known."""
    op = tensor.op
    if op.type == "Const" or op.type == "ReadVariableOp":
        return []
    if op.type == "Placeholder":
        return _passed(tensor, call)
    if op.type in _CALLS:
        body = _body(op)
        return None if body is None else [(body.outputs[tensor.value_index], _Call(op, call))]
    if not op.inputs or (op.op_def.is_stateful and op.type not in _READS):
        return None
    shape = op.inputs[0].op
    if shape.type == "Shape" and 0 not in _picked(op, tensor.value_index, shape.inputs[0].shape.rank):
        return []
    return [(each, call) for each in op.inputs if each.dtype != tf.resource]


def _passed(placeholder: Any, call: _Call | None) -> list[tuple[Any, _Call | None]] | None:
    """What a function's placeholder stands for."""
    if call is not None:
        places = [i for i, each in enumerate(_body(call.op).inputs) if each is placeholder]
        return [(call.op.inputs[places[0]], call.around)] if places else None
    captured = [outer for outer, inner in getattr(placeholder.graph, "captures", ()) if inner is placeholder]
    return [(captured[0], None)] if captured else None


def _body(op: Any) -> Any:
    function = op.graph._get_function(op.get_attr("f").name)
    return getattr(function, "graph", None)


def _picked(op: Any, output: int, rank: int | None) -> Sequence[int]:
    """Which dimensions an operation takes out of a shape; all that there may be where it is not known."""
    every = range(rank or 1)
    if op.type == "Unpack":
        return every[output : output + 1] if rank else every
    if op.type != "StridedSlice" or rank is None:
        return every
    begin, end, stride = (tf.get_static_value(each) for each in op.inputs[1:4])
    if begin is None or end is None or stride is None or len(begin) != 1:
        return every
    if op.get_attr("shrink_axis_mask"):
        return [every[int(begin[0])]]
    first = None if op.get_attr("begin_mask") else int(begin[0])
    last = None if op.get_attr("end_mask") else int(end[0])
    return every[first : last : int(stride[0])]
