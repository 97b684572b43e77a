"""Which rows of a global batch belong to which rank, and the elements that carry them to the step."""

from __future__ import annotations

from typing import Any, NamedTuple


class MicroBatch(NamedTuple):
    """This rank's rows of one global batch. Hooks act on this type and the next only: other batches are plain Keras."""

    data: Any  # x, (x, y) or (x, y, sample_weight), as Keras takes it
    # int64: rows of this rank, rows of the global batch, a fingerprint of the global batch and its place, to be alike
    # on all ranks. One tensor, because TensorFlow takes time for every part of an element in every step.
    numbers: Any


class PaddedMicroBatch(NamedTuple):
    """A `MicroBatch` of a dataset where a batch may have fewer rows than there are ranks.

    A rank without rows gets one copied row and `rows` = 0: layers never run on nothing, and the step
    undoes what the copy did. The field more tells the two types apart where TensorFlow compares tuples.
    """

    data: Any
    numbers: Any
    copied: Any  # scalar bool: whether the one row is a copy


class PredictBatch(NamedTuple):
    """This rank's rows of one global batch to predict."""

    data: Any
    positions: Any  # int64 of shape (rows,): grows with the place in the dataset, -1 for a copied row


# Rows of one batch in `PredictBatch.positions`: batch * ROWS_LIMIT + row.
ROWS_LIMIT = 2**31


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """First row and number of rows of a rank: consecutive rows, the remainder spread by one."""
    base, extra = divmod(total, size)
    return rank * base + min(rank, extra), base + (rank < extra)


SHARED = "give what all rows share to the model, not to the batch"


def has_rows(leaf: Any) -> bool:
    """False for one number for the whole batch, and for what stands in the place of a part that a batch lacks."""
    shape = getattr(leaf, "shape", None)
    return shape is not None and shape.rank != 0
