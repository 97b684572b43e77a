"""The rows of all ranks, within a step: what a function that looks across rows of the global batch needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import record

from ..._job import runtime
from ...keras import private
from . import plans
from .plans import operations, zero_variable

# Keras takes the logits of an output from the operation that makes it, where it finds one of these.
_ACTIVATIONS = {"Softmax": tf.nn.softmax, "Sigmoid": tf.nn.sigmoid}
# What the core carries.
# fmt: off
_KINDS = {
    tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8,
    tf.uint16, tf.uint32, tf.uint64,
}
# fmt: on


def gather_rows(
    what: str,
    parts: Sequence[tf.Tensor],
    fraction: tf.Tensor | None,
    empty: tf.Tensor | None,
    step_number: tf.Tensor | None,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    if plans.is_xla():
        raise NotImplementedError(
            f"the rows of all ranks of {what} are gathered, and XLA would have to know how many there are; compile the "
            "model with jit_compile=False"
        )
    attached = [(i, put, get(part)) for i, part in enumerate(parts) for get, put in _ATTACHED if get(part) is not None]
    known = {id(part) for part in parts}
    count, parts = len(parts), [*parts, *{id(each): each for *_, each in attached if id(each) not in known}.values()]
    context = runtime.context()
    no_row_limit = tf.constant(tf.int64.max)
    activations = [_activation_of(part) for part in parts]
    with plans.serialized(_turn(), tf.zeros([], tf.int64) if step_number is None else step_number) as (step, ended):
        counts, rows = operations().tarantella_gather(
            step,
            no_row_limit if empty is None else tf.where(empty, tf.zeros([], tf.int64), no_row_limit),
            tf.ones([], tf.float64) if fraction is None else fraction,
            [
                part if activation is None else part.op.inputs[0]
                for part, activation in zip(parts, activations, strict=True)
            ],
            context=context.number,
            ranks=context.size,
            what=what,
            replicated=fraction is not None,
        )
        ended.append(counts)
    counts.set_shape([len(parts), context.size])
    for each, part in zip(rows, parts, strict=True):
        each.set_shape([None, *part.shape[1:]])
    made = [
        each if activation is None else activation(each) for each, activation in zip(rows, activations, strict=True)
    ]
    made_of = {id(part): each for part, each in zip(parts, made, strict=True)}
    for i, put, each in attached:
        put(made[i], made_of[id(each)])
    return tf.unstack(counts)[:count], made[:count]


@functools.cache
def _turn() -> tf.Variable:
    return zero_variable()


def _activation_of(part: tf.Tensor) -> Any:
    return _ACTIVATIONS.get(part.op.type) if tf.is_symbolic_tensor(part) else None


# How to read what Keras attaches to tensors, and how to attach it. Where an operation shows the logits, it need not be.
_ATTACHED: tuple[tuple[Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (private.mask_of, private.set_mask),
    (lambda part: None if _activation_of(part) else private.logits_of(part), private.set_logits),
)


def why_not_gathered(part: Any) -> str:
    if isinstance(part, (tf.RaggedTensor, tf.SparseTensor)):
        return "is ragged or sparse"
    if not isinstance(part, (tf.Tensor, tf.Variable)) or part.dtype not in _KINDS:
        return "is no tensor of numbers"
    return "" if part.shape.rank else "has no axis of rows"


@tf.RegisterGradient("TarantellaGather")
def _of_gather(op: Any, *upstream: Any) -> list[Any]:
    """What all ranks have for this rank's rows, summed, or, where it is replicated, divided by this rank's fraction."""
    step, _, fraction, *parts = op.inputs
    counts, rank = op.outputs[0], runtime.get_rank()
    floats = [i for i, part in enumerate(parts) if part.dtype.is_floating]
    found = [tf.convert_to_tensor(upstream[1 + i]) for i in floats]
    # Where a tape differentiates this, what comes back is no longer replicated.
    replicated = op.get_attr("replicated") and not record.could_possibly_record()
    if not replicated:
        found = _sums(step, found, f"{tf.compat.as_str(op.get_attr('what'))}, gradient")
    gradients: list[Any] = [None] * len(parts)
    for i, each in zip(floats, found, strict=True):
        before, rows = tf.reduce_sum(counts[i, :rank]), counts[i, rank]
        own = each[before : before + rows]
        if replicated:
            own = tf.math.divide_no_nan(own, tf.cast(fraction, own.dtype))
        missing = tf.shape(parts[i], tf.int64)[0] - rows  # a padding row
        own = tf.pad(own, [[0, missing], *([0, 0] for _ in parts[i].shape[1:])])
        own.set_shape(parts[i].shape)
        gradients[i] = own
    return [None, None, None, *gradients]


@tf.RegisterGradient("TarantellaSumRows")
def _of_sum(op: Any, *upstream: Any) -> list[Any]:
    return [None, *_sums(op.inputs[0], list(upstream), tf.compat.as_str(op.get_attr("what")))]


def _sums(step: tf.Tensor, parts: list[Any], what: str) -> list[Any]:
    if not parts:
        return []
    context = runtime.context()
    with plans.serialized(_turn(), step) as (step, ended):
        sums = operations().tarantella_sum_rows(step, parts, context=context.number, ranks=context.size, what=what)
        ended += sums
    return list(sums)
