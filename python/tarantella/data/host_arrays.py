"""Distribution of arrays without TensorFlow, for trainers that iterate over NumPy arrays.

Keras's adapter gives the global batches in its own order, and each rank takes its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras import tree

from .. import _exchange
from ..keras import private
from ..keras.private import ArrayDataAdapter
from .adapter import ShardedAdapter, checksum, described, leaves_of
from .rows import MicroBatch, PaddedMicroBatch, PredictBatch, rows_of_rank


def describe(adapter: ArrayDataAdapter) -> list[str]:
    """The properties that must be equal on all ranks, one per line.

    Raises NotImplementedError for arrays that NumPy cannot read as numbers.
    """
    for i, leaf in enumerate(leaves_of(private.arrays_of(adapter))):
        if np.asarray(leaf).dtype.hasobject:
            raise NotImplementedError(f"part {i} is no array of numbers, which Keras's tensorflow backend needs so far")
    return described(adapter, lambda leaf: checksum([np.asarray(leaf)], np.asarray))


def distribute(adapter: ArrayDataAdapter, rank: int, size: int, positions: bool = False) -> ShardedAdapter:
    batches = _Batches(adapter, rank, size, positions)
    return ShardedAdapter(adapter, batches, adapter.num_batches, batches.skip)


@dataclass(frozen=True)
class _Batches:
    """Each iteration is an epoch."""

    adapter: ArrayDataAdapter
    rank: int
    size: int
    positions: bool
    first: int = 0

    @property
    def element_spec(self) -> Any:
        data = tree.map_structure(_type_of, private.arrays_of(self.adapter))
        if self.positions:
            return PredictBatch(data, keras.KerasTensor((None,), "int64"))
        return self._micro_batch(data, keras.KerasTensor((3,), "int64"), keras.KerasTensor((), "bool"))

    def skip(self, count: int) -> _Batches:
        """Without the first batches, which are read all the same."""
        return replace(self, first=self.first + count)

    def __iter__(self) -> Iterator[Any]:
        for index, batch in enumerate(self.adapter.get_numpy_iterator()):
            if index >= self.first:
                yield self._own_rows(index, batch)

    def _own_rows(self, index: int, batch: Any) -> Any:
        leaves = leaves_of(batch)
        total = len(leaves[0])
        start, rows = rows_of_rank(total, self.rank, self.size)
        taken = slice(start, start + rows) if rows else slice(0, 1)  # a padding row
        data = tree.map_structure(lambda leaf: None if leaf is None else leaf[taken], batch)
        if self.positions:
            first = index * self.adapter.batch_size + start
            return PredictBatch(data, np.arange(first, first + rows) if rows else np.array([-1]))
        # Of 31 bits, which JAX takes by default.
        fingerprint = (2 * index + 1) * _exchange.checksum(leaves) % 2**31
        return self._micro_batch(data, np.array([rows, total, fingerprint], np.int64), np.array(rows == 0))

    def _micro_batch(self, data: Any, metadata: Any, is_padding: Any) -> MicroBatch | PaddedMicroBatch:
        least = min(self.adapter.partial_batch_size or self.adapter.batch_size, self.adapter.batch_size)
        return PaddedMicroBatch(data, metadata, is_padding) if least < self.size else MicroBatch(data, metadata)


def _type_of(leaf: Any) -> Any:
    if leaf is None:
        return None
    return keras.KerasTensor((None, *leaf.shape[1:]), keras.backend.standardize_dtype(leaf.dtype))
