"""Bringing the predicted rows of all ranks into the order of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import tree
from numpy.typing import NDArray

from .. import _rows, _runtime


def in_order(outputs: Any, positions: NDArray[np.int64], everywhere: bool) -> Any:
    """All rows of all ranks, for any structure of arrays, or None but on the master. Collective.

    `positions` has one entry a row of this rank, -1 for rows that only fill up; they are dropped.
    """
    places = _gathered(positions)
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept], kind="stable")]
    here = everywhere or _runtime.is_master_rank()
    gathered = tree.map_structure(lambda leaf: _gathered(leaf)[order if here else []], outputs)
    return gathered if here else None


def _gathered(array: Any) -> NDArray[Any]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise NotImplementedError(
            f"predictions of the type {type(array).__name__} cannot be gathered from several ranks yet; "
            "return dense numbers of one shape"
        )
    return _rows.of_all_ranks(_runtime.context(), array, "predictions")
