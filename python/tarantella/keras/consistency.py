"""Checks that ranks have read the same data and still hold the same weights: after every epoch, and within it."""

from __future__ import annotations

import weakref
from typing import Any

import keras
import numpy as np

from .. import _exchange
from .._backend import backend
from .._exchange import name_of
from .._job import runtime, timeline
from .._job.environment import integer
from .._job.errors import MismatchError
from . import model_state, replicas

# Steps between two comparisons of weights, unless TNT_WEIGHT_CHECK_STEPS says another number. The checksum reads the
# weights once, so a hundred steps that each read and write them several times take a thousand times as long.
INTERVAL = 100

CURE = (
    "change the model, its learning rate and its optimizers in the same way on every rank; a train_step that moves "
    "weights by local gradients and back (SAM) must save and assign the old values: adding and subtracting rounds "
    "differently on each rank"
)


@timeline.part("compare data")
def same_data(model: Any) -> None:
    """Raises MismatchError on all ranks if they have read different global batches. Collective."""
    local = np.asarray(model_state.of(model).data_fingerprint).reshape(1)
    model_state.of(model).data_fingerprint.assign(0)
    everyone = runtime.context().allgather(local, "fingerprints of the data").ravel()
    others = np.flatnonzero(everyone != everyone[0])
    if others.size:
        raise MismatchError(
            f"rank {others[0]} read other data than rank 0: each rank takes its rows of the same global batches; "
            "use the same seed on all ranks for every shuffle, split and random generator, and the same files in the "
            "same order; if threads or processes draw random numbers (workers=…, num_parallel_calls=…), the numbers of "
            "an element are not deterministic: draw them with a seed made from its index"
        )


def nan_labels(model: Any, loss: Any) -> None:
    """Raises ValueError on all ranks if the loss is NaN because labels are. Collective if the loss is NaN."""
    if model.stop_training or not np.isnan(loss).any():
        return
    local = np.asarray(model_state.of(model).nan_labels).reshape(1)
    count = int(runtime.context().allreduce(local, "labels that are NaN")[0])
    if count:
        raise ValueError(
            f"the loss is nan, and {count} of the labels trained on are: remove these rows, or compile with a loss "
            "that masks them; with keras.callbacks.TerminateOnNaN() training stops without an error"
        )


@timeline.part("compare weights")
def same_weights(model: Any) -> None:
    """Raises MismatchError on all ranks if the trainable weights of the ranks have drifted apart. Collective.

    Compares one checksum, and that of each weight only if it differs.
    """
    backend.sync(model)
    variables = [*model.trainable_variables, *replicas.trainable_outside(model)]
    local = np.array([_exchange.checksum(variables)], np.int64)
    everyone = runtime.context().allgather(local, "checksum of the weights").ravel()
    if (everyone != everyone[0]).any():
        checksums = _exchange.checksums(variables).view(np.uint64)
        lines = [f"{name_of(v)!r} with the checksum {each:016x}" for v, each in zip(variables, checksums, strict=True)]
        _exchange.check_equal("trained weights", lines, CURE)


def settings() -> list[str]:
    """The settings that must be equal on all ranks to compare weights before the same steps, one per line."""
    return [f"TNT_WEIGHT_CHECK_STEPS={_interval()}"]


def _interval() -> int:
    return integer("TNT_WEIGHT_CHECK_STEPS", INTERVAL)


def start(model: Any) -> None:
    """Call this before the first step of a call. All ranks must have the same settings."""
    found = model_state.of(model)
    found.start()
    found.weight_check_interval = _interval()


def before_step(model: Any) -> None:
    """Compares the weights of the ranks once every TNT_WEIGHT_CHECK_STEPS steps. Collective then."""
    found = model_state.of(model)
    if 0 < found.weight_check_interval <= found.unchecked_steps:
        same_weights(model)
        found.unchecked_steps = 0
    found.unchecked_steps += 1
    found.completed += 1
    found.stepped_since_sync = True


class BeforeSteps(keras.callbacks.Callback):
    """Compares weights before steps. Not after them: Keras may run on_train_batch_end in another thread."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._of = weakref.ref(model)  # on JAX, Keras's property `model` assigns all variables

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        model_state.of(self.model).try_again()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        before_step(self._of())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        found = model_state.of(self.model)
        found.completed = max(1, found.completed)
