"""Which callbacks run on which rank."""

from __future__ import annotations

from typing import Any

import keras

from .._runtime import is_master_rank

# They write files or send reports: once, by the master. All others run on all ranks.
_MASTER_ONLY = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "RemoteMonitor", "TensorBoard")


def for_this_rank(callbacks: Any) -> Any:
    """The user's callbacks without those that only the master runs."""
    if callbacks is None or isinstance(callbacks, keras.callbacks.CallbackList) or is_master_rank():
        return callbacks
    kinds = tuple(getattr(keras.callbacks, name) for name in _MASTER_ONLY)
    every = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    return [callback for callback in every if not isinstance(callback, kinds)]
