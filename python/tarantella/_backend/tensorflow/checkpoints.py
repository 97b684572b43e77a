"""The methods of TensorFlow that write checkpoints, and what they leave behind beside files."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Follow = Callable[[], Any]


def _write(checkpoint: Any, file_prefix: Any, options: Any = None) -> tuple[str, Follow]:
    return str(file_prefix), lambda: str(file_prefix)


def _save(checkpoint: Any, file_prefix: Any, options: Any = None) -> tuple[str, Follow]:
    return str(file_prefix), lambda: f"{file_prefix}-{int(checkpoint.save_counter.assign_add(1))}"


def _save_managed(manager: Any, *args: Any, **options: Any) -> tuple[str, Follow]:
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
