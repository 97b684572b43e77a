"""Finds out whether a function of a batch is a mean or a sum over its rows, by calling it on small batches.

User-defined code does not tell which of them it computes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from ..._backend import backend
from ..._job import runtime

_ROWS, _FIRST = 5, 2
_UNKNOWN_LENGTH = 4


class Certainty(enum.IntEnum):
    """How certain a verdict is."""

    EXACT = 0
    COUPLED = 1  # rows depend on each other or on random numbers: the verdict is the nearest one
    UNKNOWN = 2  # the trial failed or gave only zeros


class Verdict(NamedTuple):
    """How the values of parts of a batch combine to the value of the batch."""

    is_sum: bool  # if not, a mean over rows
    certainty: Certainty


UNKNOWN = Verdict(False, Certainty.UNKNOWN)


def try_out(evaluate: Callable[[slice], Mapping[Any, Any]]) -> dict[Any, Verdict]:
    """Judges each value that `evaluate` returns for a range of rows, by key. Collective.

    Calls it eagerly in another thread, for a batch of five rows and for two parts of it, and discards what it assigns
    to Keras's variables. All ranks get the same verdicts; values that only some ranks have are left out.
    """
    parts = (slice(_ROWS), slice(_FIRST), slice(_FIRST, _ROWS))
    try:
        both, a, b = backend.apart(lambda: [_numbers(evaluate, part) for part in parts])
    except Exception:  # user code may raise anything on synthetic data
        both, a, b = {}, {}, {}
    return _agreed({key: _judged(both[key], a[key], b[key]) for key in both if key in a and key in b})


def _numbers(evaluate: Callable[[slice], Mapping[Any, Any]], part: slice) -> dict[Any, NDArray[Any]]:
    with keras.StatelessScope():
        return {key: keras.ops.convert_to_numpy(value) for key, value in evaluate(part).items()}


def _judged(both: Any, a: Any, b: Any) -> Verdict:
    tolerance = max(1e-4, 16 * float(np.finfo(both.dtype).eps) if both.dtype.kind == "f" else 0.2)
    both, a, b = (float(np.sum(np.asarray(value, np.float64))) for value in (both, a, b))
    return judge(both, (a, b), (_FIRST, _ROWS - _FIRST), tolerance)


def judge(both: float, parts: tuple[float, float], rows: tuple[int, int], tolerance: float) -> Verdict:
    """The rule by which the values of two parts, of so many `rows` each, make that of `both` parts together.

    `tolerance` is relative to the largest of the three. Values that are all zero, or not finite, show nothing.
    """
    a, b = parts
    mean = (rows[0] * a + rows[1] * b) / sum(rows)
    scale = max(abs(both), abs(a), abs(b))
    if not np.isfinite([both, a, b]).all() or scale == 0:
        return UNKNOWN
    far = [abs(both - each) / scale for each in (mean, a + b)]
    is_sum = far[1] < far[0]
    return Verdict(is_sum, Certainty.EXACT if min(far) <= tolerance else Certainty.COUPLED)


def _agreed(verdicts: dict[Any, Verdict]) -> dict[Any, Verdict]:
    """The least certain verdict of all ranks, for each value."""
    context = runtime.context()
    count = int(context.allgather(np.array([len(verdicts)], np.int64), "verdicts").min())
    mine = np.array([[v.is_sum, v.certainty] for v in list(verdicts.values())[:count]], np.int64)
    if count == 0:
        return {}
    worst = context.allgather(np.ascontiguousarray(mine.ravel()), "verdicts").max(axis=0).reshape(-1, 2)
    return {
        key: Verdict(bool(is_sum), Certainty(certainty))
        for key, (is_sum, certainty) in zip(verdicts, worst.tolist(), strict=False)
    }


def batch_like(tensor: Any) -> NDArray[Any]:
    """Five rows of synthetic numbers with a tensor's shape and dtype: between 0 and 1, integers 0 or 1."""
    shape = tuple(_UNKNOWN_LENGTH if n is None else int(n) for n in tensor.shape[1:])
    dtype = np.dtype(keras.backend.standardize_dtype(tensor.dtype))
    random = np.random.default_rng([0, *shape])
    if dtype.kind not in "f":
        return random.integers(0, 2, (_ROWS, *shape)).astype(dtype)
    return random.uniform(0.05, 0.95, (_ROWS, *shape)).astype(dtype)
