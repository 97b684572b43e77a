"""`hvd.callbacks`: broadcast of variables, averages of metrics, learning rates, the best model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from ... import collectives as core
from .. import process
from ..gradients import LocalVariables
from ..objects import broadcast_variables
from ..optimizer import wrapped_inside
from ..process import global_process_set

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Broadcasts the variables of the model and its optimizer from one rank to all ranks, once.

    Before the first batch, or after it if that batch builds the model of some rank. All ranks of the job must have the
    callback.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        """`local_variables`: a variable or a list of variables to exclude. Raises TypeError for other objects."""
        super().__init__()
        self.root_rank = root_rank
        self._local = LocalVariables()
        for each in [] if local_variables is None else keras.tree.flatten(local_variables):
            self._local.add(each)
        self.broadcast_done = False

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable."""
        self._local.add(var)

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises ValueError if `compile` has wrapped the optimizer in another one after `DistributedOptimizer`."""
        process.check("callbacks.BroadcastGlobalVariablesCallback")
        optimizer = self.model.optimizer
        inner = wrapped_inside(optimizer)
        if inner is not None:
            raise ValueError(
                f"the {type(optimizer).__name__} contains an {type(inner).__name__} that hvd.DistributedOptimizer has "
                "wrapped: wrap the outer one, or set the policy mixed_float16 before hvd.DistributedOptimizer"
            )
        group = global_process_set.group()
        group.announce("BroadcastGlobalVariablesCallback")
        # One rank may have loaded or called its model before.
        all_built = core.allreduce(float(self.model.built), "min", group) == 1
        if all_built and not self.broadcast_done:
            if not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts after the first batch where the model or its optimizer was not built before."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        every = {id(v): v for v in [*self.model.variables, *self.model.optimizer.variables]}
        broadcast_variables([v for v in every.values() if v not in self._local], self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces each number in the logs by its mean over the ranks at the end of an epoch.

    All ranks have the same weight, regardless of their rows. Callbacks that use the logs must come after it in the
    list: ReduceLROnPlateau, TensorBoard, ModelCheckpoint. Raises tarantella.MismatchError if ranks log different names.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the logs. Collective."""
        process.check("callbacks.MetricAverageCallback")
        if logs:
            numbers = {name: float(value) for name, value in logs.items() if keras.ops.ndim(value) == 0}
            logs.update(core.allreduce(numbers, "average", global_process_set.group()))


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keras's ModelCheckpoint for the best model, or its weights, on the ranks that have it in their callbacks.

    Pass `filepath`, which Horovod does not have, or set the attribute of that name before `fit`.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
        save_weights_only: bool = False,
    ) -> None:
        path = ("unset.weights.h5" if save_weights_only else "unset.keras") if filepath is None else filepath
        super().__init__(path, monitor, verbose, True, save_weights_only, mode, save_freq)
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises ValueError without a path."""
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint needs a file: pass filepath='best.keras', or set it before fit")
        super().on_train_begin(logs)


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` in the epochs `start_epoch <= epoch < end_epoch`.

    `multiplier` is a function of the epoch, or a constant, which is raised to the power `epoch - start_epoch`. With
    `staircase`, sets the rate at the first batch of each epoch; otherwise at every batch, for the fractional epoch
    `epoch + batch / steps_per_epoch`. The logs of an epoch get the rate as `lr`.

    With `momentum_correction`, multiplies the momentum of SGD and RMSprop by new / old when the rate changes, because
    it consists of updates with the old rate.
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
        """Raises ValueError without `initial_lr`. `steps_per_epoch`: by default the steps of `fit`."""
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr, the learning rate of the optimizer")
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        base: Any = multiplier
        self.multiplier: Any = multiplier if callable(multiplier) else lambda epoch: base ** (epoch - start_epoch)
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises ValueError for an optimizer with a schedule, and if `steps_per_epoch` is not known."""
        if not isinstance(self.model.optimizer.learning_rate, keras.Variable):
            raise ValueError(
                f"{type(self).__name__} cannot set the learning rate of an optimizer with a schedule: give the "
                f"{type(self.model.optimizer).__name__} a number"
            )
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__} needs steps_per_epoch: the length of the data is not known")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate within the epochs of the schedule: for each batch, or with `staircase` once."""
        if self._epoch < self.start_epoch or (self.end_epoch is not None and self._epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(self._epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the learning rate to the logs, as `lr`."""
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        new = float(optimizer.learning_rate)  # rounded to the variable's type, as the update uses it
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if self.momentum_correction and old and new != old and getattr(inner, "momentum", 0):
            for velocity in (each for each in inner.variables if each.name.endswith("_momentum")):
                velocity.assign(velocity * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / hvd.size()` to `initial_lr` in the first epochs, batch by batch.

    After e epochs, including the fraction of the current batch, it is
    `initial_lr / size * (e * (size - 1) / warmup_epochs + 1)`. With `verbose`, rank 0 prints a line at the end.
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
        """Also prints a line at the end of the warmup."""
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and process.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
