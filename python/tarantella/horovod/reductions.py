"""How values of the ranks are combined, and how they are shortened for the way."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import tensorflow as tf


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
    """The reduction that these arguments mean; the average by default.

    Raises ValueError for both arguments at once and for an unknown reduction, NotImplementedError for Adasum.
    """
    if op is not None and average is not None:
        raise ValueError("give op or average, not both: op=hvd.Average and op=hvd.Sum are average=True and False")
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
    """Shortens tensors for the way. User-defined ones have the same two functions."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """The received tensor as the one that was compressed."""
        return tensor


class _Cast(Compressor):
    dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return (tf.cast(tensor, cls.dtype) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tf.cast(tensor, context) if context.is_floating else tensor


class _Float16(_Cast):
    dtype = tf.float16


class _BFloat16(_Cast):
    dtype = tf.bfloat16


class Compression:
    """`none`, or `fp16`: floating-point values travel as float16. `bf16` is Tarantella's: as bfloat16."""

    none = Compressor
    fp16 = _Float16
    bf16 = _BFloat16
