"""Reductions over ranks, and compression of the values that are sent."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import tensorflow as tf

__all__ = ["Adasum", "Average", "Compression", "Max", "Min", "Product", "Sum"]


class ReduceOp(enum.IntEnum):
    """Horovod's reductions, with its numbers."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


Average, Sum, Adasum = ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.ADASUM
Min, Max, Product = ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT


def chosen(op: Any, average: bool | None = None, among: tuple[ReduceOp, ...] = tuple(ReduceOp)) -> ReduceOp:
    """The reduction that these arguments select; by default the average.

    Raises ValueError for both arguments at once and for an unknown reduction, NotImplementedError for Adasum.
    """
    if op is not None and average is not None:
        raise ValueError("pass op or average, not both: op=hvd.Average and op=hvd.Sum are average=True and False")
    if average is not None:
        warnings.warn("average= is deprecated; use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise NotImplementedError(
            "Adasum is not offered; use op=hvd.Average, with a learning rate for the global batch"
        )
    if op not in among:
        names = ", ".join(f"hvd.{each.name.capitalize()}" for each in among if each is not Adasum)
        raise ValueError(f"op must be one of {names} (got {op!r})")
    return ReduceOp(op)


class Compressor:
    """Sends tensors as they are. User-defined compressors have the same two functions."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and the context for `decompress`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """Restores the type of the tensor before `compress`."""
        return tensor


class _Float16(Compressor):
    dtype = tf.float16

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return (tf.cast(tensor, cls.dtype) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tf.cast(tensor, context)


class _BFloat16(_Float16):
    dtype = tf.bfloat16


class Compression:
    """`none`; `fp16` sends floating-point values as float16; `bf16`, an addition to Horovod, as bfloat16."""

    none = Compressor
    fp16 = _Float16
    bf16 = _BFloat16
