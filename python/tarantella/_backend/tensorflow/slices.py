"""Sparse gradients of TensorFlow (`tf.IndexedSlices`, from Embedding and gather), as one process has them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ... import _exchange
from ..._job import errors, runtime
from ..._job.groups import Group
from . import provenance


class Origin(NamedTuple):
    """What a rank's graph shows of one lookup. That of a rank with another number of rows may show something else."""

    # Whether the indices come from its rows (tokens); if not, one process has them once (positions, constants). None in
    # an eager step, which does not show it.
    own: bool | None
    rows: tuple[int, ...] = ()  # the numbers of rows of this rank's batch that TensorFlow knows
    unique: bool = False  # whether the graph shows that each index occurs once in the batch


class LookupSlices(NamedTuple):
    """The slices of one lookup, or of several that were joined where their origin cannot be told."""

    slices: tf.IndexedSlices
    origin: Origin


def with_slices(gradient: tf.IndexedSlices, values: tf.Tensor, indices: tf.Tensor) -> tf.IndexedSlices:
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def by_lookup(gradient: tf.IndexedSlices, rows: Sequence[int] = (), empty: Any = None) -> list[LookupSlices]:
    """The slices by lookup, also where TensorFlow has joined several: as many on all ranks.

    `rows` are the numbers of rows of this rank's batch that TensorFlow knows while it traces. Where `empty`, a scalar
    bool, is true, pieces have no slices. Eagerly, and for lookups joined inside a `tf.function`, the slices stay one
    piece.
    """
    values, lookups, origins = [gradient.values], [gradient.indices], [Origin(None)]
    if not tf.executing_eagerly():
        lookups = _joined(gradient.indices)
        values = values if len(lookups) == 1 else tf.split(gradient.values, [tf.size(each) for each in lookups])
        origins = [_origin_of(each, tuple(rows)) for each in lookups]
    if empty is not None:
        kept = [tf.where(empty, 0, tf.shape(each)[0]) for each in lookups]
        values, lookups = ([each[:n] for each, n in zip(parts, kept, strict=True)] for parts in (values, lookups))
    return [
        LookupSlices(with_slices(gradient, *each[:2]), each[2]) for each in zip(values, lookups, origins, strict=True)
    ]


def scaled(gradient: Any, weight: Callable[[Any], Any]) -> Any:
    """A gradient, dense, sparse or None, times `weight(dtype)`."""
    if isinstance(gradient, tf.IndexedSlices):
        return with_slices(gradient, gradient.values * weight(gradient.dtype), gradient.indices)
    return None if gradient is None else gradient * weight(gradient.dtype)


def _origin_of(indices: tf.Tensor, rows: tuple[int, ...]) -> Origin:
    own = provenance.differs_between_ranks([(indices, None)])
    return Origin(own, rows, own and provenance.are_unique(indices))


def _joined(indices: tf.Tensor) -> list[tf.Tensor]:
    if indices.op.type != "ConcatV2":
        return [indices]
    return [part for each in indices.op.inputs[:-1] for part in _joined(each)]


def of_all_ranks(
    gradients: list[list[LookupSlices]], group: Group, step_number: Any = None, checked: Sequence[str] = ()
) -> list[tf.IndexedSlices]:
    """The slices that one process has for the global batch, from this rank's pieces of each gradient.

    Slices of rows are those of all ranks, in rank order, which is the order of the global batch's rows. Slices that
    the batch has once, whatever its rows, are summed over the ranks. Collective when it runs, in a graph or eagerly.
    One function takes them all, so that ranks cannot differ in the order of several. `step_number` is that of the
    training step.
    With the names of the gradients in `checked`, one that is not finite is an error.
    """
    flat = [piece for gradient in gradients for piece in gradient]
    parts = [part for piece in flat for part in (piece.slices.values, piece.slices.indices)]
    names = [name for name, gradient in zip(checked, gradients, strict=False) for _ in gradient]
    exchange = functools.partial(_exchanged, group, [piece.origin for piece in flat], names)
    step = tf.constant(0, tf.int64) if step_number is None else step_number
    exchanged = tf.numpy_function(exchange, [step, *parts], [part.dtype for part in parts], name=provenance.SLICES)
    for result, part in zip(exchanged, parts, strict=True):
        result.set_shape([None, *part.shape[1:]])
    pairs = iter(zip(exchanged[::2], exchanged[1::2], strict=True))
    results = []
    for gradient in gradients:
        values, indices = zip(*(next(pairs) for _ in gradient), strict=True)
        joined = (each[0] if len(each) == 1 else tf.concat(each, 0) for each in (values, indices))
        results.append(with_slices(gradient[0].slices, *joined))
    return results


class _Row(NamedTuple):
    """What ranks exchange about a piece: a row of int64. A rank that has joined (`hvd.join`) has zeros."""

    own: int  # 1: the indices are from this rank's rows, 0: they are not, -1: unknown
    size: int
    # 0: an index repeats, 1: none does, 2: they are consecutive. For indices of rows 1 only where the graph shows it.
    kind: int
    hash: int


def _exchanged(
    group: Group, origins: list[Origin], checked: list[str], number: np.int64, *parts: NDArray[Any]
) -> list[NDArray[Any]]:
    """Values and indices of each piece, of all ranks.

    Ranks first exchange what they know of their pieces, so that all treat each in the same way.
    """
    for name, values in zip(checked, parts[::2], strict=False):
        if not np.isfinite(values).all():
            raise errors.Error(
                f"rank {runtime.get_rank()}: the sparse gradient of {name!r} is not finite (TNT_CHECK_GRADIENTS): look "
                "for a division by 0, a logarithm or root of 0, or a learning rate that is too high"
            )
    context = group.context() or runtime.context()
    own = [_row(*each) for each in zip(origins, parts[1::2], strict=True)]
    step = f" of training step {number}" if number else ""
    table = context.allgather(np.array(own, np.int64), f"what is known of {len(own)} pieces of sparse gradients{step}")
    results: list[NDArray[Any]] = []
    for i, (values, indices) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        results += _of_piece(context, [_Row(*rank[i].tolist()) for rank in table], values, indices)
    return results


def _row(origin: Origin, indices: NDArray[Any]) -> _Row:
    if origin.own:
        return _Row(1, len(indices), int(origin.unique and len(np.unique(indices)) == len(indices)), 0)
    kind = int(len(np.unique(indices)) == len(indices))
    kind += bool(kind and (np.diff(indices) == 1).all())
    digest = hashlib.blake2b(np.ascontiguousarray(indices).tobytes(), digest_size=8).digest()
    number = int.from_bytes(digest, "little", signed=True)
    is_unsure = origin.own is None or any(_same_for_each(indices, rows) for rows in origin.rows)
    return _Row(-1 if is_unsure else 0, len(indices), kind, number)


def _same_for_each(indices: NDArray[Any], rows: int) -> bool:
    """Whether constants are the same for each row: then they may depend on the number of rows."""
    count = len(indices)
    if not rows or not count or count % rows:
        return False
    if len(np.unique(indices)) == count:
        return count == rows == 1
    outer = (each for each in range(1, count // rows + 1) if count // rows % each == 0)
    blocks = (indices.reshape(each, rows, -1) for each in outer)
    return any((block == block[:, :1]).all() for block in blocks)


def _of_piece(
    context: Any, ranks: list[_Row], values: NDArray[Any], indices: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The slices that one process has. Which collectives run depends on `ranks` alone, the same on all of them."""

    def gathered(part: NDArray[Any]) -> NDArray[Any]:
        return _exchange.rows(context, part, "slices of a gradient")

    some = [each for each in ranks if each.size]  # a rank without rows has no slices
    if some and all(each.own == 1 and each.kind for each in some):  # one process has each index once, too
        return _summed(gathered(values), gathered(indices), distinct=True)
    alike = len({(each.size, each.hash) for each in some}) == 1
    if not _once([each.own for each in ranks], some, alike):
        return gathered(values), gathered(indices)
    if alike:
        if len(some) < len(ranks):
            indices = gathered(indices)[: some[0].size]
        values = values if len(values) else np.zeros((some[0].size, *values.shape[1:]), values.dtype)
        wide = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
        return context.allreduce(wide, "slices of a gradient").astype(values.dtype, copy=False), indices
    return _summed(gathered(values), gathered(indices), all(each.kind for each in some))


def _once(own: list[int], some: list[_Row], alike: bool) -> bool:
    """Whether one process has these slices once.

    What one rank knows holds for all. Where none does, consecutive indices that are the same on all ranks count as
    positions, others as rows.
    """
    if 1 in own or not some:
        return False
    return any(each.own == 0 for each in some) or (alike and all(each.kind == 2 and each.size > 1 for each in some))


def _summed(values: NDArray[Any], indices: NDArray[Any], distinct: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """One slice for each index that some rank has, summed in rank order; unchanged where a rank repeats one."""
    if not distinct:
        return values, indices
    union, places = np.unique(indices, return_inverse=True)
    sums = np.zeros((len(union), *values.shape[1:]), np.promote_types(values.dtype, np.float32))
    np.add.at(sums, places, values)
    return sums.astype(values.dtype, copy=False), union
