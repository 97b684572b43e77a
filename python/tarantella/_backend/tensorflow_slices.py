"""Sparse gradients of TensorFlow (`tf.IndexedSlices`, from Embedding and gather): those of all ranks, put together."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from .. import _rows, _runtime


def like(gradient: tf.IndexedSlices, values: tf.Tensor, indices: tf.Tensor) -> tf.IndexedSlices:
    """Other slices of the same variable."""
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def without_repeats(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """One slice for each row that has any: their sum, in a fixed order."""
    rows, places = tf.unique(gradient.indices)
    return like(gradient, tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows)), rows)


def gather(gradients: list[tf.IndexedSlices]) -> list[tf.IndexedSlices]:
    """The slices of all ranks for each gradient, in rank order, which is the order of the global batch's rows.

    Collective when it runs, in a graph or eagerly. One function takes them all, so that ranks cannot differ in the
    order of several.
    """
    parts = [part for g in gradients for part in (g.values, g.indices)]
    gathered = tf.numpy_function(_concatenated, parts, [part.dtype for part in parts])
    for result, part in zip(gathered, parts, strict=True):
        result.set_shape([None, *part.shape[1:]])
    return [like(g, gathered[2 * i], gathered[2 * i + 1]) for i, g in enumerate(gradients)]


def _concatenated(*parts: NDArray[Any]) -> list[NDArray[Any]]:
    """Each array joined with those of the other ranks along the first dimension."""
    return [_rows.of_all_ranks(_runtime.context(), part, "slices of a gradient") for part in parts]
