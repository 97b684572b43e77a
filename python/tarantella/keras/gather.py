"""Bringing the predicted rows of all ranks into the order of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import tree
from numpy.typing import NDArray

from .. import _runtime


def in_order(outputs: Any, positions: NDArray[np.int64], everywhere: bool) -> Any:
    """All rows of all ranks, for any structure of arrays, or None but on the master. Collective.

    `positions` has one entry a row of this rank, -1 for rows that only fill up; they are dropped.
    """
    counts = _runtime.context().allgather(np.array([len(positions)], np.int64), "predicted rows").ravel()
    places = _rows(positions, counts)
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept], kind="stable")]
    here = everywhere or _runtime.is_master_rank()
    gathered = tree.map_structure(lambda leaf: _rows(leaf, counts)[order if here else []], outputs)
    return gathered if here else None


def _rows(array: Any, counts: NDArray[np.int64]) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise NotImplementedError(
            f"predictions of the type {type(array).__name__} cannot be gathered from several ranks yet; "
            "return dense numbers of one shape"
        )
    row = array.shape[1:]
    bytes_a_row = int(np.prod(row, dtype=np.int64)) * array.dtype.itemsize
    room = np.zeros((int(counts.max()) * bytes_a_row + 3) // 4 * 4, np.uint8)
    room[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    everyone = _runtime.context().allgather(room.view(np.int32), "predictions").view(np.uint8)
    parts = [raw[: int(n) * bytes_a_row] for raw, n in zip(everyone, counts, strict=True)]
    return np.concatenate(parts).view(array.dtype).reshape((-1, *row))
