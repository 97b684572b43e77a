"""Keras's own adapter of an input, cut down to the micro batches of one rank.

What Keras knows about an input (its batches, its hooks at the ends of epochs) stays Keras's to say.
"""

from __future__ import annotations

from typing import Any

from ..keras import private


class MicroBatches(private.DataAdapter):
    """What fit, evaluate and predict iterate over in the place of the user's input."""

    def __init__(self, source: private.DataAdapter, dataset: Any, num_batches: int | None) -> None:
        """`source` gets the hooks of the epochs that `dataset`, made from it, is read in."""
        self._source, self._dataset, self._num_batches = source, dataset, num_batches

    @property
    def element_spec(self) -> Any:
        """The type of the micro batches."""
        return self._dataset.element_spec

    @property
    def num_batches(self) -> int | None:
        """Batches an epoch, None where that is unknown or infinite."""
        return self._num_batches

    def get_tf_dataset(self) -> Any:
        # A generator goes on where it was: batches that were read ahead must not be lost between two epochs,
        # as they are in plain Keras, since how many these are differs from rank to rank.
        return _Once(self._dataset) if isinstance(self._source, private.GeneratorDataAdapter) else self._dataset

    def on_epoch_begin(self) -> None:
        self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._source.on_epoch_end()


class _Once:
    """A dataset that is iterated once, however often it is asked."""

    def __init__(self, dataset: Any) -> None:
        self._iterator = iter(dataset)

    def __iter__(self) -> Any:
        return self._iterator


def adapt(x: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> private.DataAdapter:
    """Keras's adapter of any input that Keras takes. Raises its errors; ValueError for what it does not take."""
    try:
        return private.data_adapters.get_data_adapter(x, y, sample_weight, **options)
    except ValueError as error:
        if not str(error).startswith("Unrecognized data type"):
            raise
    raise ValueError(
        f"Keras takes no data of the type {type(x).__name__}; pass arrays, a batched tf.data.Dataset, a generator, "
        "a keras.utils.PyDataset or a torch DataLoader"
    )


def _teach_keras() -> None:
    """Lets early Keras 3 take an adapter where data is expected, as later ones do by themselves."""
    original = private.data_adapters.get_data_adapter

    def get_data_adapter(x: Any, *arguments: Any, **options: Any) -> private.DataAdapter:
        return x if isinstance(x, MicroBatches) else original(x, *arguments, **options)

    try:
        original(MicroBatches(None, None, None))
    except ValueError:
        private.data_adapters.get_data_adapter = get_data_adapter


_teach_keras()
