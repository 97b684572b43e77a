"""`hvd.callbacks`: equal starts, averaged metrics, learning rates, the best model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from .. import collectives as core
from . import process
from .learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from .objects import broadcast_variables
from .optimizer import wrapped_inside
from .process_sets import global_process_set

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the variables of one rank: those of the model and of its optimizer.

    Once, before the first batch; after the first one, where some rank's model is built by it. All ranks of the job must
    have the callback.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        """`local_variables`: those that each rank keeps for itself, one or a list. Raises TypeError for others."""
        super().__init__()
        self.root_rank = root_rank
        self._local: list[Any] = []
        if local_variables is not None:
            several = isinstance(local_variables, Sequence)
            for each in local_variables if several else [local_variables]:
                self.register_local_var(each)
        self.broadcast_done = False

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable."""
        if not hasattr(var, "assign"):
            raise TypeError(f"a local variable must be a variable (got {type(var).__name__})")
        self._local.append(var)

    def on_train_begin(self, logs: Any = None) -> None:
        """Raises ValueError for an optimizer that `compile` has put into another one after it was wrapped."""
        process.check("callbacks.BroadcastGlobalVariablesCallback")
        optimizer = self.model.optimizer
        inner = wrapped_inside(optimizer)
        if inner is not None:
            raise ValueError(
                f"the {type(optimizer).__name__} is around an {type(inner).__name__} that hvd.DistributedOptimizer has "
                "wrapped: wrap the outer one, or set the policy mixed_float16 before the optimizer is wrapped"
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
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        every = {id(v): v for v in [*self.model.variables, *self.model.optimizer.variables]}
        local = {id(each) for each in self._local}
        shared = [v for v in every.values() if id(v) not in local and id(v.value) not in local]
        broadcast_variables(shared, self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of an epoch, puts the mean over the ranks in the place of each number in the logs.

    Each rank counts alike, whatever its rows. Callbacks that use the logs come after it in the list: ReduceLROnPlateau,
    TensorBoard, ModelCheckpoint. Raises tarantella.MismatchError where ranks log other names.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        process.check("callbacks.MetricAverageCallback")
        if logs:
            numbers = {name: float(value) for name, value in logs.items() if keras.ops.ndim(value) == 0}
            logs.update(core.allreduce(numbers, "average", global_process_set.group()))


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keras's ModelCheckpoint that keeps the best model, or its weights, on the ranks that have it in their callbacks.

    Give `filepath`, which is ours, or set the attribute of that name before `fit`.
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
            raise ValueError(
                "BestModelCheckpoint does not know where to save: pass filepath='best.keras', or set it before fit"
            )
        super().on_train_begin(logs)
