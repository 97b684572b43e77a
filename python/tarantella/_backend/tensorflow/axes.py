"""What a single operation does with the axes of its inputs: which it keeps, reduces, or takes a part of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

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
