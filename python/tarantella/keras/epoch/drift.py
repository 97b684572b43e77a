"""Checks that ranks have read the same data and still hold the same weights: after every epoch, and within it."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import keras
import numpy as np

from ... import _exchange
from ..._backend import backend
from ..._job import runtime, timeline
from ..._job.environment import integer
from ..._job.errors import MismatchError
from ..._names import name_of
from .. import replicas, training

# Steps between two comparisons of weights; TNT_WEIGHT_CHECK_STEPS overrides it. 0: only at the ends of epochs.
AUTOMATIC = -1
_FIRST = 32  # before the first comparison, which measures its cost
_SHARE = 0.0005  # of the time that comparisons may take; in small networks, counting steps may take the same again

CURE = (
    "change the model, its learning rate and its optimizers in the same way on every rank; a train_step that moves "
    "weights by local gradients and back (SAM) must save and assign the old values: adding and subtracting rounds "
    "differently on each rank"
)


@timeline.part("compare data")
def same_data(model: Any) -> None:
    """Raises MismatchError on all ranks if they have read different global batches. Collective."""
    mine = np.array([training.of(model).read.numpy()], np.int64)
    training.of(model).read.assign(0)
    everyone = runtime.context().allgather(mine, "fingerprints of the data").ravel()
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
    mine = np.array([training.of(model).nan_labels.numpy()], np.int64)
    count = int(runtime.context().allreduce(mine, "labels that are NaN")[0])
    if count:
        raise ValueError(
            f"the loss is nan, and {count} of the labels trained on are: remove these rows, or compile with a loss "
            "that masks them; with keras.callbacks.TerminateOnNaN() training stops without an error"
        )


@timeline.part("compare weights")
def same_weights(model: Any) -> None:
    """Raises MismatchError on all ranks if the trainable weights of the ranks have drifted apart. Collective."""
    _compare(model, backend.checksum(_trained(model)))


def _trained(model: Any) -> list[Any]:
    """The variables that ranks train together."""
    return [*model.trainable_variables, *replicas.trainable_outside(model)]


def _compare(model: Any, checksum: int, proposal: int = 0) -> int:
    """Like `same_weights`: compares one checksum, and each weight only if it differs. Returns the master's proposal."""
    mine = np.array([checksum, proposal], np.int64)
    everyone = runtime.context().allgather(mine, "checksum of the weights")
    if (everyone[:, 0] != everyone[0, 0]).any():
        variables = _trained(model)
        checksums = backend.checksums(variables).view(np.uint64)
        lines = [f"{name_of(v)!r} with the checksum {each:016x}" for v, each in zip(variables, checksums, strict=True)]
        _exchange.agree("trained weights", lines, CURE)
    return int(everyone[0, 1])


def settings() -> list[str]:
    """The settings that must be equal on all ranks to compare weights before the same steps, one per line."""
    return [f"TNT_WEIGHT_CHECK_STEPS={_fixed()}"]


def _fixed() -> int:
    return integer("TNT_WEIGHT_CHECK_STEPS", AUTOMATIC)


def start(model: Any) -> None:
    """Call this before the first step of a call. All ranks must have the same settings."""
    found = training.of(model)
    found.start()
    if found.weight_checks is None:
        found.weight_checks = Schedule(model)
    found.weight_checks.start(_fixed())


def before_step(model: Any) -> None:
    """Compares the weights of the ranks at intervals that cost at most 0.1 % of the time. Collective."""
    training.of(model).weight_checks.before_step()


class Schedule:
    """Decides when the ranks compare the weights of a model.

    Steps are counted across epochs and calls. The master measures the cost and chooses the next comparison, unless
    TNT_WEIGHT_CHECK_STEPS is set.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._training = weakref.ref(model), training.of(model)
        self._fixed = AUTOMATIC
        self._interval: float = _FIRST
        self._steps = 0
        self._since = time.perf_counter()

    def start(self, fixed: int) -> None:
        """Sets the value of TNT_WEIGHT_CHECK_STEPS."""
        if fixed != self._fixed:
            self._fixed, self._interval = fixed, {AUTOMATIC: _FIRST, 0: math.inf}.get(fixed, fixed)

    def before_step(self) -> None:
        if self._steps >= self._interval:
            self._compare()
        self._steps += 1
        self._training.completed += 1
        self._training.apart = True

    def _compare(self) -> float:
        """Returns the steps until the next comparison."""
        begin = time.perf_counter()
        model = self._model()
        checksum = backend.checksum(_trained(model))
        # The exchange costs no more than the checksum: if it takes longer, it waits for a rank, as the next step would.
        cost = 2 * (time.perf_counter() - begin)
        proposal = _steps_between(cost, (begin - self._since) / self._steps)
        agreed = _compare(model, checksum, proposal)
        if self._fixed == AUTOMATIC:
            self._interval = agreed
        self._steps, self._since = 0, time.perf_counter()
        return self._interval


class BeforeSteps(keras.callbacks.Callback):
    """Calls the schedule before each step. Not after it: Keras may run on_train_batch_end in another thread."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        found = training.of(self.model)
        self._schedule = found.weight_checks
        found.try_again()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._schedule.before_step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        found = training.of(self.model)
        found.completed = max(1, found.completed)


def _steps_between(cost: float, step: float) -> int:
    """Steps between two comparisons of `cost` seconds each, where a step takes `step` seconds."""
    return max(1, math.ceil(cost / (_SHARE * max(step, 1e-6))))
