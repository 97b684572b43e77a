"""Horovod's collectives on tensors: eager or in a `tf.function`, with gradients.

Every rank of the process set makes the same calls in the same order. A call blocks until its result is complete.
Inputs are anything that `tf.convert_to_tensor` accepts; results are tensors. All raise ValueError before `hvd.init` and
on ranks that are not in the process set, TypeError for types that ranks cannot exchange, and tarantella.MismatchError
if ranks disagree. TensorFlow does not compile them with XLA (`jit_compile=True`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from .. import collectives as core
from .._job import groups
from . import process
from .join_calls import Group
from .process import ProcessSet, global_process_set
from .reductions import Average, Compression, Product, ReduceOp, Sum, chosen


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
    """Reduces each element over the ranks, by default to the average.

    Values are multiplied by `prescale_factor` before the reduction and by `postscale_factor` after it. Averages of
    integers, and their products with factors, are rounded towards zero. The slices of `tf.IndexedSlices` are
    concatenated in rank order. Devices, `name` and `ignore_name_scope` have no effect.
    """
    process.check("allreduce")
    op = chosen(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _slices(tensor, op, prescale_factor * postscale_factor, process_set)
    reduce = functools.partial(_allreduce, op=op, before=prescale_factor, after=postscale_factor)
    return _compressed(compression, reduce, tensor, process_set)


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
    """Calls `allreduce` for each tensor of a list, with the same arguments."""
    options = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "process_set": process_set}
    return [allreduce(each, average, compression=compression, op=op, **options) for each in tensors]


def _compressed(compression: Any, reduce: Callable[..., tf.Tensor], tensor: Any, process_set: ProcessSet) -> tf.Tensor:
    if process_set.group().size == 1:
        compression = Compression.none
    compressed, context = compression.compress(tf.convert_to_tensor(tensor))
    return compression.decompress(reduce(compressed, process_set), context)


def _slices(slices: tf.IndexedSlices, op: ReduceOp, factor: float, process_set: ProcessSet) -> tf.IndexedSlices:
    if op not in (Average, Sum) or factor != 1.0:
        raise NotImplementedError("tf.IndexedSlices support only averages and sums without factors; densify them")
    values, indices = (_allgather(each, process_set) for each in (slices.values, slices.indices))
    values = values / process_set.group().size if op == Average else values
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _allreduce(
    tensor: tf.Tensor, process_set: ProcessSet, op: ReduceOp, before: float = 1.0, after: float = 1.0
) -> tf.Tensor:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return _allreduce(upstream, process_set, op, before, after)

    run = functools.partial(_reduced, core.allreduce, op, before, after)
    return _exchange(run, [tensor], process_set, tensor.shape, gradient)


def _reduced(
    reduce: Callable[..., Any], op: ReduceOp, before: float, after: float, group: Group, array: NDArray[Any]
) -> NDArray[Any]:
    """Calls a reduction of the core for scaled values. It has no averages of integers: they are divided sums."""
    if op == Product:  # consists of several calls
        group.announce(f"{reduce.__name__.replace('_', '')} of the product")
    array = _scaled(array, before)
    if op != Average or "float" in array.dtype.name:
        return _scaled(reduce(array, op.name.lower(), group), after)
    wide = array.astype(np.int64) if array.dtype.kind in "iu" and array.itemsize < 8 else array  # has room for the sum
    return _scaled(reduce(wide, "sum", group), after, group.size).astype(array.dtype)


def _scaled(array: NDArray[Any], factor: float, divisor: int = 1) -> NDArray[Any]:
    """Multiplies by the factor and divides by the divisor, computing 16-bit floats as float32 and integers as float64.

    The divisor must not become a factor: 49 times 1 / 49 is less than 1, which integers would round to 0.
    """
    if factor == 1.0 and divisor == 1:
        return array
    wide = np.promote_types(array.dtype, np.float32) if "float" in array.dtype.name else np.float64
    return (array.astype(wide) * np.asarray(factor, wide) / np.asarray(divisor, wide)).astype(array.dtype)


@tf.autograph.experimental.do_not_convert
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the rows of all ranks in rank order. First dimensions may differ; a scalar counts as one row."""
    process.check("allgather")
    return _allgather(tf.convert_to_tensor(tensor), process_set)


@tf.autograph.experimental.do_not_convert
def grouped_allgather(tensors: Sequence[Any], *args: Any, **options: Any) -> list[tf.Tensor]:
    """Calls `allgather` for each tensor of a list, with the same arguments."""
    return [allgather(each, *args, **options) for each in tensors]


def _allgather(tensor: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        rank, size = process_set.rank() or 0, process_set.group().size
        # A sum, so that ranks in hvd.join count as ranks without rows.
        counts = _allreduce(tf.one_hot(rank, size, tf.shape(rows)[0], dtype=tf.int32), process_set, Sum)
        parts = tf.split(_allreduce(upstream, process_set, Average), counts, num=size)
        return tf.reshape(parts[rank], tf.shape(tensor))

    rows = tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tensor
    shape = [None, *rows.shape[1:]] if rows.shape.rank else None
    return _exchange(lambda group, array: core.allgather(array, group), [tensor], process_set, shape, gradient)


@tf.autograph.experimental.do_not_convert
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the tensor of the rank `root_rank` of the job. All ranks have the same shape and type."""
    process.check("broadcast")
    tensor = tf.convert_to_tensor(tensor)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        mean = _allreduce(upstream, process_set, Average)
        return mean if process.rank() == root_rank else tf.zeros_like(mean)

    return _exchange(
        lambda group, array: core.broadcast(array, root_rank, group), [tensor], process_set, tensor.shape, gradient
    )


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
    """Reduces over the ranks, by default to the average, and returns this rank's rows of the result.

    The rows are split evenly in rank order. If the number of ranks does not divide them, the first ranks get one row
    more. Raises ValueError for a scalar.
    """
    process.check("reducescatter")
    reduce = functools.partial(_reducescatter, op=chosen(op), before=prescale_factor, after=postscale_factor)
    return _compressed(compression, reduce, tensor, process_set)


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
    """Calls `reducescatter` for each tensor of a list, with the same arguments."""
    options = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor, "process_set": process_set}
    return [reducescatter(each, compression=compression, op=op, **options) for each in tensors]


def _reducescatter(tensor: tf.Tensor, process_set: ProcessSet, op: ReduceOp, before: float, after: float) -> tf.Tensor:
    if tensor.shape.rank == 0:
        raise ValueError("hvd.reducescatter cannot scatter a scalar: pass a tensor with rows")

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        factor = before * after * (process_set.group().size if op == Sum else 1)
        return _allgather(upstream * tf.cast(factor, upstream.dtype), process_set)

    shape = [None, *tensor.shape[1:]] if tensor.shape.rank else None
    run = functools.partial(_reduced, core.reduce_scatter, op, before, after)
    return _exchange(run, [tensor], process_set, shape, gradient)


@tf.autograph.experimental.do_not_convert
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends `splits[i]` rows of `tensor` to rank i. Returns the received rows in rank order.

    With `splits`, also returns the number of rows received from each rank. Without `splits`, splits the rows evenly and
    raises ValueError if the number of ranks does not divide them.
    """
    process.check("alltoall")
    tensor, rank, size = tf.convert_to_tensor(tensor), process_set.rank() or 0, process_set.group().size
    if splits is not None:
        sent = tf.convert_to_tensor(splits)
        if not sent.dtype.is_integer or not sent.shape.is_compatible_with([size]):
            raise ValueError(f"hvd.alltoall: splits must be a whole number for each of the {size} ranks (got {splits})")
        table = _allreduce(tf.one_hot([rank], size, axis=0, dtype=sent.dtype) * sent, process_set, Sum)
        received = tf.gather(table, rank, axis=1)
        return _alltoall(tensor, sent, received, process_set), received
    if tensor.shape[0] is not None and tensor.shape[0] % size:
        raise ValueError(f"hvd.alltoall cannot split {tensor.shape[0]} rows evenly over {size} ranks: pass splits=")
    even = tf.fill([size], tf.shape(tensor)[0] // size)
    return _alltoall(tensor, even, even, process_set)


def _alltoall(tensor: tf.Tensor, sent: tf.Tensor, received: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return _alltoall(upstream, received, sent, process_set), None

    run, shape = lambda group, rows, counts: core.alltoall(rows, counts, group), [None, *tensor.shape[1:]]
    return _exchange(run, [tensor, sent], process_set, shape, gradient)


def barrier(process_set: ProcessSet = global_process_set, name: str | None = None) -> None:
    """Blocks until all ranks of the process set have called it."""
    process.check("barrier")
    groups.barrier(process_set.group())


def _exchange(
    run: Callable[..., NDArray[Any]],
    tensors: list[tf.Tensor],
    process_set: ProcessSet,
    shape: Any,
    gradient: Callable[[tf.Tensor], Any],
) -> tf.Tensor:
    """Calls `run(group, *arrays)` with the arrays of the tensors. Returns a tensor with this shape and gradient.

    In a graph this is a stateful operation: TensorFlow runs these in program order.
    """
    in_graph = not tf.executing_eagerly()
    process_set.group(in_graph)

    def run_now(*arrays: NDArray[Any]) -> NDArray[Any]:
        # TensorFlow never releases this function, so it must not hold the group.
        return run(process_set.group(in_graph), *arrays)

    @tf.custom_gradient
    def call(*tensors: tf.Tensor) -> Any:
        if not in_graph:
            return tf.convert_to_tensor(run_now(*(each.numpy() for each in tensors))), gradient
        result = tf.numpy_function(run_now, tensors, tensors[0].dtype)
        result.set_shape(shape)
        return result, gradient

    return call(*tensors)
