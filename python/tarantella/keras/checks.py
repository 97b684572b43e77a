"""What ranks compare at the end of every epoch and evaluation: what they read, and what they have become."""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import numpy as np

from .. import _runtime
from .._backend import tensorflow as backend
from .._errors import MismatchError
from .._names import name_of
from . import sync

# By model: the sum of the fingerprints of the global batches since the last comparison.
_read: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def install(model: Any) -> None:
    """Prepares a model's steps to note what they read. Idempotent."""
    if model not in _read:
        _read[model] = backend.counter()


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
    lines = [
        f"{name_of(v)!r} with the checksum {zlib.crc32(np.ascontiguousarray(v).tobytes()):08x}"
        for v in model.trainable_variables
    ]
    sync.agree("trained weights", lines, "do the same to the model, its learning rate and optimizers on every rank")
