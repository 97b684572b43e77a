"""What only TensorFlow knows: reducing gradients in graphs and eagerly, seeds, undoing a step."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager_context

from .. import _log, _runtime
from .._environment import integer
from .._names import name_of

# KB of gradients that are reduced together; TNT_FUSION_THRESHOLD overrides it, 0 switches fusion off.
DEFAULT_FUSION_THRESHOLD = 1024

_WIRE_DTYPES = (tf.float32, tf.float64, tf.int32, tf.int64)


class Plan(NamedTuple):
    """A plan of the core, as graphs use it."""

    number: int
    buckets: list[int]  # of each tensor
    anchor: tf.Variable  # what an operation reads so that it is never taken for a constant


# By optimizer: the plans of the sets of variables that it was applied to.
_plans: weakref.WeakKeyDictionary[Any, dict[tuple[tuple[int, str], ...], Plan]] = weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=1)
def _operation() -> Callable[..., tf.Tensor]:
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "libtarantella_tensorflow.so")
    allreduce: Callable[..., tf.Tensor] = tf.load_op_library(path).tarantella_allreduce
    return allreduce


def allreduce(owner: Any, gradients: Sequence[Any], variables: Sequence[Any], borrow: bool) -> list[Any]:
    """Sums each gradient over the ranks; `gradients` may hold None, which stays None.

    In a graph this adds one operation a gradient; the first trace for `owner` (an optimizer) and a set of
    variables is collective. With `borrow` the sums lie in memory that the next step overwrites: for consumers
    that keep nothing. Eagerly it blocks.
    """
    present = [(_dense(g, v), v) for g, v in zip(gradients, variables, strict=True) if g is not None]
    if not present:
        return list(gradients)
    wire = [g if g.dtype in _WIRE_DTYPES else tf.cast(g, tf.float32) for g, _ in present]
    if tf.executing_eagerly():
        summed = _eager(wire)
    else:
        summed = _graph(plan(owner, wire, [v for _, v in present]), wire, borrow)
    results = iter([tf.cast(s, g.dtype) for s, (g, _) in zip(summed, present, strict=True)])
    return [None if g is None else next(results) for g in gradients]


def _dense(gradient: Any, variable: Any) -> tf.Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        _log.warn_once(
            f"the sparse gradient of {variable.path!r} is made dense before it is reduced: results are those "
            "of a dense gradient, at the cost of the whole variable in every step"
        )
    return tf.convert_to_tensor(gradient)


def _graph(plan: Plan, gradients: list[tf.Tensor], borrow: bool) -> list[tf.Tensor]:
    operation = _operation()
    anchor = plan.anchor.read_value()
    summed: list[tf.Tensor] = [None] * len(gradients)
    for bucket in set(plan.buckets):
        places = [i for i, each in enumerate(plan.buckets) if each == bucket]
        # A bucket is handed in as a whole: were a part of it under way when a gradient of the rest fails, the
        # step could neither end nor say so.
        with tf.control_dependencies([gradients[i] for i in places]):
            for i in places:
                summed[i] = operation(gradients[i], anchor, plan=plan.number, index=i, borrow=borrow)
    return [tf.ensure_shape(s, g.shape) for s, g in zip(summed, gradients, strict=True)]


def plan(owner: Any, gradients: list[tf.Tensor], variables: list[Any]) -> Plan:
    """The core's plan for these gradients. Collective at the first call; later traces get the same one.

    It lives as long as `owner`, so that models made in a loop do not pile up memory.
    """
    if owner not in _plans:
        _plans[owner] = {}
        weakref.finalize(owner, _release, _plans[owner]).atexit = False
    key = tuple((id(v), g.dtype.name) for g, v in zip(gradients, variables, strict=True))
    if key not in _plans[owner]:
        tensors = [(name_of(v), g.dtype.name, tuple(v.shape)) for g, v in zip(gradients, variables, strict=True)]
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = _runtime.context().plan("the gradients", tensors, threshold)
        with tf.init_scope():
            _plans[owner][key] = Plan(number, _runtime.context().buckets(number, len(tensors)), counter())
    return _plans[owner][key]


def _release(plans: dict[Any, Plan]) -> None:
    for each in plans.values():
        _runtime.release(each.number)


def _eager(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """One call for each dtype with all gradients: eagerly an operation a gradient would wait for ever."""
    summed: list[tf.Tensor] = [None] * len(gradients)
    for dtype in sorted({g.dtype.name for g in gradients}):
        places = [i for i, g in enumerate(gradients) if g.dtype.name == dtype]
        flat = np.concatenate([gradients[i].numpy().ravel() for i in places])
        flat = _runtime.context().allreduce(flat, f"{dtype} gradients")
        ends = np.cumsum([int(tf.size(gradients[i])) for i in places])[:-1]
        for i, part in zip(places, np.split(flat, ends), strict=True):
            summed[i] = tf.reshape(tf.convert_to_tensor(part), gradients[i].shape)
    return summed


def zero_where(condition: tf.Tensor, gradient: Any) -> Any:
    """The gradient, or exact zeros (also in place of inf and nan) where the condition holds."""
    if gradient is None:
        return None
    gradient = tf.convert_to_tensor(gradient)
    # Not tf.where: it would copy every gradient in every step for the rare batch that is too small.
    return tf.cond(condition, lambda: tf.zeros_like(gradient), lambda: gradient)


def undo_where(condition: tf.Tensor, variables: Sequence[Any], step: Callable[[], Any]) -> Any:
    """Runs `step`; where the condition holds, `variables` get back the values that they had before."""
    values = [getattr(v, "value", v) for v in variables]

    # Both branches must agree in type only: where nothing is undone, nothing is copied.
    def keep() -> list[tf.Tensor]:
        return [tf.reshape(tf.identity(v), [-1]) for v in values]

    def skip() -> list[tf.Tensor]:
        return [tf.zeros([0], v.dtype) for v in values]

    saved = tf.cond(condition, keep, skip) if values else []
    result = step()

    def restore() -> tf.Tensor:
        for value, old in zip(values, saved, strict=True):
            value.assign(tf.reshape(old, value.shape))
        return tf.constant(0)

    if values:
        tf.cond(condition, restore, lambda: tf.constant(0))
    return result


def counter() -> tf.Variable:
    """A number that steps may add to; it is no part of any model."""
    return tf.Variable(0, dtype=tf.int64, trainable=False)


def ratio(part: tf.Tensor, whole: tf.Tensor, dtype: Any) -> tf.Tensor:
    """part / whole in the given type."""
    return tf.cast(tf.cast(part, tf.float64) / tf.cast(whole, tf.float64), dtype)


def global_seed() -> int | None:
    """The seed of tf.random.set_seed, or None."""
    seed: int | None = eager_context.global_seed()
    return seed


def set_global_seed(seed: int) -> None:
    """Sets the seed from which TensorFlow derives those of its operations."""
    tf.random.set_seed(seed)
