"""Turns the user's input into the micro batches of this rank.

Keras's adapter tells the kind of input. All inputs that yield global batches are then split in the same way.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import tree

from .._job import log, runtime
from ..keras.private import ArrayDataAdapter, TFDatasetAdapter
from . import adapter as adapters
from . import arrays
from .adapter import MicroBatches
from .tf_data import of_arrays, of_batches, own_batches
from .tf_data.dataset import Dataset


class Feed:
    """One input of fit, evaluate or predict: checked, not yet split."""

    def __init__(self, what: str, adapter: Any, distributed: bool, batch_size: int | None) -> None:
        self.what, self.adapter, self.distributed = what, adapter, distributed
        self.batch_size = batch_size  # as the user gave it
        self._has_arrays = isinstance(adapter, ArrayDataAdapter)
        # Python code may draw from the generators of Python and NumPy, so ranks must start from the same states.
        self.runs_python = distributed and not isinstance(adapter, (ArrayDataAdapter, TFDatasetAdapter))

    def describe(self) -> list[str]:
        """The properties that must be equal on all ranks, one per line."""
        if not self.distributed:
            return [f"{self.what} of this rank's own"]
        lines = of_arrays.describe(self.adapter) if self._has_arrays else of_batches.describe(self.adapter)
        return [f"{self.what}: {line}" for line in lines]

    def rows_of_a_batch(self) -> int | None:
        """The rows of a full batch, or of the first batch of a PyDataset; None if only reading the data would tell."""
        if not self.distributed:
            return None
        if self._has_arrays:
            return int(min(self.adapter.batch_size, self.adapter._num_samples))
        if isinstance(self.adapter, TFDatasetAdapter):
            return of_batches.batch_size(self.adapter.get_tf_dataset())
        source = getattr(self.adapter, "py_dataset", None)
        leaves = [] if source is None else tree.flatten(source[0])
        return next((int(np.shape(leaf)[0]) for leaf in leaves if np.ndim(leaf)), None)

    def batches(self, positions: bool = False) -> MicroBatches:
        """The micro batches of this rank. Collective if the data is not distributed."""
        if not self.distributed:
            return own_batches.distribute(self.adapter)
        if isinstance(self.adapter, TFDatasetAdapter):
            log.logger.info("%s: %s", self.what, of_batches.who_maps(self.adapter.get_tf_dataset()))
        distribute = of_arrays.distribute if self._has_arrays else of_batches.distribute
        return distribute(self.adapter, runtime.get_rank(), runtime.get_size(), positions)


def feed_of(
    what: str,
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    distributed: bool = True,
    steps: int | None = None,
    shuffle: Any = False,
    class_weight: Any = None,
) -> Feed:
    """Checks one input. Raises ValueError for invalid data, and if micro and global batch sizes do not match.

    With `distributed=False` the input belongs to this rank: its batches are micro batches.
    """
    if x is None:
        raise ValueError(f"{what} is missing: x is None")
    if isinstance(x, Dataset) and x.shard == "file":
        x, distributed = x.distribute_dataset_across_ranks(), False
    are_arrays = arrays.can_distribute((x, y, sample_weight))
    x, batch_size = batched(what, model, x, batch_size, micro_batch_size, distributed)
    if of_batches.is_dataset(x):
        reason = of_batches.unbatched(x, what, _input_shapes(model))
        if reason:
            raise ValueError(f"{reason}; {what} must be batched by the global batch size: dataset.batch(…)")
    if not distributed:
        log.logger.info("%s is not distributed: every rank takes its micro batches from its own", what)
    # Avoids Keras's warning that it does not shuffle such inputs.
    shuffle = shuffle if are_arrays or isinstance(x, keras.utils.PyDataset) else False
    options = {"batch_size": batch_size, "shuffle": shuffle, "class_weight": class_weight}
    if are_arrays:
        adapter = arrays.adapt(x, y, sample_weight, steps=steps, **options)
    else:
        adapter = adapters.adapt(x, y, sample_weight, **options)
        if batch_size is not None:
            log.warn_once(f"batch_size={batch_size} is ignored: {what} is batched already")
    return Feed(what, adapter, distributed, batch_size)


def batched(
    what: str, model: Any, x: Any, batch_size: int | None, micro_batch_size: int | None, distributed: bool = True
) -> tuple[Any, int | None]:
    """The input and its batch size, adapted to the micro batch size if one is given.

    Raises ValueError if batch size and micro batch size do not match.
    """
    if isinstance(x, Dataset):
        x = x.dataset
    if micro_batch_size is None:
        return x, batch_size
    ranks = runtime.get_size() if distributed else 1
    wanted = micro_batch_size * ranks
    if arrays.can_distribute(x):
        given = batch_size
    elif not of_batches.is_dataset(x):
        raise ValueError(f"a micro batch size needs arrays or a tf.data.Dataset, but {what} is a {type(x).__name__}")
    elif of_batches.unbatched(x, what, _input_shapes(model)):
        return x.batch(wanted), batch_size
    else:
        given = of_batches.batch_size(x)
    if given not in (None, wanted):
        raise ValueError(
            f"micro batches of {micro_batch_size} on {ranks} ranks make global batches of {micro_batch_size} * {ranks} "
            f"= {wanted} rows, but {what} has batches of {given}: change one of them, or leave the micro batch size out"
        )
    return x, batch_size if of_batches.is_dataset(x) else wanted


def _input_shapes(model: Any) -> dict[str, tuple[Any, ...]]:
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):  # not built yet
        return {}
    return {tensor.name: tuple(tensor.shape) for tensor in inputs or []}
