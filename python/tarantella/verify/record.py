"""The records of a run: one file for each rank and observation."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WHOLE = 4096  # weights up to this size are stored completely
_BUCKETS = 1024
_CHUNK = _BUCKETS * 1024

WARNINGS = "warnings.txt"  # the warnings of Tarantella, one per line


@dataclass
class Observation:
    """The state of one rank before the first step of a call (step 0) or after a step."""

    label: str  # "before step 1", "step 3", "step 1 of fit call 2"
    model: int  # the models are numbered in the order in which they begin to train
    method: str  # "fit" or "train_on_batch"
    call: int  # of that method, from 1
    step: int
    rows: int = 0  # of this rank, in this step
    checksum: int = 0  # of those rows; the sum over the ranks, modulo 2**64, identifies the global batch
    loss: float = 0.0  # the amount that the step added to the running sum of the loss on this rank
    weight: float = 0.0  # the amount that it added to the divisor of that sum
    learning_rate: float | None = None
    precision: str = "float32"  # the coarsest dtype of weights and computation
    loss_precision: str = "float32"
    names: list[str] = field(default_factory=list)  # of the trainable weights
    shapes: list[list[int]] = field(default_factory=list)
    sketches: list[NDArray[Any]] = field(default_factory=list)
    samples: list[NDArray[Any]] = field(default_factory=list)


def sample(value: NDArray[Any]) -> NDArray[Any]:
    """The values of a tensor; evenly spaced ones if it is large."""
    flat = value.reshape(-1)
    return flat[places(flat.size)].astype(np.float64)


def places(size: int) -> NDArray[np.int64]:
    """The positions of the values of `sample` in a flat tensor."""
    return np.unique(np.linspace(0, size - 1, min(size, _WHOLE)).astype(np.int64))


def sketch(value: NDArray[Any]) -> NDArray[np.float64]:
    """A short vector with approximately the 2-norm of the tensor. It is linear, so the same holds for differences.

    Small tensors are returned as they are. The values of large ones get random signs and are summed in buckets.
    """
    flat = value.reshape(-1)
    if flat.size <= _WHOLE:
        return flat.astype(np.float64)
    total = np.zeros(_BUCKETS)
    for number, start in enumerate(range(0, flat.size, _CHUNK)):
        part = flat[start : start + _CHUNK].astype(np.float64)
        part *= np.random.default_rng(number).integers(0, 2, part.size, np.int8) * 2.0 - 1.0
        total += np.pad(part, (0, -part.size % _BUCKETS)).reshape(-1, _BUCKETS).sum(axis=0)
    return total


def write(folder: Path, rank: int, number: int, observation: Observation) -> None:
    """Stores an observation as the `number`-th of its rank."""
    (folder / f"{rank}.{number:06d}.pickle").write_bytes(pickle.dumps(observation))


def read(folder: Path, rank: int) -> list[Observation]:
    """The observations of a rank, in order."""
    return [pickle.loads(path.read_bytes()) for path in sorted(folder.glob(f"{rank}.*.pickle"))]
