"""Sparse gradients of TensorFlow (`tf.IndexedSlices`, from Embedding and gather), as one process has them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .. import _rows, _runtime
from . import tensorflow_origin


class Origin(enum.Enum):
    """Where the indices of slices come from."""

    ROWS = enum.auto()  # of the batch: each rank has its own
    BATCH = enum.auto()  # constants, variables, the length of rows (positions): one process has them once
    UNKNOWN = enum.auto()  # an eager step, whose tensors do not say how they were made


class Piece(NamedTuple):
    """Slices of one origin."""

    slices: tf.IndexedSlices
    origin: Origin


def like(gradient: tf.IndexedSlices, values: tf.Tensor, indices: tf.Tensor) -> tf.IndexedSlices:
    """Other slices of the same variable."""
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def without_repeats(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """One slice for each row that has any: their sum, in a fixed order."""
    rows, places = tf.unique(gradient.indices)
    return like(gradient, tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows)), rows)


def pieces(gradient: tf.IndexedSlices) -> list[Piece]:
    """The slices by origin, also where TensorFlow has joined those of several lookups.

    Eagerly, and for lookups joined inside a `tf.function`, they stay one piece.
    """
    if tf.executing_eagerly():
        return [Piece(gradient, Origin.UNKNOWN)]
    lookups = _joined(gradient.indices)
    origins = [Origin.ROWS if tensorflow_origin.from_rows(each) else Origin.BATCH for each in lookups]
    if len(set(origins)) == 1:
        return [Piece(gradient, origins[0])]
    values = tf.split(gradient.values, [tf.size(each) for each in lookups])
    found = []
    for origin in (Origin.ROWS, Origin.BATCH):
        chosen = [i for i, each in enumerate(origins) if each is origin]
        slices = (tf.concat([parts[i] for i in chosen], 0) for parts in (values, lookups))
        found.append(Piece(like(gradient, *slices), origin))
    return found


def changed(gradient: list[Piece], change: Callable[[Any, Any], tuple[Any, Any]]) -> list[Piece]:
    """The pieces with what `change` makes of their values and indices."""
    return [Piece(like(each, *change(each.values, each.indices)), origin) for each, origin in gradient]


def _joined(indices: tf.Tensor) -> list[tf.Tensor]:
    if indices.op.type != "ConcatV2":
        return [indices]
    return [part for each in indices.op.inputs[:-1] for part in _joined(each)]


def of_all_ranks(gradients: list[list[Piece]]) -> list[tf.IndexedSlices]:
    """The slices that one process has for the global batch, from this rank's pieces of each gradient.

    Slices of rows are those of all ranks, in rank order, which is the order of the global batch's rows. Slices that
    the batch has once, whatever its rows, are summed over the ranks. Collective when it runs, in a graph or eagerly.
    One function takes them all, so that ranks cannot differ in the order of several.
    """
    flat = [piece for gradient in gradients for piece in gradient]
    parts = [part for piece in flat for part in (piece.slices.values, piece.slices.indices)]
    exchange = functools.partial(_exchanged, [piece.origin for piece in flat])
    exchanged = tf.numpy_function(exchange, parts, [part.dtype for part in parts])
    for result, part in zip(exchanged, parts, strict=True):
        result.set_shape([None, *part.shape[1:]])
    pairs = iter(zip(exchanged[::2], exchanged[1::2], strict=True))
    results = []
    for gradient in gradients:
        values, indices = zip(*(next(pairs) for _ in gradient), strict=True)
        joined = (each[0] if len(each) == 1 else tf.concat(each, 0) for each in (values, indices))
        results.append(like(gradient[0].slices, *joined))
    return results


def _exchanged(origins: list[Origin], *parts: NDArray[Any]) -> list[NDArray[Any]]:
    """Values and indices of each piece, of all ranks."""
    context = _runtime.context()
    results = []
    for origin, values, indices in zip(origins, parts[::2], parts[1::2], strict=True):
        both = [_rows.of_all_ranks(context, part, "slices of a gradient") for part in (values, indices)]
        if origin is not Origin.ROWS:
            counts = context.allgather(np.array([len(indices)], np.int64), "slices a rank").ravel()
            both = _once(origin, counts, *both)
        results += both
    return results


def _once(origin: Origin, counts: NDArray[np.int64], values: NDArray[Any], indices: NDArray[Any]) -> list[NDArray[Any]]:
    """The sum over ranks of slices that all have alike; as they are where ranks differ, as random indices do.

    A rank without rows has no slices.
    """
    count = int(counts.max(initial=0))
    some = counts[counts > 0]
    if not count or (some != count).any():
        return [values, indices]
    each = indices.reshape(len(some), count)
    if (each != each[0]).any() or (origin is Origin.UNKNOWN and not _like_positions(each[0])):
        return [values, indices]
    wide = np.promote_types(values.dtype, np.float32)
    sums = values.reshape(len(some), count, *values.shape[1:]).sum(axis=0, dtype=wide)
    return [sums.astype(values.dtype), np.ascontiguousarray(each[0])]


def _like_positions(indices: NDArray[Any]) -> bool:
    """Whether indices that all ranks have alike are no rows that agree by chance: several, none of them twice."""
    return 1 < len(indices) == len(np.unique(indices))
