"""From what the user passes as data to the dataset of this rank's micro batches.

A new kind of input is a class like `_Arrays` here, and a line in `feed`.
"""

from __future__ import annotations

import operator
import zlib
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from keras import tree

from .. import _log, _runtime
from ..data import arrays, tf_dataset

_FINGERPRINT_ROWS = 64


class Feed(Protocol):
    """One input of fit, evaluate or predict, checked but not yet turned into a dataset."""

    def describe(self) -> list[str]:
        """What all ranks must agree on, a line each."""

    def dataset(self, positions: bool = False) -> tf.data.Dataset:
        """The micro batches of this rank."""


class _Arrays:
    def __init__(self, what: str, adapter: Any) -> None:
        self.what, self.adapter = what, adapter

    def describe(self) -> list[str]:
        leaves = [leaf for leaf in tree.flatten(self.adapter._inputs) if leaf is not None]
        return [
            f"{self.what} of {self.adapter._num_samples} rows",
            f"{self.what} in batches of {self.adapter.batch_size}, shuffle={self.adapter._shuffle}",
            *(f"{self.what} part {i}: {leaf.dtype} {tuple(leaf.shape)}" for i, leaf in enumerate(leaves)),
            *(f"{self.what} part {i} with the fingerprint {_fingerprint(leaf)}" for i, leaf in enumerate(leaves)),
        ]

    def dataset(self, positions: bool = False) -> tf.data.Dataset:
        return arrays.distribute(self.adapter, _runtime.get_rank(), _runtime.get_size(), positions)


def _fingerprint(leaf: Any) -> str:
    """Of a few rows, spread evenly: enough to catch data that each rank has made up for itself."""
    rows = np.unique(np.linspace(0, leaf.shape[0] - 1, _FINGERPRINT_ROWS).astype(np.int64))
    if isinstance(leaf, np.ndarray):
        some = leaf[rows]
    elif isinstance(leaf, tf.Tensor):
        some = tf.gather(leaf, rows).numpy()
    else:
        return "none"
    return "none" if some.dtype.hasobject else f"{zlib.crc32(some.tobytes()):08x}"


class _Dataset:
    def __init__(self, what: str, source: tf.data.Dataset, class_weight: Any) -> None:
        self.what, self.source, self.class_weight = what, source, class_weight

    def describe(self) -> list[str]:
        batches = int(self.source.cardinality())
        return [
            f"{self.what} of {batches if batches >= 0 else 'unknown or infinitely many'} batches",
            *(f"{self.what} part {i}: {leaf}" for i, leaf in enumerate(tree.flatten(self.source.element_spec))),
        ]

    def dataset(self, positions: bool = False) -> tf.data.Dataset:
        rank, size = _runtime.get_rank(), _runtime.get_size()
        return tf_dataset.distribute(self.source, rank, size, self.class_weight, positions)


def check_size(name: str, value: Any) -> None:
    """Raises for a batch size that is no whole number (TypeError) or below 1 (ValueError)."""
    if value is None:
        return
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number or None (got {value!r})") from None
    if value < 1:
        raise ValueError(f"{name} must be at least 1 (got {value})")


def feed(
    what: str,
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: Any = False,
    class_weight: Any = None,
) -> Feed:
    """Checks one input. Raises ValueError for unfit data, NotImplementedError for a kind that is not ready."""
    if x is None:
        raise ValueError(f"{what} is missing: x is None")
    if isinstance(x, tf.data.Dataset):
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(f"{name} must be part of the dataset where x is a tf.data.Dataset")
        if batch_size is not None:
            _log.warn_once(f"batch_size={batch_size} is ignored: {what} is a dataset, which has batches already")
        tf_dataset.check(x, what, _input_shapes(model))
        return _Dataset(what, x, class_weight)
    if not arrays.can_distribute((x, y, sample_weight)):
        raise NotImplementedError(
            f"{what} of the type {type(x).__name__} cannot be distributed yet; pass arrays or a batched tf.data.Dataset"
        )
    adapter = arrays.adapt(
        x, y, sample_weight, batch_size=batch_size, steps=steps, shuffle=shuffle, class_weight=class_weight
    )
    return _Arrays(what, adapter)


def _input_shapes(model: Any) -> list[tuple[Any, ...]]:
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):  # not built yet
        return []
    return [tuple(tensor.shape) for tensor in inputs or []]
