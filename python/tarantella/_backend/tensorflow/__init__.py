"""The functions of the TensorFlow backend; `tarantella._backend.Backend` has their contracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .checkpoints import checkpoint_writers
from .eager import apart, counter, gradients
from .gather import gather_rows, shows_logits, why_not_gathered
from .operations import operations
from .reduce import allreduce, differentiable_sum, meet, prepared, static_rows, sum_over_ranks, without_repeats
from .row_checksum import checksum_of_rows
from .sandbox import look_ahead, recorded_or_replayed, rows, sandboxed, sandboxed_eagerly, twice
from .slices import changed
from .steps import (
    comes_from_inputs,
    count_nan,
    graph,
    has_value,
    is_eager,
    is_used,
    look_once,
    mark_batch,
    run_step,
    stand_in,
    strategy_of,
    together,
    trace,
    type_of,
    with_rows,
)
from .tape import differentiable_allreduce, gradient_hooks
from .undo import undo_where
from .upstream import loops_over_rows, note_summed, summed_in_trace, upstream_of
from .variables import variables_outside
from .xla import why_not_compiled

__all__ = [
    "allreduce",
    "apart",
    "changed",
    "checkpoint_writers",
    "checksum",
    "checksum_of_rows",
    "checksums",
    "comes_from_inputs",
    "count_nan",
    "counter",
    "differentiable_allreduce",
    "differentiable_sum",
    "end_of_data",
    "gather_rows",
    "gradient_hooks",
    "gradients",
    "graph",
    "has_value",
    "is_eager",
    "is_used",
    "look_ahead",
    "look_once",
    "loops_over_rows",
    "mark_batch",
    "meet",
    "note_summed",
    "prepared",
    "recorded_or_replayed",
    "rows",
    "run_step",
    "sandboxed",
    "sandboxed_eagerly",
    "shows_logits",
    "stand_in",
    "static_rows",
    "step_errors",
    "strategy_of",
    "sum_over_ranks",
    "summed_in_trace",
    "together",
    "trace",
    "twice",
    "type_of",
    "undo_where",
    "upstream_of",
    "variables_outside",
    "why_not_compiled",
    "why_not_gathered",
    "with_rows",
    "without_repeats",
]

end_of_data: tuple[type[Exception], ...] = (StopIteration, tf.errors.OutOfRangeError)
step_errors: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, tf.errors.InvalidArgumentError)


def checksum(values: Sequence[Any]) -> int:
    return int(checksums([checksums(values)])[0])


def checksums(values: Sequence[Any]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = operations().tarantella_checksum([tf.convert_to_tensor(v) for v in values]).numpy()
    return found
