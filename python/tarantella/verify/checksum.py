"""Checksums of the rows that the steps of a model have read, independent of their order within a batch.

The numbers of a row add up over its elements, and zeros add nothing: ranks pad ragged rows to other lengths than one
process does. A fingerprint of a row's bytes (tf.fingerprint) would tell these apart.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import tree

from .._backend import tensorflow as backend
from ..data.rows import has_rows
from ..data.tf_data.slicer import rows_of

_ODD = -7046029254386353131  # 2**64 divided by the golden ratio, as int64
_OTHER_ODD = -4658895280553007687


class Rows:
    """Counts rows and sums their checksums. The sums over the ranks are those of the global batches."""

    def __init__(self) -> None:
        self._count, self._checksum = backend.counter(), backend.counter()

    def note(self, data: Any, count: Any = None) -> None:
        """Adds a batch, eagerly or in a graph. With `count` = 0 its rows are copies and are ignored."""
        leaves = [leaf for leaf in tree.flatten(data) if has_rows(leaf)]
        count = rows_of(leaves[0]) if count is None else count
        total = _total([_sums(place, leaf) for place, leaf in enumerate(leaves)])
        self._count.assign_add(count)
        self._checksum.assign_add(tf.where(count > 0, total, tf.zeros_like(total)))

    def take(self) -> tuple[int, int]:
        """Rows and checksum since the last call."""
        taken = int(self._count.numpy()), int(self._checksum.numpy())
        self._count.assign(0)
        self._checksum.assign(0)
        return taken


def _total(sums: list[tf.Tensor]) -> tf.Tensor:
    """The checksum of all rows over all leaves. Leaves whose length differs from the first are added separately."""
    rows = tf.shape(sums[0])[0]
    whole, others = sums[0], tf.constant(0, tf.int64)
    for leaf in sums[1:]:
        split = tf.where(tf.shape(leaf)[0] == rows, rows, 0)
        whole += tf.pad(leaf[:split], [[0, rows - split]])
        others += tf.reduce_sum(_mix(leaf[split:]))
    return tf.reduce_sum(_mix(whole)) + others


def _sums(place: int, leaf: Any) -> tf.Tensor:
    """For each row the sum of its elements' bits, each times a number for its position. Wraps around."""
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
