"""A callback that measures epochs."""

from __future__ import annotations

import time
from typing import Any

import keras


class TimingCallback(keras.callbacks.Callback):
    """Measures each epoch, its validation included. `times` has the seconds, one number an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []
        self._start = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.times.append(time.perf_counter() - self._start)
