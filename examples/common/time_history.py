"""A callback that measures how long steps and epochs take."""

from __future__ import annotations

import logging
import time
from typing import Any

import keras


class TimeHistory(keras.callbacks.Callback):
    """Logs the speed of training every `log_steps` steps and at the end of each epoch, with `logging.info`.

    batch_size: what a step processes on all ranks together: samples, or tokens. log_steps: steps between two lines.
    initial_step: the number of steps that were trained before. logdir: a folder for TensorBoard, which gets the same
    numbers. `epoch_runtimes` has the seconds of each epoch. The first step also builds the graph; its seconds are in
    `first_step_runtime`, and no speed counts it. One object may serve several calls of `fit`. It measures the rank that
    it runs on, so give it to the master only.
    """

    def __init__(self, batch_size: int, log_steps: int, initial_step: int = 0, logdir: str | None = None) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.log_steps = max(int(log_steps), 1)
        self.steps = initial_step
        self.logdir = logdir
        self.epoch_runtimes: list[float] = []
        self.first_step_runtime: float | None = None
        self._total = _Stretch()
        self._since_line = _Stretch()
        self._epoch_start = self._step_end = 0.0
        self._writer: Any = None

    @property
    def average_examples_per_second(self) -> float:
        """What was processed per second in all steps but the first, without the time between epochs."""
        return self._total.rate(self.batch_size)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start = self._step_end = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        now = time.perf_counter()
        seconds, self._step_end = now - self._step_end, now
        self.steps += 1
        if self.first_step_runtime is None:
            self.first_step_runtime = seconds
            return
        self._total.add(seconds)
        self._since_line.add(seconds)
        if self._since_line.steps == self.log_steps:
            rate = self._since_line.rate(self.batch_size)
            logging.info(
                "TimeHistory: %.2f seconds, %.2f examples/second between steps %d and %d",
                self._since_line.seconds,
                rate,
                self.steps - self.log_steps,
                self.steps,
            )
            self._write("examples_per_second", rate)
            self._since_line = _Stretch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.epoch_runtimes.append(time.perf_counter() - self._epoch_start)
        logging.info(
            "TimeHistory: epoch %d took %.2f seconds, %.2f examples/second since the first step",
            epoch + 1,
            self.epoch_runtimes[-1],
            self.average_examples_per_second,
        )
        self._write("epoch_runtime", self.epoch_runtimes[-1])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._writer:
            self._writer.flush()

    def _write(self, name: str, value: float) -> None:
        if self.logdir is None:
            return
        import tensorflow as tf  # only TensorBoard needs it

        self._writer = self._writer or tf.summary.create_file_writer(self.logdir)
        with self._writer.as_default():
            tf.summary.scalar(name, value, step=self.steps)


class _Stretch:
    """Some steps, and the seconds that they took."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.steps += 1
        self.seconds += seconds

    def rate(self, size: int) -> float:
        return size * self.steps / self.seconds if self.seconds else 0.0
