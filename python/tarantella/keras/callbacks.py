"""Which callbacks run on which rank."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from .._runtime import context, is_master_rank

# They write files or send reports: once, by the master. All others run on all ranks.
_MASTER_ONLY = ("CSVLogger", "ModelCheckpoint", "RemoteMonitor", "TensorBoard")


class _TerminateOnNaN(keras.callbacks.TerminateOnNaN):
    """Stops all ranks after the batch in which the first of them sees a NaN: one small exchange a batch."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_batch_end(batch, logs)
        mine = np.array([self.model.stop_training], np.int32)
        if context().allreduce(mine, "stop on NaN")[0] > 0:
            self.model.stop_training = True


def for_this_rank(callbacks: Any) -> Any:
    """The user's callbacks as this rank runs them. Raises NotImplementedError for those that cannot run yet."""
    if callbacks is None or isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    every = [_ready(each) for each in (callbacks if isinstance(callbacks, (list, tuple)) else [callbacks])]
    if is_master_rank():
        return every
    kinds = tuple(getattr(keras.callbacks, name) for name in _MASTER_ONLY)
    return [callback for callback in every if not isinstance(callback, kinds)]


def _ready(callback: Any) -> Any:
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        raise NotImplementedError(
            "BackupAndRestore is not available on several ranks yet: ranks would restore different weights; "
            "use ModelCheckpoint, and load_weights before fit"
        )
    return _TerminateOnNaN() if type(callback) is keras.callbacks.TerminateOnNaN else callback
