"""A number for the rows of a batch, whatever their order; numbers of parts of a batch add up to that of all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_ODD = -7046029254386353131  # 2**64 divided by the golden ratio, as int64
_OTHER_ODD = -4658895280553007687


def checksum_of_rows(leaves: Sequence[Any]) -> tf.Tensor:
    """A scalar of int64. `leaves` are the parts of a batch, at least one, eager or in a graph.

    A leaf of another length than the first counts by itself.
    """
    sums = [_sums(place, leaf) for place, leaf in enumerate(leaves)]
    rows = tf.shape(sums[0])[0]
    whole, others = sums[0], tf.constant(0, tf.int64)
    for leaf in sums[1:]:
        split = tf.where(tf.shape(leaf)[0] == rows, rows, 0)
        whole += tf.pad(leaf[:split], [[0, rows - split]])
        others += tf.reduce_sum(_mix(leaf[split:]))
    return tf.reduce_sum(_mix(whole)) + others


def _sums(place: int, leaf: Any) -> tf.Tensor:
    """For each row the sum of its elements' bits, each times a number of its place. Wraps around."""
    bits = _bits(leaf)
    flat = tf.reshape(bits, [tf.shape(bits)[0], -1])
    places = tf.range(tf.shape(flat, out_type=tf.int64)[1])
    return tf.reduce_sum(flat * (_mix((places + 1) * _ODD + place) | 1), axis=1)


def _bits(leaf: Any) -> tf.Tensor:
    if isinstance(leaf, tf.SparseTensor):
        leaf = tf.sparse.to_dense(leaf)
    elif isinstance(leaf, tf.RaggedTensor):
        leaf = leaf.to_tensor()
    if leaf.dtype == tf.string:
        return tf.strings.to_hash_bucket_fast(leaf, 2**62)
    if leaf.dtype.is_floating:
        return tf.cast(tf.bitcast(tf.cast(leaf, tf.float32), tf.int32), tf.int64)
    return tf.cast(leaf, tf.int64)


def _mix(number: tf.Tensor) -> tf.Tensor:
    number = tf.bitwise.bitwise_xor(number, tf.bitwise.right_shift(number, 31)) * _OTHER_ODD
    return tf.bitwise.bitwise_xor(number, tf.bitwise.right_shift(number, 29))
