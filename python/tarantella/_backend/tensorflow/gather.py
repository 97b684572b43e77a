"""The rows of all ranks, within a step: what a function that looks across rows of the global batch needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..._job import runtime
from . import xla
from .operations import operations


def gather_rows(
    what: str, parts: Sequence[tf.Tensor], alike: bool, empty: tf.Tensor | None, number: tf.Tensor | None
) -> list[tf.Tensor]:
    if xla.compiled():
        raise NotImplementedError(
            f"the rows of all ranks of {what} are gathered, and XLA would have to know how many there are; compile the "
            "model with jit_compile=False"
        )
    step = tf.zeros([], tf.int64) if number is None else number
    every = tf.constant(tf.int64.max)
    kept = every if empty is None else tf.where(empty, tf.zeros([], tf.int64), every)
    return list(_gather(step, kept, parts, what, alike)[1])


def _gather(step: tf.Tensor, kept: tf.Tensor, parts: Sequence[tf.Tensor], what: str, alike: bool) -> Any:
    context = runtime.context()
    counts, rows = operations().tarantella_gather(
        step, kept, parts, context=context.number, ranks=context.size, what=what, alike=alike
    )
    counts.set_shape([context.size])
    for each, part in zip(rows, parts, strict=True):
        each.set_shape([None, *part.shape[1:]])
    return counts, rows


@tf.RegisterGradient("TarantellaGather")
def _of_gather(op: Any, *upstream: Any) -> list[Any]:
    """What all ranks have for this rank's rows, summed, or, where it is alike, divided by this rank's share."""
    counts, what, rank = op.outputs[0], tf.compat.as_str(op.get_attr("what")), runtime.get_rank()
    before, rows = tf.reduce_sum(counts[:rank]), counts[rank]
    floats = [i for i, part in enumerate(op.inputs[2:]) if part.dtype.is_floating]
    found = [tf.convert_to_tensor(upstream[1 + i]) for i in floats]
    if op.get_attr("alike"):
        share = tf.cast(rows, tf.float64) / tf.cast(tf.reduce_sum(counts), tf.float64)
        found = [tf.math.divide_no_nan(each, tf.cast(share, each.dtype)) for each in found]
    else:
        found = _sums(op.inputs[0], found, f"{what}, gradient")
    gradients: list[Any] = [None] * len(op.inputs)
    for i, each in zip(floats, found, strict=True):
        part = op.inputs[2 + i]
        missing = tf.shape(part, tf.int64)[0] - rows  # a copied row
        own = tf.pad(each[before : before + rows], [[0, missing], *([0, 0] for _ in part.shape[1:])])
        own.set_shape(part.shape)
        gradients[2 + i] = own
    return gradients


@tf.RegisterGradient("TarantellaSumRows")
def _of_sum(op: Any, *upstream: Any) -> list[Any]:
    return [None, *_sums(op.inputs[0], list(upstream), tf.compat.as_str(op.get_attr("what")))]


def _sums(step: tf.Tensor, parts: list[Any], what: str) -> list[Any]:
    if not parts:
        return []
    context = runtime.context()
    return list(operations().tarantella_sum_rows(step, parts, context=context.number, ranks=context.size, what=what))
