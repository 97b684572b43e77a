"""Bringing the predicted rows of all ranks into the order of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import tree
from numpy.typing import NDArray

from ... import _exchange
from ..._job import runtime


def in_order(outputs: Any, positions: NDArray[np.int64], lengths: NDArray[np.int64], everywhere: bool) -> Any:
    """All rows of all ranks, for any structure of arrays, or None but on the master. Collective.

    Where not `everywhere`, the other ranks keep none of them meanwhile. `positions` has one entry a row of this rank,
    -1 for rows that only fill up; they are dropped. `lengths` has a row for each batch: the rows that it has, and the
    length of each output for it. An output may have several rows for each, one after the other.

    Raises ValueError on all ranks where another number of rows was returned on any.
    """
    leaves, times = tree.flatten(outputs), _times(lengths)
    only = None if everywhere else runtime.get_master_rank()
    places = _gathered(positions, only)
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept], kind="stable")]
    ordered = []
    for leaf, n in zip(leaves, times, strict=True):
        rows = _gathered(leaf, only)
        ordered.append(rows[(order[:, None] * n + np.arange(n)).ravel()] if len(rows) else rows)
    return tree.pack_sequence_as(outputs, ordered) if only in (None, runtime.get_rank()) else None


def _times(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many rows each output has for each row. Collective."""
    rows, found = lengths[:, :1], lengths[:, 1:]
    times = found[0] // rows[0]
    fits = (found == times * rows) & ((times > 0) | (found == 0))
    batch, output = np.argwhere(~fits)[0] if not fits.all() else (0, 0)
    mine = np.array([fits.all(), rows[batch, 0], found[batch, output], *times], np.int64)
    everyone = runtime.context().allgather(mine, "lengths of predictions")
    wrong = np.flatnonzero(everyone[:, 0] == 0)
    if wrong.size == 0 and (everyone[:, 3:] != everyone[0, 3:]).any():
        wrong = np.flatnonzero((everyone[:, 3:] != everyone[0, 3:]).any(axis=1))
    if wrong.size:
        _, rows_of_batch, returned = everyone[wrong[0], :3]
        raise ValueError(
            f"predict_step returned {returned} rows for the {rows_of_batch} rows of a batch on rank {wrong[0]}, and "
            "several ranks can bring predictions into order only where there are as many for each row; return these, "
            "or predict on one rank alone: tnt_distribute_dataset=False"
        )
    return np.maximum(times, 1)


def _gathered(array: Any, only: int | None) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise NotImplementedError(
            f"predictions of the type {type(array).__name__} cannot be gathered from several ranks yet; "
            "return dense numbers of one shape"
        )
    return _exchange.rows(runtime.context(), array, "predictions", only)
