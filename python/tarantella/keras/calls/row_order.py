"""Bringing the predicted rows of all ranks into the order of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import tree
from numpy.typing import NDArray

from ... import _exchange
from ..._job import runtime


def in_order(outputs: Any, positions: NDArray[np.int64], everywhere: bool) -> Any:
    """All rows of all ranks, for any structure of arrays, or None but on the master. Collective.

    Where not `everywhere`, the other ranks keep none of them meanwhile. `positions` has one entry a row of this rank,
    -1 for rows that only fill up; they are dropped.
    """
    only = None if everywhere else runtime.get_master_rank()
    places = _gathered(positions, only)
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept], kind="stable")]
    ordered = tree.map_structure(lambda leaf: _gathered(leaf, only)[order], outputs)
    return ordered if only in (None, runtime.get_rank()) else None


def _gathered(array: Any, only: int | None) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise NotImplementedError(
            f"predictions of the type {type(array).__name__} cannot be gathered from several ranks yet; "
            "return dense numbers of one shape"
        )
    return _exchange.rows(runtime.context(), array, "predictions", only)
