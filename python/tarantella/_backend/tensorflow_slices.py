"""Sparse gradients of TensorFlow (`tf.IndexedSlices`, from Embedding and gather): those of all ranks, put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .. import _runtime


def like(gradient: tf.IndexedSlices, values: tf.Tensor, indices: tf.Tensor) -> tf.IndexedSlices:
    """Other slices of the same variable."""
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def gather(gradients: list[tf.IndexedSlices]) -> list[tf.IndexedSlices]:
    """The slices of all ranks for each gradient, in rank order, which is the order of the global batch's rows.

    Collective when it runs, in a graph or eagerly. One exchange takes them all, so that ranks cannot differ in the
    order of several.
    """
    parts = [part for g in gradients for part in (g.values, g.indices)]
    gathered = tf.numpy_function(_concatenated, parts, [part.dtype for part in parts])
    for result, part in zip(gathered, parts, strict=True):
        result.set_shape([None, *part.shape[1:]])
    return [like(g, gathered[2 * i], gathered[2 * i + 1]) for i, g in enumerate(gradients)]


def _concatenated(*parts: NDArray[Any]) -> list[NDArray[Any]]:
    """Each array joined with those of the other ranks along the first dimension."""
    lengths = _runtime.context().allgather(np.array([len(part) for part in parts], np.int64), "lengths of slices")
    payload = np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])
    row_bytes = np.array([int(np.prod(part.shape[1:])) * part.itemsize for part in parts])
    sizes = (lengths * row_bytes).sum(axis=1)
    padded = np.zeros(max(int(sizes.max()) + 7 & ~7, 8), np.uint8)
    padded[: payload.size] = payload
    everyone = _runtime.context().allgather(padded.view(np.int64), "slices").view(np.uint8)
    ends = np.cumsum(lengths * row_bytes, axis=1)
    starts = ends - lengths * row_bytes
    return [
        np.concatenate([raw[a:b] for raw, a, b in zip(everyone, starts[:, i], ends[:, i], strict=True)])
        .view(part.dtype)
        .reshape((-1, *part.shape[1:]))
        for i, part in enumerate(parts)
    ]
