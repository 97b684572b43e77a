"""Whether a tensor of a graph is computed from the rows of the batch, found by walking the graph backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .graphs import CALLS, Call, Place, all_before, symbolic, through

# What a batch comes out of where a function has its loop inside.
ITERATORS = ("IteratorGetNext", "OptionalGetValue")
# Stateful in TensorFlow's eyes, but alike on all ranks if their inputs are.
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
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


def from_rows(tensor: tf.Tensor, call: Call | None = None) -> bool:
    """Whether the values, or the number of rows, of the batch can change this tensor of a graph.

    Constants and variables cannot, nor other dimensions of a shape than that of the rows. A number of rows that
    TensorFlow knows is a constant: see `has_shape_of`. What cannot be told counts as computed from rows.
    """
    return not all_before(_before, [(tensor, call)])


def has_shape_of(tensor: tf.Tensor, rows: Sequence[int]) -> bool:
    """Whether an axis of these indices, before they were made flat, is as long as one of these numbers of rows.

    An axis of 1 that `expand_dims` has put there does not count.
    """
    places: list[Place] = [(tensor, None)]
    while places:
        each, call = places[0]
        op = each.op
        before = through(each, call)
        if op.type in ("Cast", "ExpandDims", "Identity"):
            before = [(op.inputs[0], call)]
        elif not before:
            if (each.shape.rank or 0) > 1 and any(length in rows for length in each.shape):
                return True
            before = [(op.inputs[0], call)] if op.type == "Reshape" else []
        places = symbolic(before)
    return False


def has_rows_first(tensor: tf.Tensor, call: Call | None = None) -> bool:
    """Whether it is certain that the first axis of a tensor is that of the batch's rows, and no other axis is."""
    return from_rows(tensor, call) and all_before(_rows_first, [(tensor, call)])


def _before(tensor: Any, call: Call | None) -> list[Place] | None:
    """The tensors that decide, each with the call it lies in; None if this one comes from rows or is not known."""
    op = tensor.op
    if op.type in ("Const", "ReadVariableOp", GATHER):
        return []
    if op.type == "Placeholder" or op.type in CALLS:
        return through(tensor, call)
    if not op.inputs or (op.op_def.is_stateful and op.type not in READS):
        return None
    shape = op.inputs[0].op
    if shape.type == "Shape":
        measured = shape.inputs[0]
        taken = picked(op, tensor.value_index, measured.shape.rank)
        if 0 not in taken and all_before(_rows_first, [(measured, call)]):
            return []
    return [(each, call) for each in op.inputs if each.dtype != tf.resource]


def _rows_first(tensor: Any, call: Call | None) -> list[Place] | None:
    """The tensors that must have the rows as axis 0, and on no other, for this one to have them so; None if unknown."""
    op = tensor.op
    if op.type == "Placeholder" or op.type in CALLS:
        outer = through(tensor, call)
        return [] if outer is None and op.type == "Placeholder" else outer
    if op.type in ITERATORS:
        return []
    if op.type in _ELEMENTWISE:
        found = [(each, call) for each in op.inputs if from_rows(each, call)]
        # Broadcasting moves the axes of what has fewer.
        return found if all(each.shape.rank == tensor.shape.rank is not None for each, _ in found) else None
    if op.type == "ResourceGather" and not op.get_attr("batch_dims"):
        return [(op.inputs[1], call)]
    if op.type == "GatherV2" and not op.get_attr("batch_dims") and tf.get_static_value(op.inputs[2]) == 0:
        return None if from_rows(op.inputs[0], call) else [(op.inputs[1], call)]
    if op.type in _OF_ROWS or (op.type == "MatMul" and not op.get_attr("transpose_a")):
        batched = op.type != "BatchMatMulV2" or (op.inputs[0].shape.rank or 0) > 2
        rest_alike = not any(from_rows(each, call) for each in op.inputs[1:]) or "Softmax" in op.type
        return [(op.inputs[0], call)] if batched and rest_alike and tensor.value_index == 0 else None
    if op.type in _REDUCTIONS:
        return None if reduces_first_axis(op) else [(op.inputs[0], call)]
    if op.type == "Reshape":
        before, after = op.inputs[0].shape, tensor.shape
        if before.rank and after.rank and before[1:].num_elements() == after[1:].num_elements() is not None:
            return [(op.inputs[0], call)]
        return None
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


def reduces_first_axis(op: Any) -> bool:
    """Whether an operation reduces the first axis of its input, or may do so."""
    if op.type not in _REDUCTIONS:
        return False
    axes, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape.rank
    return axes is None or rank is None or not all(int(axis) % rank for axis in np.atleast_1d(axes))


def picked(op: Any, output: int, rank: int | None) -> Sequence[int]:
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
