"""The rows of all ranks, of any dtype: they travel as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def of_all_ranks(context: Any, array: NDArray[Any], name: str, only: int | None = None) -> NDArray[Any]:
    """The rows of an array of one dimension or more, in rank order. Collective; first dimensions may differ.

    Where `only` names a rank, that rank gets them, and the others an array without rows.
    Raises MismatchError where rows differ in dtype or shape.
    """
    name = f"{name}, rows of {array.dtype.name} {list(array.shape[1:])}"
    width = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize
    if not width:  # an empty row still has to be counted
        rows = _of_bytes(context, np.zeros((len(array), 1), np.uint8), name, only)
        return np.zeros((len(rows), *array.shape[1:]), array.dtype)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(len(array), width)
    rows = _of_bytes(context, raw, name, only)
    return rows.reshape(-1).view(array.dtype).reshape(len(rows), *array.shape[1:])


def _of_bytes(context: Any, rows: NDArray[np.uint8], name: str, only: int | None) -> NDArray[np.uint8]:
    if only is None:
        return context.allgatherv(rows, name)
    return context.alltoall(rows, [len(rows) if rank == only else 0 for rank in range(context.size)], name)
