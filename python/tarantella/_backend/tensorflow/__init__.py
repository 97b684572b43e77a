"""The functions of the TensorFlow backend: what steps, losses and optimizers need of the framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from . import plans
from .dispatch import dispatch
from .eager import apart, counter, gradients
from .reduce import allreduce, differentiable_sum, prepared, scale, static_rows, sum_over_ranks, without_repeats
from .steps import count_nan, has_value, look_once, together, trace, undo_where, zero_where
from .xla import can_compile, compiled

__all__ = [
    "allreduce",
    "apart",
    "can_compile",
    "checksum",
    "compiled",
    "count_nan",
    "counter",
    "differentiable_sum",
    "dispatch",
    "gradients",
    "has_value",
    "look_once",
    "prepared",
    "ratio",
    "scale",
    "static_rows",
    "sum_over_ranks",
    "together",
    "trace",
    "undo_where",
    "without_repeats",
    "zero_where",
]


def checksum(variables: Sequence[Any]) -> int:
    """One signed number of 64 bits for the values of these variables or arrays, at the speed of memory."""
    return int(plans.operations().tarantella_checksum([tf.convert_to_tensor(v) for v in variables]))


def ratio(part: Any, whole: Any, dtype: Any) -> tf.Tensor:
    """part / whole in the given type, 0 where the whole is; a constant to gradients."""
    quotient = tf.math.divide_no_nan(tf.cast(part, tf.float64), tf.cast(whole, tf.float64))
    return tf.stop_gradient(tf.cast(quotient, dtype))
