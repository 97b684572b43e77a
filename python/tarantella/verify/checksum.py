"""Checksums of the rows that the steps of a model read, independent of their order within a batch.

The checksum of a row is a sum over its elements, so zeros do not change it: ranks pad ragged rows to other lengths than
one process does. A fingerprint of its bytes (tf.fingerprint) would differ.
"""

from __future__ import annotations

from typing import Any

from keras import ops, tree

from ..data import tf_data
from ..data.rows import has_rows
from ..keras import model_state


class Rows:
    """Counts rows and sums their checksums. The sums over the ranks are those of the global batches."""

    def __init__(self) -> None:
        self._count, self._checksum = model_state.counter(), model_state.counter()

    def note(self, data: Any, count: Any = None) -> None:
        """Adds a batch, eagerly or in a graph. With `count` = 0 its rows are padding and are ignored."""
        leaves = [leaf for leaf in tree.flatten(data) if has_rows(leaf)]
        count = tf_data.slicer.rows_of(leaves[0]) if count is None else count
        total = tf_data.slicer.checksum_of_rows(leaves)
        self._count.assign_add(count)
        self._checksum.assign_add(ops.where(count > 0, total, ops.zeros_like(total)))

    def take(self) -> tuple[int, int]:
        """Rows and checksum since the last call."""
        taken = int(self._count.numpy()), int(self._checksum.numpy())
        self._count.assign(0)
        self._checksum.assign(0)
        return taken
