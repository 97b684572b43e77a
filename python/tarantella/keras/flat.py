"""Many arrays as one, and back: one exchange instead of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def join(arrays: Iterable[Any], dtype: Any) -> NDArray[Any]:
    """The elements of all arrays, one after the other, converted to `dtype`."""
    return np.concatenate([np.empty(0, dtype), *(np.asarray(each).astype(dtype).ravel() for each in arrays)])


def cut(flat: NDArray[Any], like: Sequence[Any]) -> list[NDArray[Any]]:
    """What `join` joined: views of `flat` in the shapes of `like`. Elements beyond those are left out."""
    ends = np.cumsum([int(np.prod(each.shape, dtype=np.int64)) for each in like])
    starts = [0, *ends[:-1]]
    return [flat[start:end].reshape(each.shape) for start, end, each in zip(starts, ends, like, strict=True)]
