"""Keras's adapters of inputs, and `ShardedAdapter`: one reduced to the micro batches of one rank.

Keras's adapter still gives the number of batches and runs the input's hooks at the ends of epochs. The values of arrays
are compared by checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from keras import tree
from numpy.typing import NDArray

from .. import _exchange
from ..keras import private

are_arrays = private.can_convert_arrays


class ShardedAdapter(private.DataAdapter):
    """The input that fit, evaluate and predict iterate over instead of the user's."""

    num_batches: int | None = None  # per epoch, None if unknown or infinite

    def __init__(
        self,
        source: private.DataAdapter,
        batches: Any,
        num_batches: int | None,
        seek: Callable[[int], Any] | None = None,
    ) -> None:
        """`batches`, a dataset, are made from `source`, whose hooks run at the begin and end of each epoch.

        `seek(n)` is the dataset without its first n batches, where that is quicker than to read and drop them.
        """
        self._source, self._batches, self.num_batches = source, batches, num_batches
        self._seek = seek or batches.skip
        self.is_seekable = seek is not None  # a pass may begin with any batch, and the earlier ones are not read

    @property
    def element_spec(self) -> Any:
        return self._batches.element_spec

    def get_tf_dataset(self) -> Any:
        # A generator continues where it stopped. Plain Keras drops batches that were read ahead at the end of an epoch;
        # their number differs between ranks, so they must not be dropped here.
        return iter(self._batches) if isinstance(self._source, private.GeneratorDataAdapter) else self._batches

    def get_jax_iterator(self) -> Any:
        return iter(self._batches)

    def on_epoch_begin(self) -> None:
        self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._source.on_epoch_end()


def adapt(x: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> private.DataAdapter:
    """Keras's adapter for any input that Keras accepts. Raises Keras's errors, ValueError for other inputs."""
    try:
        return private.data_adapters.get_data_adapter(x, y, sample_weight, **options)
    except ValueError as error:
        if not str(error).startswith("Unrecognized data type"):
            raise
    raise ValueError(
        f"Keras does not accept data of type {type(x).__name__}; pass arrays, a batched tf.data.Dataset, a generator, "
        "a keras.utils.PyDataset or a torch DataLoader"
    )


def adapt_arrays(x: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> private.ArrayDataAdapter:
    """Keras's adapter for the arrays. Raises Keras's ValueError if lengths or structures do not match."""
    leaves = [leaf for leaf in tree.flatten((x, y, sample_weight)) if leaf is not None]
    if any(len(leaf.shape) == 0 or leaf.shape[0] == 0 for leaf in leaves if hasattr(leaf, "shape")):
        raise ValueError("the data is empty: every array needs at least one row")
    return private.ArrayDataAdapter(x, y, sample_weight=sample_weight, **options)


def rows_of_arrays(batch: Any) -> int:
    """The number of rows of arrays in any structure. Raises ValueError for other values, and if lengths differ."""
    if not are_arrays(batch):
        raise ValueError("a batch must be arrays or tensors, or lists, tuples or dicts of them")
    return private.rows_of(adapt_arrays(*batch))


# Ranks compare arrays of up to 1 GiB in full, larger ones in evenly spaced blocks.
_BLOCK, _BLOCKS = 2**20, 2**10


def described(adapter: private.ArrayDataAdapter, checksum_of: Callable[[Any], int]) -> list[str]:
    """The properties of arrays that must be equal on all ranks, one per line; `checksum_of` is that of an array."""
    whole = leaves_of(private.arrays_of(adapter))
    return [
        f"{private.rows_of(adapter)} rows",
        f"batches of {adapter.batch_size}, shuffle={private.is_shuffled(adapter)}",
        *(f"part {i}: {getattr(leaf, 'dtype', 'columns')} {tuple(leaf.shape)}" for i, leaf in enumerate(whole)),
        *(f"part {i} with the fingerprint {checksum_of(leaf) % 2**64:016x}" for i, leaf in enumerate(whole)),
    ]


def checksum(arrays: Iterable[Any], bytes_of: Callable[[Any], NDArray[Any]]) -> int:
    """The checksum, a signed number of 64 bits, of what `bytes_of` gives for blocks of rows of the arrays."""
    total = 0
    for array in arrays:
        for block in _blocks(array, bytes_of):
            total = _exchange.checksum([np.int64(total), bytes_of(block)])
    return total


def _blocks(array: Any, bytes_of: Callable[[Any], NDArray[Any]]) -> Iterator[Any]:
    rows = max(1, _BLOCK // max(1, bytes_of(array[:1]).nbytes))
    starts = np.arange(0, len(array), rows)
    if len(starts) > _BLOCKS:
        starts = starts[np.linspace(0, len(starts) - 1, _BLOCKS).astype(np.int64)]
    return (array[start : start + rows] for start in starts)


def leaves_of(structure: Any) -> list[Any]:
    return [leaf for leaf in tree.flatten(structure) if leaf is not None]
