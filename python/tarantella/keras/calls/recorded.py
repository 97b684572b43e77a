"""What the timeline shows of a model beyond calls: epochs, steps and batches. Nothing is hooked where it is off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from ..._backend import backend
from ..._job import report, timeline
from ...data import tf_data
from ...data.input import uses_pipelines
from ...data.rows import MicroBatch, PaddedMicroBatch, has_rows
from ..hooks import hook, hook_functions

_NAMES = {"train": "train step", "test": "test step", "predict": "predict step"}


def install(model: Any) -> None:
    """Records the steps of a Keras model, and the batches of its training. Idempotent."""
    if not timeline.is_on():
        return
    if uses_pipelines() and hook(model, "train_step", _marked, "timeline"):
        model.train_function = None
    for kind in _NAMES:
        if hook_functions(model, kind, functools.partial(timeline.step, _NAMES[kind], is_end=_is_end), "timeline"):
            setattr(model, f"{kind}_function", None)


def _marked(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def train_step(batch: Any) -> Any:
        return original(tf_data.slicer.mark_arrival(batch, _rows(batch)))

    return train_step


def _rows(batch: Any) -> Any:
    """This rank's rows of a batch; 0 where nothing tells them."""
    if isinstance(batch, (MicroBatch, PaddedMicroBatch, tf_data.per_rank.PerRankBatch)):
        return batch.rows
    leaves = [leaf for leaf in tree.flatten(batch) if has_rows(leaf)]
    return tf_data.slicer.rows_of(leaves[0]) if leaves else 0


def _is_end(error: Exception) -> bool:
    return isinstance(error, backend.end_of_data)


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


def with_epochs(callbacks: Any) -> Any:
    """The callbacks of a fit, with one that tells the launcher and one that records for the timeline, where it is on.

    A CallbackList stays as it is.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    recording = [_Epochs()] if timeline.is_on() else []
    return [*recording, *tree.flatten(callbacks or []), _ReportedEpochs()]
