"""What gradients, their indices, and targets of tapes come from: sums over the ranks, random numbers, own rows."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .graphs import BRANCHES, CALLS, Call, Place, all_before, body, functions, operations, symbolic, through

# The name of the functions that exchange slices between ranks.
SLICES = "tarantella_slices"
_RANDOM = (
    "Random",
    "TruncatedNormal",
    "Multinomial",
    "StandardNormal",
    "StatefulUniform",
    "Binomial",
    "Shuffle",
    "Rng",
)
# What a batch comes out of where a function has its loop inside.
ITERATORS = ("IteratorGetNext", "OptionalGetValue")
# Stateful in TensorFlow's eyes, but alike on all ranks if their inputs are.
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
_PASS = (*READS, "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2")
# Rows of all ranks, which all ranks have alike.
GATHER = "TarantellaGather"
# What they make has the axes of its inputs.
# fmt: off
_ELEMENTWISE = {
    "Identity", "Cast", "StopGradient", "ZerosLike", "OnesLike", "Neg", "Relu", "Tanh", "Sigmoid", "Softmax",
    "LogicalNot", "LogicalAnd", "LogicalOr", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual",
    "AddV2", "Sub", "Mul", "RealDiv", "FloorMod", "Maximum", "Minimum", "SelectV2", "BiasAdd",
}

_UNARY = {
    "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Expm1", "Abs", "Sign", "Elu", "Selu", "Softplus", "Softsign",
    "LogSoftmax", "LeakyRelu", "Relu6", "Erf", "Sin", "Cos", "Round", "Floor", "CheckNumerics",
}
# With the rows on the first axis of the first input, and of the first output.
_OF_ROWS = {
    "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D",
    "FusedBatchNormV3", "SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "BatchMatMulV2",
}
# fmt: on
_ELEMENTWISE |= _UNARY | {"SquaredDifference", "Pow"}
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any")


class Upstream(NamedTuple):
    """What a gradient is computed from. Constants, variables and sums over the ranks are alike on all ranks."""

    sums: bool  # sums over the ranks
    random: bool  # random numbers
    own: bool  # this rank's rows, or what cannot be told


def upstream_of(gradient: Any) -> Upstream | None:
    """A variable that a rank has for itself is taken for alike: comparing weights finds it."""
    parts = [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
    if tf.executing_eagerly():
        return None
    found = _found_before([(each, None) for each in parts])
    return Upstream(*(name in found for name in Upstream._fields))


def is_from_own_rows(places: list[Place]) -> bool:
    """Whether any of these is computed from this rank's rows, or from what cannot be told, but by sums over ranks."""

    def before(tensor: Any, call: Call | None) -> list[Place] | None:
        kind, more = _before(tensor, call)
        return None if kind == "own" else more

    return not all_before(before, places)


def differs_between_ranks(places: list[Place]) -> bool:
    """As `is_from_own_rows`, or from random numbers, of which each rank draws others."""
    return not _found_before(places).isdisjoint(("own", "random"))


def _found_before(places: list[Place]) -> set[str]:
    """The fields of `Upstream` that are true."""
    found: set[str] = set()

    def before(tensor: Any, call: Call | None) -> list[Place]:
        kind, more = _before(tensor, call)
        found.add(kind)
        return more

    all_before(before, places)
    return found


# By graph: the variables whose gradients its own code sums.
_summed: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()


def note_summed(variables: set[int]) -> None:
    _summed.setdefault(tf.compat.v1.get_default_graph(), set()).update(variables)


def summed_in_trace() -> set[int]:
    found: set[int] = set()
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    while graph is not None:
        found |= summed_in(graph)
        graph = getattr(graph, "outer_graph", None)
    return found


def summed_in(graph: Any) -> set[int]:
    """What was noted in a graph and in the functions that it calls."""
    return set().union(*(_summed.get(each, ()) for each in _with_functions(graph)))


def _with_functions(graph: Any) -> Iterator[Any]:
    """A graph, and those of the functions that it calls."""
    pending, seen = [graph], set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [body(one) for op in each.get_operations() for one in functions(op, None)]


def is_sum(op: Any) -> bool:
    """Whether an operation sums over the ranks."""
    if op.type == "XlaCustomCallV2":
        return bool(op.get_attr("call_target_name") == b"tarantella_allreduce")
    return op.type == "TarantellaAllreduce" or (op.type == "PyFunc" and op.name.split("/")[-1].startswith(SLICES))


def _before(tensor: Any, call: Call | None) -> tuple[str, list[Place]]:
    """Which of the fields of `Upstream` this tensor makes true, if any, and what else it is computed from."""
    op = tensor.op
    if is_sum(op):
        return "sums", []
    if op.type in ("Const", GATHER):
        return "", []
    places = through(tensor, call, control_flow=True)
    if places:
        return "", places
    inputs = [(each, call) for each in op.inputs if each.dtype != tf.resource]
    if any(part in op.type for part in _RANDOM):
        return "" if _has_constant_seed(op) else "random", inputs
    if op.type in ("Shape", "Size") and op.inputs[0].shape.is_fully_defined():
        return "", []
    if op.type in ITERATORS or not op.inputs or (op.op_def.is_stateful and op.type not in _PASS):
        return "own", []
    if _is_length_of_another_axis(tensor):
        return "", []
    return "", inputs


def _has_constant_seed(op: Any) -> bool:
    if not op.type.startswith("Stateless"):
        return False
    seeds = op.inputs[:1] if op.type.startswith("StatelessRandomGet") else op.inputs[1:2]
    seeds = [each.op.inputs[0] if each.op.type == "StatelessRandomGetKeyCounter" else each for each in seeds]
    return all(tf.get_static_value(each) is not None for each in seeds)


def _is_length_of_another_axis(tensor: Any) -> bool:
    """Whether it is a part of a shape that does not have the first axis, which may be that of the rows."""
    shape = tensor.op.inputs[0].op
    if shape.type != "Shape":
        return False
    measured = shape.inputs[0]
    while measured.op.type in _ELEMENTWISE and len(measured.op.inputs) == 1:
        measured = measured.op.inputs[0]
    axes = _picked(tensor.op, tensor.value_index, measured.shape.rank)
    if measured.op.type == "Transpose":
        order = tf.get_static_value(measured.op.inputs[1])
        axes = [0] if order is None else [int(order[axis]) for axis in axes]
    return 0 not in axes


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


def has_rows(target: Any, seed: Any, rows: Sequence[int]) -> bool:
    """Whether a target has a value for each row of the batch, or of what is made of them, whose sum is to be computed.

    Not where the values, or those of `seed`, which they are multiplied by, are divided by their number: then the sum is
    a mean. `rows` are the numbers of rows that TensorFlow knows. Eagerly, where the length of the axis must tell, a
    vector of as many values as there are rows is taken for one of rows.
    """
    if not isinstance(target, (tf.Tensor, tf.Variable)) or not target.shape.rank:
        return False
    if not tf.is_symbolic_tensor(target):
        return target.shape[0] in rows
    if target.shape[0] not in (None, *rows) or _is_of_all_rows(target):
        return False
    seeds = [seed] if seed is not None and tf.is_symbolic_tensor(seed) else []
    return not any(_is_mean(each, rows) for each in (target, *seeds))


def _is_of_all_rows(target: Any) -> bool:
    """Whether a target is computed from the rows of all ranks, and its first axis is not that of this rank's rows."""

    def before(tensor: Any, call: Call | None) -> list[Place] | None:
        return None if tensor.op.type == GATHER else _before(tensor, call)[1]

    return not (all_before(before, [(target, None)]) or has_rows_first(target))


def has_rows_first(tensor: tf.Tensor, call: Call | None = None) -> bool:
    """Whether it is certain that the first axis of a tensor is that of the batch's rows, and no other axis is."""
    return is_from_own_rows([(tensor, call)]) and all_before(_rows_first, [(tensor, call)])


def _rows_first(tensor: Any, call: Call | None) -> list[Place] | None:
    """The tensors that must have the rows as axis 0, and on no other, for this one to have them so; None if unknown."""
    op = tensor.op
    if op.type == "Placeholder" or op.type in CALLS:
        outer = through(tensor, call)
        return [] if outer is None and op.type == "Placeholder" else outer
    if op.type in ITERATORS:
        return []
    if op.type in _ELEMENTWISE:
        found = [(each, call) for each in op.inputs if is_from_own_rows([(each, call)])]
        # Broadcasting moves the axes of what has fewer.
        return found if all(each.shape.rank == tensor.shape.rank is not None for each, _ in found) else None
    if op.type == "ResourceGather" and not op.get_attr("batch_dims"):
        return [(op.inputs[1], call)]
    if op.type == "GatherV2" and not op.get_attr("batch_dims") and tf.get_static_value(op.inputs[2]) == 0:
        return None if is_from_own_rows([(op.inputs[0], call)]) else [(op.inputs[1], call)]
    if op.type in _OF_ROWS or (op.type == "MatMul" and not op.get_attr("transpose_a")):
        batched = op.type != "BatchMatMulV2" or (op.inputs[0].shape.rank or 0) > 2
        rest_alike = not any(is_from_own_rows([(each, call)]) for each in op.inputs[1:]) or "Softmax" in op.type
        return [(op.inputs[0], call)] if batched and rest_alike and tensor.value_index == 0 else None
    if op.type in _REDUCTIONS:
        return None if _reduces_first_axis(op) else [(op.inputs[0], call)]
    if op.type == "Reshape":
        before, after = op.inputs[0].shape, tensor.shape
        if before.rank and after.rank and before[1:].num_elements() == after[1:].num_elements() is not None:
            return [(op.inputs[0], call)]
        return None
    if op.type == "OneHot" and op.get_attr("axis") == -1:
        return [(op.inputs[0], call)]
    if op.type == "ExpandDims":
        axis, rank = tf.get_static_value(op.inputs[1]), tensor.shape.rank
        return [(op.inputs[0], call)] if axis is not None and rank is not None and axis % rank else None
    if op.type == "StridedSlice":
        masks = [op.get_attr(f"{name}_mask") for name in ("new_axis", "shrink_axis", "ellipsis")]
        return None if any(mask & 1 for mask in masks) else [(op.inputs[0], call)]
    return None


def _reduces_first_axis(op: Any) -> bool:
    """Whether an operation reduces the first axis of its input, or may do so."""
    if op.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return axes is None or rank is None or not all(int(axis) % rank for axis in np.atleast_1d(axes))


_SCALING = ("Mul", "RealDiv", "DivNoNan", "Pow", "Fill")
_ARITHMETIC = (
    *_SCALING,
    "Identity",
    "StopGradient",
    "Neg",
    "AddV2",
    "Sub",
    "Cast",
    "Reshape",
    "Squeeze",
    "Maximum",
    "Minimum",
)


def _is_mean(tensor: Any, rows: Sequence[int]) -> bool:
    """Whether the sum of values is a mean: arithmetic divides them by their number, or they are no values of rows."""
    pending: list[Place] = [(tensor, None)]
    while pending:
        each, call = pending.pop()
        op = each.op
        is_scaled = op.type in _SCALING and any(_counts_rows(i, rows) for i in op.inputs if i.shape.rank == 0)
        if is_scaled or _is_stack(each) or _reduces_first_axis(op) or (op.type == "Softmax" and _rank(each) == 1):
            return True
        if op.type in BRANCHES:
            pending += symbolic(through(each, call, control_flow=True) or [])[1:]
        elif op.type not in _ARITHMETIC:
            before = symbolic(through(each, call) or [])
            pending += before if len(before) == 1 else []
        elif op.type != "Fill":
            longest = max(_rank(i) for i in op.inputs)
            most = [(i, call) for i in op.inputs if _rank(i) == longest]
            pending += most if op.type in _SCALING else most[:1]
    return False


def _rank(tensor: Any) -> int:
    return -1 if tensor.shape.rank is None else int(tensor.shape.rank)


def _is_stack(tensor: Any) -> bool:
    op = tensor.op
    is_long = _rank(tensor) > 0 and tensor.shape[0] is not None
    return is_long and (op.type == "Pack" or (op.type == "ConcatV2" and len(op.inputs) > 3))


def _counts_rows(tensor: Any, rows: Sequence[int]) -> bool:
    """Whether a number is that of the rows, of the valid ones among them, or computed from it."""

    def before(each: Any, call: Call | None) -> list[Place] | None:
        op, value = each.op, tf.get_static_value(each)
        is_sum_of_rows = op.type == "Sum" and differs_between_ranks([(each, call)]) and not _is_of_variables(each, call)
        if is_sum_of_rows or op.type in ("Shape", "Size", "OnesLike"):
            return None
        if value is not None and ((np.ndim(value) and len(value) in rows) or np.isin(np.ravel(value)[:8], rows).any()):
            return None  # of a known shape, too
        if op.type in _ARITHMETIC or op.type in ("Reciprocal", "Prod", "Sum", "Pack"):
            return [(each, call) for each in op.inputs]
        return [(op.inputs[0], call)] if op.type == "StridedSlice" else through(each, call) or []

    return not all_before(before, [(tensor, None)])


def is_of_one_row(target: Any) -> bool:
    """Whether each way from the rows of the batch to a target leads through a single row, as far as graphs show."""
    if not tf.is_symbolic_tensor(target):
        return False
    picked: set[Any] = set()

    def before(tensor: Any, call: Call | None) -> list[Place] | None:
        if _picks_one_row(tensor, call):
            if tensor.shape.rank == 0 and not _is_of_variables(tensor, call):
                return []  # a coefficient
            if _is_in_loop(call) and isinstance(_which(tensor), str):
                return None  # another row in each turn
            picked.add(_which(tensor))
            return []
        if tensor.op.type in ("Shape", "Size", "ZerosLike", "OnesLike"):
            return []
        kind, places = _before(tensor, call)
        return None if kind == "own" else places

    return all_before(before, [(target, None)]) and len(picked) == 1


def _is_of_variables(tensor: Any, call: Call | None) -> bool:
    def before(each: Any, call: Call | None) -> list[Place] | None:
        if each.op.type in ("Shape", "Size"):  # of what is computed from variables, too
            return []
        return None if each.op.type in READS else _before(each, call)[1]

    return not all_before(before, [(tensor, call)])


def _is_in_loop(call: Call | None) -> bool:
    return call is not None and (call.attribute == "body" or _is_in_loop(call.around))


def _picks_one_row(tensor: Any, call: Call | None) -> bool:
    op = tensor.op
    if op.type == "Unpack":
        return op.get_attr("axis") == 0 and has_rows_first(op.inputs[0], call)
    if op.type == "StridedSlice":
        return _is_one_long(op) and has_rows_first(op.inputs[0], call)
    if op.type == "GatherV2":
        is_one = op.inputs[1].shape.num_elements() == 1 and tf.get_static_value(op.inputs[2]) == 0
        return is_one and has_rows_first(op.inputs[0], call)
    if op.type == "Slice":
        size = tf.get_static_value(op.inputs[2])
        return size is not None and size[0] == 1 and has_rows_first(op.inputs[0], call)
    if op.type == "TensorListGetItem":
        return not all_before(_no_list_of_rows, [(op.inputs[0], call)])
    return False


def _which(tensor: Any) -> Any:
    """The number of the row that is picked, or the name of the tensor that is this number."""
    if tensor.op.type == "Unpack":
        return int(tensor.value_index)
    index = tensor.op.inputs[1]
    value = tf.get_static_value(index)
    return index.name if value is None else int(np.ravel(value)[0])


def _is_one_long(op: Any) -> bool:
    if op.get_attr("new_axis_mask") & 1 or op.get_attr("ellipsis_mask") & 1:
        return False
    if op.get_attr("shrink_axis_mask") & 1:
        return True
    begin, end, stride = (tf.get_static_value(each) for each in op.inputs[1:4])
    if begin is None or end is None or stride is None:
        return False
    first = begin[0] if not op.get_attr("begin_mask") & 1 else 0 if stride[0] > 0 else -1
    if op.get_attr("end_mask") & 1:
        return bool(first == (-1 if stride[0] > 0 else 0))
    return bool(0 < (end[0] - first) * np.sign(stride[0]) <= abs(stride[0]))


def _no_list_of_rows(tensor: Any, call: Call | None) -> list[Place] | None:
    op = tensor.op
    if op.type == "TensorListFromTensor":
        return None if has_rows_first(op.inputs[0], call) else []
    return through(tensor, call, control_flow=True)


def are_unique(indices: Any) -> bool:
    """Whether indices come out of `tf.unique`, as with sparse inputs; Keras counts negative ones from the end."""
    places: list[Place] = [(indices, None)]
    while places:
        tensor, call = places[0]
        op = tensor.op
        if op.type in ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"):
            return bool(tensor.value_index == 0)
        passes = {"Identity": 0, "Cast": 0, "Reshape": 0, "SelectV2": 2}.get(op.type)
        places = symbolic((through(tensor, call) or []) if passes is None else [(op.inputs[passes], call)])
    return False


def loops_over_rows() -> list[str]:
    found: list[str] = []
    for op, around in operations(tf.compat.v1.get_default_graph()):
        inside = [one for one in functions(op, around) if body(one) is not None]
        turns = [one for one in inside if one.attribute == "cond"]
        if turns and any(_sums(body(one)) for one in inside):
            found += [op.name] if is_from_own_rows([(body(turns[0]).outputs[0], turns[0])]) else []
    return found


def _sums(graph: Any) -> bool:
    return any(is_sum(op) for each in _with_functions(graph) for op in each.get_operations())
