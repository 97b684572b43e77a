"""The functions of the TensorFlow backend; `tarantella._backend.Backend` has their contracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .checkpoints import checkpoint_writers
from .gather import gather_rows, shows_logits, why_not_gathered
from .gradients import StepGradients as step_gradients
from .gradients import allreduce
from .operations import operations
from .reduce import differentiable_sum, sum_over_ranks, without_repeats
from .row_checksum import checksum_of_rows
from .sandbox import look_ahead, recorded_or_replayed, rows, sandboxed
from .steps import (
    comes_from_inputs,
    current_trace,
    is_used,
    mark_batch,
    run_step,
    stand_in,
    strategy_of,
    together,
    trace,
    type_of,
)
from .tape import gradient_hooks
from .undo import undo_where
from .variables import apart, gradients, variables_outside
from .xla import why_not_compiled

__all__ = [
    "allreduce",
    "apart",
    "checkpoint_writers",
    "checksum_of_rows",
    "checksums",
    "comes_from_inputs",
    "current_trace",
    "differentiable_sum",
    "end_of_data",
    "gather_rows",
    "gradient_hooks",
    "gradients",
    "is_used",
    "look_ahead",
    "mark_batch",
    "recorded_or_replayed",
    "rows",
    "run_step",
    "sandboxed",
    "shows_logits",
    "stand_in",
    "step_errors",
    "step_gradients",
    "strategy_of",
    "sum_over_ranks",
    "together",
    "trace",
    "type_of",
    "undo_where",
    "variables_outside",
    "why_not_compiled",
    "why_not_gathered",
    "without_repeats",
]

end_of_data: tuple[type[Exception], ...] = (StopIteration, tf.errors.OutOfRangeError)
step_errors: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, tf.errors.InvalidArgumentError)


def checksums(values: Sequence[Any]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = operations().tarantella_checksum([tf.convert_to_tensor(v) for v in values]).numpy()
    return found
