"""The functions of the TensorFlow backend; `tarantella._backend.Backend` has their contracts."""

# mypy: implicit-reexport

from __future__ import annotations

import tensorflow as tf

from .checkpoints import checkpoint_writers
from .gather import gather_rows, why_not_gathered
from .gradients import StepGradients as step_gradients
from .reduce import allreduce, sum_over_ranks, without_repeats
from .sandbox import Sandbox as sandboxed
from .sandbox import peek, recorded_or_replayed, rows
from .steps import (
    comes_from_inputs,
    current_trace,
    gradients,
    is_used,
    run_step,
    stand_in,
    step_hooks,
    steps_are_stateful,
    sync,
    trace,
    variables_outside,
)
from .tape import gradient_hooks
from .xla import why_not_compiled

step_errors: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, tf.errors.InvalidArgumentError)
