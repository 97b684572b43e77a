"""Cutting the rows of a rank out of global batches, inside a tf.data pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from keras import tree

from ..._backend.tensorflow.plans import is_xla, operations
from ..._backend.tensorflow.steps import cut_rows
from ..rows import ROWS_LIMIT, SHARED, MicroBatch, PaddedMicroBatch, PredictBatch, has_rows

_WITHOUT_BYTES = (tf.string, tf.variant, tf.resource)  # whose tensors hold references


def micro_batch(
    data: Any, rows: Any, global_rows: Any, fingerprint: Any, padded: bool
) -> MicroBatch | PaddedMicroBatch:
    """Packs a micro batch. The three numbers are int64 scalars; `padded` if the row may be a copy."""
    metadata = tf.stack([rows, global_rows, fingerprint])
    return PaddedMicroBatch(data, metadata, tf.equal(rows, 0)) if padded else MicroBatch(data, metadata)


@dataclass(frozen=True)
class Slicer:
    """Cuts a rank's rows out of global batches, inside a tf.data pipeline."""

    rank: int
    size: int
    padded: bool
    positions: bool
    several_sizes: bool = False  # the components of a batch may differ in length; each first dimension counts rows

    def bounds(self, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """First row to take, number of rows to take (at least 1), number of rows that count, as `rows_of_rank`.

        `total` is a number of rows, or a vector of several. Of few operations: each costs every iterator a millisecond.
        """
        rows = (total + (self.size - 1 - self.rank)) // self.size
        start = total // self.size * self.rank + tf.minimum(total % self.size, self.rank)
        taken = tf.maximum(rows, 1)
        return start * tf.minimum(rows, 1), taken, rows

    def pack(self, data: Any, index: tf.Tensor, total: tf.Tensor, mark: tf.Tensor, bounds: Any) -> Any:
        """The dataset element for rows that are already cut.

        `index` is the number of the global batch, `mark` its fingerprint, and `bounds` are those of `total`.
        """
        start, taken, rows = bounds
        if not self.positions:
            return micro_batch(data, rows, total, (2 * index + 1) * mark, self.padded)
        places = index * ROWS_LIMIT + start + tf.range(taken, dtype=tf.int64)
        return PredictBatch(data, tf.where(rows == 0, tf.fill([taken], tf.constant(-1, tf.int64)), places))

    def cut(self, index: tf.Tensor, batch: Any) -> Any:
        """The dataset element of a whole global batch, whose components have the same number of rows.

        With `several_sizes` the numbers may differ if each is a multiple of the number of ranks. In all other cases the
        operation fails.
        """
        leaves = [leaf for leaf in tree.flatten(batch) if has_rows(leaf)]
        if all(isinstance(leaf, tf.Tensor) and leaf.dtype not in _WITHOUT_BYTES for leaf in leaves):
            return self._cut_at_once(index, batch, leaves)
        totals = tf.stack([rows_of(leaf) for leaf in leaves])
        fits = totals == totals[0]
        alike = "every part of a global batch must have the same number of rows, at least one"
        if self.several_sizes:
            fits = tf.reduce_all(fits) | (totals % self.size == 0)
            alike += f", or each a multiple of the {self.size} ranks"
        # Without functions for its two outcomes, as tf.debugging.Assert would have.
        check = tf.raw_ops.Assert(condition=tf.reduce_all(fits & (totals > 0)), data=[f"{alike}; {SHARED}"])
        with tf.control_dependencies([check]):
            bounds = self.bounds(tf.identity(totals))
        starts, counts, _ = (tf.unstack(each) for each in bounds)
        parts = iter(cut_rows(*each) for each in zip(leaves, starts, counts, strict=True))
        data = tree.map_structure(lambda leaf: next(parts) if has_rows(leaf) else leaf, batch)
        first = [each[0] for each in bounds]
        return self.pack(data, index, totals[0], fingerprint(leaves, totals[0]), first)

    def _cut_at_once(self, index: tf.Tensor, batch: Any, leaves: list[tf.Tensor]) -> Any:
        """The same by an operation of the core, for dense tensors of numbers."""
        made = operations().tarantella_cut(
            index=index,
            parts=leaves,
            N=len(leaves),
            rank=self.rank,
            size=self.size,
            positions=self.positions,
            several_sizes=self.several_sizes,
        )
        parts = map(_sliced, leaves, made.begins, made.sizes)
        data = tree.map_structure(lambda leaf: next(parts) if has_rows(leaf) else leaf, batch)
        made.metadata.set_shape([None if self.positions else 3])
        made.is_padding.set_shape([])
        if self.positions:
            return PredictBatch(data, made.metadata)
        return (
            PaddedMicroBatch(data, made.metadata, made.is_padding) if self.padded else MicroBatch(data, made.metadata)
        )


def fingerprint(leaves: list[Any], total: tf.Tensor) -> tf.Tensor:
    """The fingerprint of all values of a global batch, row by row."""
    parts = [part for leaf in leaves for part in tf.nest.flatten(leaf, expand_composites=True)]
    # First of each row, which uses several cores, then of these fingerprints in order.
    hashes = [tf.reshape(tf.fingerprint(part), [1, -1]) for part in parts if _is_plain(part)]
    return tf.bitcast(tf.fingerprint(tf.concat(hashes, 1)), tf.int64)[0] if hashes else total


def _is_plain(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank != 0 and tensor.dtype not in (tf.variant, tf.resource)


def _sliced(tensor: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    part = tf.raw_ops.Slice(input=tensor, begin=begin, size=size)
    if tensor.shape.rank is not None:
        # The number of rows stays unknown, though a graph that knew it would have a quarter fewer operations: nobody
        # could tell constants that are made of it from others (`slices.Origin`).
        part.set_shape([None, *tensor.shape[1:]])
    return part


def mark_arrival(batch: Any, rows: Any) -> Any:
    """Within a step: the batch, whose arrival the timeline shows. Nothing that needs it runs before.

    `rows` is a scalar integer. Shows nothing under XLA.
    """
    if is_xla():
        return batch
    parts = tf.nest.flatten(batch, expand_composites=True)
    with tf.device("CPU:0"):  # where the pipeline leaves them
        with tf.control_dependencies([part for part in parts if isinstance(part, tf.Tensor)]):
            marked = operations().tarantella_batch(tf.cast(rows, tf.int64))
        with tf.control_dependencies([marked]):
            parts = [tf.identity(part) if isinstance(part, tf.Tensor) else part for part in parts]
    return tf.nest.pack_sequence_as(batch, parts, expand_composites=True)


def rows_of(tensor: Any) -> tf.Tensor:
    """Length of the first dimension, as a scalar int64."""
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.nrows(out_type=tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    return tf.shape(tensor, out_type=tf.int64)[0]


_ODD = -7046029254386353131  # 2**64 divided by the golden ratio, as int64
_OTHER_ODD = -4658895280553007687


def checksum_of_rows(leaves: Sequence[Any]) -> tf.Tensor:
    """A number for the rows of a batch, whatever their order, a scalar of int64. Those of its parts add up to it.

    `leaves` are the parts of a batch, at least one, eager or in a graph. A leaf of another length than the first counts
    by itself.
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
