"""What ranks compare after every evaluation and epoch, and now and then within: what they read and have become."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import keras
import numpy as np

from .. import _runtime
from .._backend import tensorflow as backend
from .._environment import integer
from .._errors import MismatchError
from .._names import name_of
from . import sync

# Steps between two comparisons of weights: TNT_WEIGHT_CHECK_STEPS overrides it, 0 leaves the ends of epochs.
AUTOMATIC = -1
_FIRST = 32  # before the first one, which measures
_SHARE = 0.0005  # of the time that comparisons may take; to count steps may take as much again in a small network

# By model: the sum of the fingerprints of the global batches since the last comparison.
_read: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

# By model: when its weights are compared next.
_rhythms: weakref.WeakKeyDictionary[Any, Rhythm] = weakref.WeakKeyDictionary()


def install(model: Any) -> None:
    """Prepares a model's steps to note what they read. Idempotent."""
    if model not in _read:
        _read[model] = backend.counter()
        _rhythms[model] = Rhythm(model)


def note(model: Any, fingerprint: Any) -> None:
    """Adds one global batch, within a step."""
    _read[model].assign_add(fingerprint)


def forget(model: Any) -> None:
    """Starts anew, before the first step."""
    _read[model].assign(0)


def same_data(model: Any) -> None:
    """Raises MismatchError on all ranks unless all have read the same global batches. Collective."""
    mine = np.array([_read[model].numpy()], np.int64)
    forget(model)
    everyone = _runtime.context().allgather(mine, "fingerprints of the data").ravel()
    others = np.flatnonzero(everyone != everyone[0])
    if others.size:
        raise MismatchError(
            f"rank {others[0]} read other data than rank 0: each rank takes its rows of the same global batches; "
            "seed every shuffle, split and generator of random data alike on all ranks, or "
            "pass them the same files in the same order"
        )


def same_weights(model: Any) -> None:
    """Raises MismatchError on all ranks if the trainable weights of the ranks have drifted apart. Collective."""
    _compare(model, backend.checksum(model.trainable_variables))


def _compare(model: Any, checksum: int, proposal: int = 0) -> int:
    """As `same_weights`; the weights are looked at one by one only where they differ. The master's proposal."""
    mine = np.array([checksum, proposal], np.int64)
    everyone = _runtime.context().allgather(mine, "checksum of the weights")
    if (everyone[:, 0] != everyone[0, 0]).any():
        variables = model.trainable_variables
        lines = [f"{name_of(v)!r} with the checksum {backend.checksum([v]) % 2**64:016x}" for v in variables]
        cure = "do the same to the model, its learning rate and optimizers on every rank"
        sync.agree("trained weights", lines, cure)
    return int(everyone[0, 1])


def settings() -> dict[str, int]:
    """What ranks must have alike to compare their weights before the same steps."""
    return {"TNT_WEIGHT_CHECK_STEPS": integer("TNT_WEIGHT_CHECK_STEPS", AUTOMATIC)}


def start(model: Any) -> None:
    """To be called before the first of some steps, where ranks have the same settings."""
    forget(model)
    (fixed,) = settings().values()
    _rhythms[model].follow(fixed)


def rhythm(model: Any) -> Rhythm | None:
    """That of a model that has been fitted, evaluated or the like."""
    return _rhythms.get(model)


def before_step(model: Any) -> None:
    """Compares the weights of the ranks now and then, at most so often that it costs 0.1 % of the time. Collective."""
    _rhythms[model].before_step()


class Rhythm:
    """When a model's weights are compared: steps count from one epoch, and one call, to the next.

    The master measures and says when the next comparison is, unless the user does.
    """

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)
        self._fixed = AUTOMATIC
        self._steps = 0  # since the last comparison
        self.interval: float = _FIRST
        self._since = time.perf_counter()
        self.apart = False  # whether steps have run since the ranks brought together what their layers keep

    def follow(self, fixed: int) -> None:
        """Takes what TNT_WEIGHT_CHECK_STEPS says."""
        if fixed != self._fixed:
            self._fixed, self.interval = fixed, {AUTOMATIC: _FIRST, 0: math.inf}.get(fixed, fixed)

    def before_step(self) -> None:
        if self._steps >= self.interval:
            self._compare()
        self._steps += 1
        self.apart = True

    def _compare(self) -> float:
        """Returns the steps until the next comparison."""
        begin = time.perf_counter()
        model = self._model()
        checksum = backend.checksum(model.trainable_variables)  # type: ignore[union-attr]
        # The exchange costs no more than the checksum; where it takes longer, a rank waits that would wait anyway.
        cost = 2 * (time.perf_counter() - begin)
        proposal = interval(cost, (begin - self._since) / self._steps)
        agreed = _compare(model, checksum, proposal)
        if self._fixed == AUTOMATIC:
            self.interval = agreed
        self._steps, self._since = 0, time.perf_counter()
        return self.interval


class BeforeSteps(keras.callbacks.Callback):
    """Before, not after them: Keras may run what comes after a batch in another thread."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._rhythm = _rhythms[self.model]

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._rhythm.before_step()


def interval(cost: float, step: float) -> int:
    """Steps between two comparisons of `cost` seconds each, where a step takes `step` seconds."""
    return max(1, math.ceil(cost / (_SHARE * max(step, 1e-6))))
