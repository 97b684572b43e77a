"""The rows of a global batch that belong to each rank, and the dataset elements that carry them to the step."""

from __future__ import annotations

from typing import Any, NamedTuple


class MicroBatch(NamedTuple):
    """This rank's rows of one global batch. Hooks act only on this type and the next; other batches are plain Keras."""

    data: Any  # x, (x, y) or (x, y, sample_weight)
    # int64: rows of this rank; rows of the global batch; a fingerprint of the global batch and its position, which must
    # be the same on all ranks. One tensor, because every component of an element costs TensorFlow time in each step.
    metadata: Any

    @property
    def rows(self) -> Any:
        """Those of this rank."""
        return self.metadata[0]


class PaddedMicroBatch(NamedTuple):
    """A `MicroBatch` of a dataset in which a batch may have fewer rows than there are ranks.

    A rank without rows gets one padding row and `rows` = 0: layers never run on an empty batch, and the step
    undoes the effects of the copy. The additional field tells the types apart where TensorFlow compares tuples.
    """

    data: Any
    metadata: Any
    is_padding: Any  # scalar bool: whether the one row is a copy

    @property
    def rows(self) -> Any:
        """Those of this rank."""
        return self.metadata[0]


class PredictBatch(NamedTuple):
    """This rank's rows of one global batch to predict."""

    data: Any
    positions: Any  # int64 of shape (rows,), in the order of the dataset; -1 for a padding row


# `PredictBatch.positions` are batch * ROWS_LIMIT + row.
ROWS_LIMIT = 2**31


def rows_of_rank(total: int, rank: int, size: int) -> tuple[int, int]:
    """First row and number of rows of a rank: consecutive rows; the first ranks get one of the remainder each."""
    base, extra = divmod(total, size)
    return rank * base + min(rank, extra), base + (rank < extra)


SHARED = "put values that all rows share into the model, not into the batch"


def has_rows(leaf: Any) -> bool:
    """False for a scalar for the whole batch, and for the placeholder of a missing component."""
    shape = getattr(leaf, "shape", None)
    return shape is not None and not shape == ()  # noqa: SIM201  (TensorFlow refuses != for an unknown shape)
