"""Horovod's collectives on tensors: eager or in a `tf.function`, with gradients.

Every rank of the process set makes the same calls in the same order. A call blocks until its result is complete.
Values are what `tf.convert_to_tensor` takes; results are tensors. Raises ValueError before `hvd.init` and on ranks that
are not in the process set, TypeError for types that ranks cannot exchange, and tarantella.MismatchError where ranks
disagree. Under `jit_compile=True` TensorFlow refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .. import collectives as core
from .._job import groups
from . import process
from .join_calls import Group
from .process_sets import ProcessSet, global_process_set
from .reductions import Average, Compression, Max, Min, Product, ReduceOp, Sum, chosen

_CORE = {
    Sum: core.ReductionOp.SUM,
    Min: core.ReductionOp.MIN,
    Max: core.ReductionOp.MAX,
    Product: core.ReductionOp.PRODUCT,
}
_Run = Callable[[Group, NDArray[Any]], NDArray[Any]]


@tf.autograph.experimental.do_not_convert
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of each element over the ranks, by default the average.

    `prescale_factor` multiplies the values before, `postscale_factor` after. Averages of integers, and their products
    with factors, are rounded towards zero. Of `tf.IndexedSlices` the slices of all ranks are concatenated. The devices,
    the name and its scope change nothing.
    """
    process.check("allreduce")
    op = chosen(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _slices(tensor, op, prescale_factor * postscale_factor, process_set)
    return _compressed(compression, _allreduce, tensor, op, prescale_factor, postscale_factor, process_set)


@tf.autograph.experimental.do_not_convert
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """`allreduce` of each tensor of a list, with the same arguments."""
    options = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "process_set": process_set}
    return [allreduce(each, average, compression=compression, op=op, **options) for each in tensors]


def _compressed(
    compression: Any,
    reduce: Callable[..., tf.Tensor],
    tensor: Any,
    op: ReduceOp,
    before: float,
    after: float,
    process_set: ProcessSet,
) -> tf.Tensor:
    if process_set.group().size == 1:
        compression = Compression.none
    short, context = compression.compress(tf.convert_to_tensor(tensor))
    return compression.decompress(reduce(short, op, before, after, process_set), context)


def _slices(slices: tf.IndexedSlices, op: ReduceOp, factor: float, process_set: ProcessSet) -> tf.IndexedSlices:
    if op not in (Average, Sum) or factor != 1.0:
        raise NotImplementedError("tf.IndexedSlices have averages and sums without factors; make them dense first")
    values, indices = (_allgather(each, process_set) for each in (slices.values, slices.indices))
    values = values / process_set.group().size if op == Average else values
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _allreduce(tensor: tf.Tensor, op: ReduceOp, before: float, after: float, process_set: ProcessSet) -> tf.Tensor:
    def run(group: Group, array: NDArray[Any]) -> NDArray[Any]:
        array = _scaled(array, before)
        if op == Product:
            group.announce("allreduce of the product")
        if op != Average:
            return _scaled(core.allreduce(array, _CORE[op], group), after)
        if "float" in array.dtype.name:
            return _scaled(core.allreduce(array, "average", group), after)
        return _scaled(core.allreduce(_roomy(array), "sum", group), after, group.size).astype(array.dtype)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return _allreduce(upstream, op, before, after, process_set)

    return _exchange(run, tensor, process_set, tensor.shape, gradient)


def _scaled(array: NDArray[Any], factor: float, divisor: int = 1) -> NDArray[Any]:
    """Times the factor, in the array's own type if that has 32 bits or more, rounded to it otherwise.

    The divisor is no factor: 49 times 1 / 49 is less than 1, which integers would round to 0.
    """
    if factor == 1.0 and divisor == 1:
        return array
    wide = np.promote_types(array.dtype, np.float32) if "float" in array.dtype.name else np.float64
    return (array.astype(wide) * np.asarray(factor, wide) / np.asarray(divisor, wide)).astype(array.dtype)


def _roomy(array: NDArray[Any]) -> NDArray[Any]:
    """Integers as a type that has room for their sum."""
    return array.astype(np.int64) if array.dtype.kind in "iu" and array.itemsize < 8 else array


@tf.autograph.experimental.do_not_convert
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The rows of all ranks in rank order. Their first dimensions may differ; a scalar counts as one row."""
    process.check("allgather")
    return _allgather(tf.convert_to_tensor(tensor), process_set)


@tf.autograph.experimental.do_not_convert
def grouped_allgather(tensors: Sequence[Any], *args: Any, **options: Any) -> list[tf.Tensor]:
    """`allgather` of each tensor of a list, with the same arguments."""
    return [allgather(each, *args, **options) for each in tensors]


def _allgather(tensor: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # A sum, in which ranks that have joined have no rows.
        own = tf.one_hot(process_set.rank() or 0, process_set.group().size, tf.shape(rows)[0], dtype=tf.int32)
        counts = _allreduce(own, Sum, 1.0, 1.0, process_set)
        parts = tf.split(_allreduce(upstream, Average, 1.0, 1.0, process_set), counts, num=process_set.group().size)
        return tf.reshape(parts[process_set.rank() or 0], tf.shape(tensor))

    rows = tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tensor
    shape = [None, *rows.shape[1:]] if rows.shape.rank else None
    return _exchange(lambda group, array: core.allgather(array, group), tensor, process_set, shape, gradient)


@tf.autograph.experimental.do_not_convert
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensor of one rank, whose number in the job is `root_rank`. All have its shape and type."""
    process.check("broadcast")
    tensor = tf.convert_to_tensor(tensor)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        mean = _allreduce(upstream, Average, 1.0, 1.0, process_set)
        return mean if process.rank() == root_rank else tf.zeros_like(mean)

    def run(group: Group, array: NDArray[Any]) -> NDArray[Any]:
        return core.broadcast(array, root_rank, group)

    return _exchange(run, tensor, process_set, tensor.shape, gradient)


@tf.autograph.experimental.do_not_convert
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's rows of the average, or of another reduction, over the ranks.

    The rows are split evenly in rank order; the first ranks get one more where the number of ranks does not divide
    them. Raises ValueError for a scalar.
    """
    process.check("reducescatter")
    op = chosen(op)
    return _compressed(compression, _reducescatter, tensor, op, prescale_factor, postscale_factor, process_set)


@tf.autograph.experimental.do_not_convert
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """`reducescatter` of each tensor of a list, with the same arguments."""
    options = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "process_set": process_set}
    return [reducescatter(each, compression=compression, op=op, **options) for each in tensors]


def _reducescatter(tensor: tf.Tensor, op: ReduceOp, before: float, after: float, process_set: ProcessSet) -> tf.Tensor:
    if tensor.shape.rank == 0:
        raise ValueError("hvd.reducescatter needs rows to give to the ranks (got a scalar)")

    def run(group: Group, array: NDArray[Any]) -> NDArray[Any]:
        array = _scaled(array, before)
        if op == Product:
            group.announce("reducescatter")
        floating = "float" in array.dtype.name
        reduction = _CORE.get(op, core.ReductionOp.AVERAGE)
        if op != Average or floating:
            return _scaled(core.reduce_scatter(array, reduction, group), after)
        return _scaled(core.reduce_scatter(_roomy(array), "sum", group), after, group.size).astype(array.dtype)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        factor = before * after * (process_set.group().size if op == Sum else 1)
        return _allgather(upstream * tf.cast(factor, upstream.dtype), process_set)

    shape = [None, *tensor.shape[1:]] if tensor.shape.rank else None
    return _exchange(run, tensor, process_set, shape, gradient)


@tf.autograph.experimental.do_not_convert
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows that the ranks have for this one, in rank order: `splits[i]` rows of `tensor` go to rank i.

    With `splits` it also returns how many rows came from each rank. Without, the rows are split evenly; ValueError if
    the number of ranks does not divide them.
    """
    process.check("alltoall")
    tensor, size = tf.convert_to_tensor(tensor), process_set.group().size
    if splits is not None:
        sent = tf.convert_to_tensor(splits)
        if not sent.dtype.is_integer or not sent.shape.is_compatible_with([size]):
            raise ValueError(f"hvd.alltoall: splits must be a whole number for each of the {size} ranks (got {splits})")
        own_row = tf.one_hot([process_set.rank() or 0], size, axis=0, dtype=sent.dtype)
        table = _allreduce(own_row * sent, Sum, 1.0, 1.0, process_set)
        received = tf.gather(table, process_set.rank() or 0, axis=1)
        return _alltoall(tensor, sent, received, process_set), received
    rows = tf.shape(tensor)[0]
    if tensor.shape[0] is not None and tensor.shape[0] % size:
        raise ValueError(f"hvd.alltoall cannot split {tensor.shape[0]} rows evenly over {size} ranks: pass splits=")
    even = tf.fill([size], rows // size)
    return _alltoall(tensor, even, even, process_set)


def _alltoall(tensor: tf.Tensor, sent: tf.Tensor, received: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    in_graph = not tf.executing_eagerly()
    process_set.group(in_graph)

    @tf.custom_gradient
    def exchange(tensor: tf.Tensor, sent: tf.Tensor, received: tf.Tensor) -> Any:
        def run(rows: NDArray[Any], splits: NDArray[Any]) -> NDArray[Any]:
            return core.alltoall(rows, splits, process_set.group(in_graph))

        def gradient(upstream: tf.Tensor) -> Any:
            return _alltoall(upstream, received, sent, process_set), None, None

        return _called(run, [tensor, sent], [None, *tensor.shape[1:]]), gradient

    return exchange(tensor, sent, received)


def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> None:
    """Blocks until all ranks of the process set have called it."""
    process.check("barrier")
    groups.barrier(process_set.group())


def _exchange(
    run: _Run, tensor: tf.Tensor, process_set: ProcessSet, shape: Any, gradient: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """`run(group, array)` for the array of a tensor, as a tensor with this shape and gradient."""
    in_graph = not tf.executing_eagerly()
    process_set.group(in_graph)

    @tf.custom_gradient
    def call(tensor: tf.Tensor) -> Any:
        # TensorFlow keeps the function for ever: it must not hold the group.
        return _called(lambda array: run(process_set.group(in_graph), array), [tensor], shape), gradient

    return call(tensor)


def _called(run: Callable[..., NDArray[Any]], tensors: list[tf.Tensor], shape: Any) -> tf.Tensor:
    """In a graph an operation that TensorFlow runs in the order of the program, after the others like it."""
    if tf.executing_eagerly():
        return tf.convert_to_tensor(run(*(each.numpy() for each in tensors)))
    result = tf.numpy_function(run, tensors, tensors[0].dtype)
    result.set_shape(shape)
    return result
