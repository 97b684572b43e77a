"""What the timeline shows of a model beyond calls: epochs and steps. Nothing is hooked where the timeline is off."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import tree

from ..._backend import backend
from ..._job import timeline
from ..hooks import hook_functions

_NAMES = {"train": "train step", "test": "test step", "predict": "predict step"}


def install(model: Any) -> None:
    """Records the steps of a Keras model. Idempotent."""
    if not timeline.is_on():
        return
    for kind in _NAMES:
        if hook_functions(model, kind, functools.partial(timeline.step, _NAMES[kind], is_end=_is_end), "timeline"):
            setattr(model, f"{kind}_function", None)


def _is_end(error: Exception) -> bool:
    return isinstance(error, backend.end_of_data)


class _Epochs(keras.callbacks.Callback):
    """Has no methods for batches, for which Keras would wait for the result of each step."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = timeline.span(f"epoch {epoch + 1}")
        self._epoch.__enter__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._epoch.__exit__(None, None, None)


def with_epochs(callbacks: Any) -> Any:
    """The callbacks of a fit, with one that records its epochs. As they are where the timeline is off."""
    if not timeline.is_on() or isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return [_Epochs(), *tree.flatten(callbacks or [])]
