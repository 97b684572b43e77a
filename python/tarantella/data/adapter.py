"""Keras's adapters of inputs, and `ShardedAdapter`: one reduced to the micro batches of one rank.

Keras's adapter still gives the number of batches and runs the input's hooks at the ends of epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import tree

from ..keras import private

are_arrays = private.can_convert_arrays


class ShardedAdapter(private.DataAdapter):
    """The input that fit, evaluate and predict iterate over instead of the user's."""

    def __init__(
        self,
        source: private.DataAdapter,
        batches: Any,
        num_batches: int | None,
        begin_at: Callable[[int], Any] | None = None,
    ) -> None:
        """`batches`, a dataset, are made from `source`, whose hooks run at the begin and end of each epoch.

        `begin_at(n)` is the dataset without its first n batches, where that is quicker than to read and drop them.
        """
        self._source, self._batches, self._num_batches = source, batches, num_batches
        self._begin_at = begin_at or batches.skip
        self.jumps = begin_at is not None  # a pass may begin with any batch, and the earlier ones are not read

    @property
    def element_spec(self) -> Any:
        """The type of the micro batches."""
        return self._batches.element_spec

    @property
    def num_batches(self) -> int | None:
        """Batches per epoch, None if unknown or infinite."""
        return self._num_batches

    def get_tf_dataset(self) -> Any:
        # A generator continues where it stopped. Plain Keras drops batches that were read ahead at the end of an epoch;
        # their number differs between ranks, so they must not be dropped here.
        return _Once(self._batches) if isinstance(self._source, private.GeneratorDataAdapter) else self._batches

    def get_jax_iterator(self) -> Any:
        return iter(self._batches)

    def on_epoch_begin(self) -> None:
        self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._source.on_epoch_end()


class _Once:
    """A dataset with a single iterator, which every iter() returns."""

    def __init__(self, dataset: Any) -> None:
        self._iterator = iter(dataset)

    def __iter__(self) -> Any:
        return self._iterator


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


def adapt_arrays(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: Any = None,
) -> private.ArrayDataAdapter:
    """Keras's adapter for the arrays. Raises Keras's ValueError if lengths or structures do not match."""
    leaves = [leaf for leaf in tree.flatten((x, y, sample_weight)) if leaf is not None]
    if any(len(leaf.shape) == 0 or leaf.shape[0] == 0 for leaf in leaves if hasattr(leaf, "shape")):
        raise ValueError("the data is empty: every array needs at least one row")
    return private.ArrayDataAdapter(
        x,
        y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps=steps,
        shuffle=shuffle,
        class_weight=class_weight,
    )


def rows_of_arrays(batch: Any) -> int:
    """The number of rows of arrays in any structure. Raises ValueError for other values, and if lengths differ."""
    if not are_arrays(batch):
        raise ValueError("a batch must be arrays or tensors, or lists, tuples or dicts of them")
    return private.rows_of(adapt_arrays(*batch))
