"""The functions of the TensorFlow backend; `tarantella._backend.Backend` has their contracts."""

# mypy: implicit-reexport

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .gather import gather_rows, why_not_gathered
from .gradients import StepGradients as step_gradients
from .plans import why_not_compiled
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

# The methods of TensorFlow that write checkpoints, and what they leave behind beside files.


def _write(checkpoint: Any, file_prefix: Any, options: Any = None) -> tuple[str, Callable[[], Any]]:
    return str(file_prefix), lambda: str(file_prefix)


def _save(checkpoint: Any, file_prefix: Any, options: Any = None) -> tuple[str, Callable[[], Any]]:
    return str(file_prefix), lambda: f"{file_prefix}-{int(checkpoint.save_counter.assign_add(1))}"


def _save_managed(manager: Any, *args: Any, **options: Any) -> tuple[str, Callable[[], Any]]:
    def follow() -> Any:
        state = tf.train.get_checkpoint_state(manager.directory)
        manager.checkpoint.save_counter.assign_add(1)
        times = zip(state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps, strict=True)
        manager._maybe_delete = collections.OrderedDict(times)
        manager._latest_checkpoint = state.model_checkpoint_path
        return manager.latest_checkpoint

    return str(manager.directory), follow


checkpoint_writers = (
    (tf.train.Checkpoint, "write", _write),
    (tf.train.Checkpoint, "save", _save),
    (tf.train.CheckpointManager, "save", _save_managed),
)
