"""Reading graphs: walks backwards, through functions, branches and loops; what an operation does with axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_IFS, _CASES, _LOOPS = ("If", "StatelessIf"), ("Case", "StatelessCase"), ("While", "StatelessWhile")
BRANCHES = (*_IFS, *_CASES)
# The attributes that name the functions of an operation.
_FUNCTIONS = {
    **dict.fromkeys(CALLS, ("f",)),
    **dict.fromkeys(_IFS, ("then_branch", "else_branch")),
    **dict.fromkeys(_LOOPS, ("cond", "body")),
}


class FunctionCall(NamedTuple):
    """What runs a function, inside of which a tensor lies: an operation, and which of its functions it is."""

    op: Any
    around: FunctionCall | None  # what runs the function that the operation lies in, or None
    attribute: str = "f"
    branch: int = 0  # in a list of functions


# A tensor, and what runs the function it lies in: None in the graph that is traced, or in one around it.
TensorInCall = tuple[Any, FunctionCall | None]
# What leads to a tensor; None where the walk shall end.
Predecessors = Callable[[Any, FunctionCall | None], list[TensorInCall] | None]


def walk_completes(step: Predecessors, pending: list[TensorInCall]) -> bool:
    """Whether no tensor on the way back from the pending ones gives None."""
    seen: set[tuple[int, str, FunctionCall | None]] = set()
    pending = symbolic(pending)
    while pending:
        each, call = pending.pop()
        key = (id(each.graph), each.name, call)
        if key in seen:
            continue
        seen.add(key)
        before = step(each, call)
        if before is None:
            return False
        pending.extend(symbolic(before))
    return True


def symbolic(places: Iterable[TensorInCall]) -> list[TensorInCall]:
    """Without what functions have captured of eager tensors: it is a constant."""
    return [place for place in places if tf.is_symbolic_tensor(place[0])]


def resolved(tensor: Any, call: FunctionCall | None, control_flow: bool = False) -> list[TensorInCall] | None:
    """What a function's placeholder, or one of several outputs of an operation, stands for; nothing for other tensors.

    With `control_flow` also the outputs of conditions and loops, with what decides which branch or turn gives them.
    None where that is not known.
    """
    op = tensor.op
    if op.type in CALLS:
        inside = FunctionCall(op, call)
        return None if body(inside) is None else [(body(inside).outputs[tensor.value_index], inside)]
    if control_flow and op.type in BRANCHES:
        each = functions(op, call)
        return [(op.inputs[0], call), *((body(one).outputs[tensor.value_index], one) for one in each)]
    if control_flow and op.type in _LOOPS:
        condition, turn = functions(op, call)
        return [
            (op.inputs[tensor.value_index], call),
            (body(turn).outputs[tensor.value_index], turn),
            (body(condition).outputs[0], condition),
        ]
    if op.type == "IdentityN":  # of a custom gradient
        return [(op.inputs[tensor.value_index], call)]
    if op.type != "Placeholder":
        return []
    return _of_placeholder(tensor, call)


def operations(graph: Any, call: FunctionCall | None = None) -> Iterator[tuple[Any, FunctionCall | None]]:
    """Those of a graph and of the functions that it runs, each with what runs it."""
    for op in graph.get_operations():
        yield op, call
        for inside in functions(op, call):
            if body(inside) is not None:
                yield from operations(body(inside), inside)


def graphs_within(graph: Any) -> list[Any]:
    """A graph and those of the functions that it runs, each once."""
    found: dict[int, Any] = {}
    waiting = [graph]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            inside = [body(call) for op in each.get_operations() for call in functions(op, None)]
            waiting += [one for one in inside if one is not None]
    return list(found.values())


def body(call: FunctionCall) -> Any:
    """The graph of the function that runs; None where TensorFlow does not show it."""
    found = call.op.get_attr(call.attribute)
    name = (found[call.branch] if isinstance(found, list) else found).name
    return getattr(call.op.graph._get_function(name), "graph", None)


def functions(op: Any, around: FunctionCall | None) -> list[FunctionCall]:
    if op.type in _CASES:
        return [FunctionCall(op, around, "branches", i) for i in range(len(op.get_attr("branches")))]
    return [FunctionCall(op, around, attribute) for attribute in _FUNCTIONS.get(op.type, ())]


def _of_placeholder(tensor: Any, call: FunctionCall | None) -> list[TensorInCall] | None:
    if call is None:
        captured = [outer for outer, inner in getattr(tensor.graph, "captures", ()) if inner is tensor]
        return [(captured[0], None)] if captured else None
    places = [i for i, each in enumerate(body(call).inputs) if each is tensor]
    if not places:
        return None
    inputs = call.op.inputs[1:] if call.op.type in BRANCHES else call.op.inputs
    found = [(inputs[places[0]], call.around)]
    if call.op.type in _LOOPS:  # what a turn gives is the next one's input
        turn = call._replace(attribute="body")
        found.append((body(turn).outputs[places[0]], turn))
    return found


# fmt: off
# The output has the axes of the inputs.
ELEMENTWISE = {
    "Identity", "Cast", "StopGradient", "ZerosLike", "OnesLike", "CheckNumerics", "Neg", "Abs", "Sign", "Round",
    "Floor", "Square", "Sqrt", "Rsqrt", "Exp", "Expm1", "Log", "Log1p", "Sin", "Cos", "Erf", "Tanh", "Sigmoid",
    "Softmax", "LogSoftmax", "Softplus", "Softsign", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu",
    "LogicalNot", "LogicalAnd", "LogicalOr", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual",
    "AddV2", "Sub", "Mul", "RealDiv", "FloorMod", "Maximum", "Minimum", "Pow", "SquaredDifference", "SelectV2",
    "BiasAdd",
}
# Rows are the first axis of the first input and of the first output, if all ranks have the other inputs alike.
WITH_WEIGHTS = {
    "MatMul", "BatchMatMulV2", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "MaxPool3D", "AvgPool",
    "AvgPool3D", "FusedBatchNormV3",
}
# fmt: on
_LOSSES = ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any")
_LONG = 2**40  # an axis of any length


def keeps_first_axis(tensor: Any) -> bool:
    """Whether the first axis is certainly that of the operation's first input, and no other axis is."""
    op = tensor.op
    if op.type in _REDUCTIONS:
        return not reduces_first_axis(op)
    if op.type == "Reshape":
        before, after = op.inputs[0].shape, tensor.shape
        has_axes = bool(before.rank and after.rank)
        return has_axes and before[1:].num_elements() == after[1:].num_elements() is not None
    if op.type == "OneHot":
        return bool(op.get_attr("axis") == -1)
    if op.type == "ExpandDims":
        axis, rank = tf.get_static_value(op.inputs[1]), tensor.shape.rank
        return axis is not None and rank is not None and bool(axis % rank)
    if op.type == "StridedSlice":
        return not _masks_first(op, "new_axis", "shrink_axis", "ellipsis")
    if op.type == "MatMul":
        return not op.get_attr("transpose_a")
    if op.type == "BatchMatMulV2":
        return (op.inputs[0].shape.rank or 0) > 2
    return (op.type in WITH_WEIGHTS or op.type in _LOSSES) and tensor.value_index == 0


def reduces_first_axis(op: Any) -> bool:
    """Whether an operation reduces the first axis of its input, or may do so."""
    if op.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return axes is None or rank is None or not all(int(axis) % rank for axis in np.atleast_1d(axes))


def takes_one(op: Any) -> bool:
    """Whether an operation takes one place of the first axis of its input, however long that axis is."""
    if op.type == "Unpack":
        return bool(op.get_attr("axis") == 0)
    if op.type == "GatherV2":
        return op.inputs[1].shape.num_elements() == 1 and tf.get_static_value(op.inputs[2]) == 0
    if op.type == "Slice":
        size = tf.get_static_value(op.inputs[2])
        return size is not None and bool(size[0] == 1)
    if op.type != "StridedSlice" or _masks_first(op, "new_axis", "ellipsis"):
        return False
    return _masks_first(op, "shrink_axis") or len(_sliced(op, _LONG) or ()) == 1


def is_length_of_another_axis(tensor: Any) -> bool:
    """Whether it is a part of a shape without the first axis, which may be that of the rows."""
    shape = tensor.op.inputs[0].op
    if shape.type != "Shape":
        return False
    measured = shape.inputs[0]
    while measured.op.type in ELEMENTWISE and len(measured.op.inputs) == 1:
        measured = measured.op.inputs[0]
    axes = _picked(tensor, measured.shape.rank)
    if measured.op.type == "Transpose":
        order = tf.get_static_value(measured.op.inputs[1])
        axes = [0] if order is None else [int(order[axis]) for axis in axes]
    return 0 not in axes


def _picked(tensor: Any, rank: int | None) -> Sequence[int]:
    """The axes whose lengths an operation picks from a shape; all that there may be where it does not show them."""
    if rank and tensor.op.type == "Unpack":
        return [tensor.value_index]
    found = _sliced(tensor.op, rank) if rank and tensor.op.type == "StridedSlice" else None
    return range(rank or 1) if found is None else found


def _sliced(op: Any, length: int) -> Sequence[int] | None:
    """The places that a StridedSlice takes of a first axis of this length; None if it does not show them."""
    begin, end, stride = (tf.get_static_value(each) for each in op.inputs[1:4])
    if begin is None or end is None or stride is None or not len(begin) or _masks_first(op, "new_axis", "ellipsis"):
        return None
    if _masks_first(op, "shrink_axis"):
        return [range(length)[int(begin[0])]]
    first = None if _masks_first(op, "begin") else int(begin[0])
    last = None if _masks_first(op, "end") else int(end[0])
    return range(length)[first : last : int(stride[0])]


def _masks_first(op: Any, *names: str) -> bool:
    """Whether one of these masks of a StridedSlice has the first of the dimensions that it is given."""
    return any(op.get_attr(f"{name}_mask") & 1 for name in names)
