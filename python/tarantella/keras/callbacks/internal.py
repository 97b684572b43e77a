"""Internal callbacks: those that keep ranks in step inside fit, evaluate and predict, and those that record epochs.

All ranks have the same ones in the same order, whatever callbacks the user passes on each rank.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras
from keras import tree

from ... import _exchange
from ..._job import report, timeline
from .. import epoch_end, private, replicas, written

# The attributes by which callbacks ask to stop, and the methods after which ranks agree on them.
STOP_FLAGS = {
    "stop_training": "on_train_batch_end",
    "stop_evaluating": "on_test_batch_end",
    "stop_predicting": "on_predict_batch_end",
}


class AverageBeforeSaving(keras.callbacks.Callback):
    """Averages the state of layers before a checkpoint in the middle of an epoch on any rank."""

    def __init__(self, callbacks: list[Any]) -> None:
        super().__init__()
        self._savers = [each for each in callbacks if private.saves_on_batches(each)]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        saves = any(private.would_save(each, batch) for each in self._savers)
        if _exchange.on_any_rank(saves, "checkpoints"):
            epoch_end.average_layer_state(self.model)


class CheckpointCounter(keras.callbacks.Callback):
    """Follows a ModelCheckpoint, which runs on the master only: tells the other ranks how far it has come."""

    def __init__(self, checkpoint: Any) -> None:
        super().__init__()
        written.expect_checkpoints(checkpoint.filepath)
        if private.saves_on_batches(checkpoint):
            self.on_train_batch_end = self.on_epoch_end

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        written.count_checkpoint()


class GlobalLogs(keras.callbacks.Callback):
    """Computes the global logs after every batch, once for all callbacks that need them."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, Any] | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.logs = epoch_end.batch_logs(self.model, logs or {})

    on_test_batch_end = on_train_batch_end

    def on_train_end(self, logs: Any = None) -> None:
        self.logs = None

    on_test_end = on_train_end


class OwnOutputs(keras.callbacks.Callback):
    """Removes the row numbers that our predict step adds to its outputs, before other callbacks see them."""

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        logs["outputs"] = logs["outputs"][0]


class Agreement(keras.callbacks.Callback):
    """Makes all ranks restore the same state and stop at the same time, if a callback does so on any rank.

    Runs after all callbacks that may restore or stop. Only Keras's History and progress bar run later.
    """

    def __init__(self, restores: bool = False, differ: bool = False, stop_flags: Collection[str] = ()) -> None:
        """`differ`: whether ranks have other callbacks than the master. `stop_flags`: keys of STOP_FLAGS that callbacks
        may set after any batch.
        """
        super().__init__()
        self._restores, self._differ = restores, differ
        # Not methods of the class: Keras runs batches ahead if no callback overrides the methods for batches.
        for flag in stop_flags:
            setattr(self, STOP_FLAGS[flag], lambda batch, logs=None, flag=flag: self._agree(flag))

    def on_train_begin(self, logs: Any = None) -> None:
        if self._restores:
            replicas.broadcast(replicas.variables(self.model))
            epoch, *_ = _exchange.gather_json(private.initial_epoch(self.model))
            private.set_initial_epoch(self.model, epoch)

    def on_train_end(self, logs: Any = None) -> None:
        if self._differ:  # a callback may have restored the best weights
            replicas.broadcast(replicas.variables(self.model))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._agree("stop_training")

    on_epoch_end = on_epoch_begin

    def on_test_begin(self, logs: Any = None) -> None:
        self._agree("stop_evaluating")

    def _agree(self, flag: str) -> None:
        if _exchange.on_any_rank(bool(getattr(self.model, flag)), flag):
            setattr(self.model, flag, True)


class _ReportedEpochs(keras.callbacks.Callback):
    """Tells the launcher of completed epochs: a job that fails between them goes on after a restart."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        report.send(report.PROGRESS, "")


class _Epochs(keras.callbacks.Callback):
    """Has no methods for batches, for which Keras would wait for the result of each step."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = timeline.span(f"epoch {epoch + 1}")
        self._epoch.__enter__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch.__exit__(None, None, None)


def with_reporting(callbacks: Any) -> Any:
    """The callbacks of a fit, with one that tells the launcher and one that records for the timeline, where it is on.

    A CallbackList stays as it is.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    recording = [_Epochs()] if timeline.is_on() else []
    return [*recording, *tree.flatten(callbacks or []), _ReportedEpochs()]
