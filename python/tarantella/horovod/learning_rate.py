"""Callbacks that set the learning rate: a schedule, and the warm-up of large batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from . import process


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)`, from `start_epoch` up to but not in `end_epoch`.

    `multiplier` is a function of the epoch, or a constant for its power `epoch - start_epoch`. With `staircase` the
    rate is set at the first batch of each epoch; otherwise at every batch, and the epoch is `epoch + batch /
    steps_per_epoch`. Without `end_epoch` there is no end. The logs of an epoch get the rate as `lr`.

    `momentum_correction`: where the rate changes, the momentum of SGD and RMSprop, which is made of updates of the old
    rate, is multiplied by new / old.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[Any], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Raises ValueError without `initial_lr`. `steps_per_epoch` is by default what `fit` knows."""
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr, the learning rate of the optimizer")
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.multiplier: Callable[[Any], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = multiplier
            self.multiplier = lambda epoch: base ** (epoch - start_epoch)
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises ValueError for an optimizer with a schedule of its own, and where `fit` does not know its steps."""
        if not isinstance(self.model.optimizer.learning_rate, keras.Variable):
            raise ValueError(
                f"{type(self).__name__} cannot set the learning rate of an optimizer that has a schedule: give the "
                f"{type(self.model.optimizer).__name__} a number"
            )
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} needs steps_per_epoch: fit does not know how many steps the data have"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._epoch < self.start_epoch or (self.end_epoch is not None and self._epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(self._epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        new = float(optimizer.learning_rate)  # rounded to the variable's type, as the update uses it
        if self.momentum_correction and old and new != old:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * (new / old))


def _velocities(optimizer: Any) -> list[Any]:
    """The variables in which SGD and RMSprop keep their momentum."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "momentum", 0):
        return []
    return [each for each in optimizer.variables if each.name.endswith("_momentum")]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / hvd.size()` to `initial_lr` in the first epochs, batch by batch.

    At the fraction e of epochs, counted to the end of the batch, it is
    `initial_lr / size * (e * (size - 1) / warmup_epochs + 1)`. With `verbose` rank 0 prints a line at the end.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = process.size()
            epoch += 1.0 / (self.steps_per_epoch or 1)
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and process.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
