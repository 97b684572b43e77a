"""The functions of the TensorFlow backend; `tarantella._backend.Backend` has their contracts."""

from __future__ import annotations

import tensorflow as tf

from .checkpoints import checkpoint_writers
from .gather import gather_rows, why_not_gathered
from .gradients import StepGradients as step_gradients
from .gradients import allreduce
from .reduce import sum_over_ranks, without_repeats
from .sandbox import look_ahead, recorded_or_replayed, rows, sandboxed
from .steps import (
    assigns_in_steps,
    beginning,
    comes_from_inputs,
    current_trace,
    gradients,
    is_used,
    run_step,
    stand_in,
    step_hooks,
    strategy_of,
    sync,
    trace,
    variables_outside,
)
from .tape import gradient_hooks
from .xla import why_not_compiled

__all__ = [
    "allreduce",
    "assigns_in_steps",
    "beginning",
    "checkpoint_writers",
    "comes_from_inputs",
    "current_trace",
    "gather_rows",
    "gradient_hooks",
    "gradients",
    "is_used",
    "look_ahead",
    "recorded_or_replayed",
    "rows",
    "run_step",
    "sandboxed",
    "stand_in",
    "step_errors",
    "step_gradients",
    "step_hooks",
    "strategy_of",
    "sum_over_ranks",
    "sync",
    "trace",
    "variables_outside",
    "why_not_compiled",
    "why_not_gathered",
    "without_repeats",
]

step_errors: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, tf.errors.InvalidArgumentError)
