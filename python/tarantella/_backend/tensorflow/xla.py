"""Calling the core from graphs that XLA compiles."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from . import plans
from .plans import LIBRARY, operations

# The collection of a graph for XLA that holds a result of each call of the core.
_CALLS = "tarantella_calls"


def compiled() -> bool:
    """Whether the graph that is traced now will be compiled by XLA (`jit_compile=True`)."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


@functools.cache
def _custom_call() -> Any:
    """The operation with which XLA calls a function; None where it cannot call the core."""
    operations()
    try:
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        found = gen_xla_ops.xla_custom_call_v2
    except (ImportError, AttributeError):  # no public name of TensorFlow
        return None
    return found if ctypes.CDLL(LIBRARY).tarantella_xla() else None


def why_not_compiled() -> str:
    if tf.config.get_visible_devices("GPU"):
        return "GPUs, on which XLA cannot call tarantella yet"
    return "" if _custom_call() else "this version of TensorFlow"


def call(
    plan: plans.Plan, values: list[tf.Tensor], after: Sequence[tf.Tensor], number: tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Has XLA call the core. `after` is `latest_call()`, `number` that of the training step.

    Raises NotImplementedError where XLA cannot.
    """
    custom_call = _custom_call()
    if custom_call is None:
        raise NotImplementedError("XLA cannot call tarantella in this TensorFlow; compile with jit_compile=False")
    numbers = [] if number is None else [number]
    sums: list[tf.Tensor] = custom_call(
        [*values, *numbers, *after],
        call_target_name="tarantella_allreduce",
        backend_config=f"{plan.number} {len(values)} {len(numbers)}",
        has_side_effect=True,
        result_dtypes=[value.dtype for value in values],
        result_shapes=[value.shape for value in values],
    )
    tf.compat.v1.add_to_collection(_CALLS, tf.stop_gradient(sums[-1]))
    return sums


def latest_call() -> list[tf.Tensor]:
    """What the next call for XLA takes beside its values, unread: a result of the call before.

    Calls block, so all ranks must make them in one order, and XLA keeps no order but that of data.
    """
    return list(tf.compat.v1.get_collection(_CALLS)[-1:])
