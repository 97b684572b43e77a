"""What gradients, and targets of tapes, are computed from: sums over the ranks, random numbers, a rank's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..gradients import Upstream
from . import origin
from .graphs import Call, Place, all_before, body, functions, symbolic, through

# The name of the functions that exchange slices between ranks.
SLICES = "tarantella_slices"
_RANDOM = ("Random", "TruncatedNormal", "Multinomial", "StandardNormal", "StatefulUniform", "Binomial", "Shuffle")
_VARIABLES = ("ReadVariableOp", "ResourceGather", "VarIsInitializedOp")
# Stateful in TensorFlow's eyes; they return what they are given.
_PASS = ("CheckNumerics", "CheckNumericsV2", "Print", "PrintV2")


def upstream_of(gradient: Any) -> Upstream | None:
    """A variable that a rank has for itself is taken for alike: comparing weights finds it."""
    parts = [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
    if tf.executing_eagerly():
        return None
    found = _found_before([(each, None) for each in parts])
    return Upstream(*(name in found for name in Upstream._fields))


def _found_before(places: list[Place]) -> set[str]:
    """The fields of `Upstream` that are true."""
    found: set[str] = set()

    def before(tensor: Any, call: Call | None) -> list[Place]:
        kind, more = _before(tensor, call)
        found.add(kind)
        return more

    all_before(before, places)
    return found


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
    if op.type in ("Const", "ReadVariableOp", "VarIsInitializedOp"):
        return "", []
    places = through(tensor, call, control_flow=True)
    if places:
        return "", places
    inputs = [(each, call) for each in op.inputs if each.dtype != tf.resource]
    if any(part in op.type for part in _RANDOM):
        return "" if _has_constant_seed(op) else "random", inputs
    if op.type in ("Shape", "Size") and op.inputs[0].shape.is_fully_defined():
        return "", []
    if op.type in origin.ITERATORS or not op.inputs or (op.op_def.is_stateful and op.type not in (*_VARIABLES, *_PASS)):
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
    return 0 not in origin.picked(tensor.op, tensor.value_index, shape.inputs[0].shape.rank)


def has_rows(target: Any, rows: Sequence[int]) -> bool:
    """Whether a target has a value for each row of the batch, or of what is made of them, whose sum is to be computed.

    Not where the values are divided by their number: then the sum is a mean. `rows` are the numbers of rows that
    TensorFlow knows. Eagerly, where the length of the axis must tell, a vector of as many values as there are rows is
    taken for one of rows.
    """
    if not target.shape.rank:
        return False
    if not tf.is_symbolic_tensor(target):
        return target.shape[0] in rows
    if target.shape[0] not in (None, *rows):
        return False
    op, scalars = target.op, []
    while op.type in _ARITHMETIC:
        scalars += [each for each in op.inputs if each.shape.rank == 0]
        op = max(op.inputs, key=lambda each: -1 if each.shape.rank is None else each.shape.rank).op
    is_stack = target.shape[0] is not None and (op.type == "Pack" or (op.type == "ConcatV2" and len(op.inputs) > 3))
    return not is_stack and not any(_counts_rows(each, rows) for each in scalars)


_ARITHMETIC = ("Identity", "Neg", "Mul", "RealDiv", "DivNoNan", "AddV2", "Sub")


def _counts_rows(tensor: Any, rows: Sequence[int]) -> bool:
    """Whether a number is that of the rows, or computed from it."""
    pending = [tensor]
    while pending:
        each = pending.pop()
        op = each.op
        if op.type in ("Shape", "Size"):
            return True
        value = tf.get_static_value(each)
        if value is not None and np.ndim(value) == 0 and float(value) in rows:
            return True
        if op.type in ("Cast", "StridedSlice", "Reciprocal", "Prod", *_ARITHMETIC):
            pending += list(op.inputs)
    return False


def is_of_one_row(target: Any) -> bool:
    """Whether each way from the rows of the batch to a target leads through a single row, as far as graphs show."""
    if not tf.is_symbolic_tensor(target):
        return False
    picked: set[Any] = set()

    def before(tensor: Any, call: Call | None) -> list[Place] | None:
        if _picks_one_row(tensor, call):
            picked.add(_which(tensor))
            return []
        if tensor.op.type in ("Shape", "Size"):
            return []
        kind, places = _before(tensor, call)
        return None if kind == "own" else places

    return all_before(before, [(target, None)]) and len(picked) == 1


def _picks_one_row(tensor: Any, call: Call | None) -> bool:
    op = tensor.op
    if op.type == "Unpack":
        return op.get_attr("axis") == 0 and origin.has_rows_first(op.inputs[0], call)
    if op.type == "StridedSlice":
        return _is_one_long(op) and origin.has_rows_first(op.inputs[0], call)
    if op.type in ("GatherV2", "Gather"):
        return op.inputs[1].shape.rank == 0 and origin.has_rows_first(op.inputs[0], call)
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
    begin, end = (tf.get_static_value(each) for each in op.inputs[1:3])
    if begin is None or end is None or (op.get_attr("begin_mask") | op.get_attr("end_mask")) & 1:
        return False
    return bool(end[0] - begin[0] == 1)


def _no_list_of_rows(tensor: Any, call: Call | None) -> list[Place] | None:
    op = tensor.op
    if op.type == "TensorListFromTensor":
        return None if origin.has_rows_first(op.inputs[0], call) else []
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
    pending: list[tuple[Any, Call | None]] = [(tf.compat.v1.get_default_graph(), None)]
    while pending:
        graph, around = pending.pop()
        for op in graph.get_operations():
            inside = [one for one in functions(op, around) if body(one) is not None]
            pending += [(body(one), one) for one in inside]
            turns = [one for one in inside if one.attribute == "cond"]
            if turns and any(_sums(body(one)) for one in inside):
                found += [op.name] if "own" in _found_before([(body(turns[0]).outputs[0], turns[0])]) else []
    return found


def _sums(graph: Any) -> bool:
    inside = [body(one) for op in graph.get_operations() for one in functions(op, None)]
    return any(is_sum(op) for op in graph.get_operations()) or any(_sums(one) for one in inside if one is not None)
