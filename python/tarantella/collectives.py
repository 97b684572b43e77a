"""Collectives for user data: numbers, arrays, tensors, and structures of them.

Every rank of the group makes the same calls in the same order, with the same structure, shapes and dtypes. A call
blocks until its result is complete. Results have the kind, dtype and shape of the inputs and are copies, which later
calls do not change. With one rank they are copies of the inputs.

Supported inputs: bool, int (64 bits) and float; NumPy arrays and scalars; eager tensors and variables of TensorFlow,
torch and JAX (a variable gives a tensor); nested lists, tuples and dicts of these.

All of them raise TypeError for inputs of another kind, ValueError on a rank that is not in the group,
tarantella.MismatchError if ranks disagree, and tarantella.PeerLostError if a rank is lost. They are not to be called
from several threads at once, except for different groups.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _exchange
from ._job import runtime
from ._job.groups import Group

__all__ = ["ReductionOp", "allgather", "allreduce", "alltoall", "broadcast", "reduce_scatter"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_REDUCED = (*_FLOATS, *_INTEGERS, "bool")


class ReductionOp(enum.Enum):
    """How the values of the ranks are combined: in rank order, so that all ranks get the same bits."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    AVERAGE = "average"
    PRODUCT = "product"


def allreduce(x: Any, op: str | ReductionOp = "sum", group: Group | None = None) -> Any:
    """Reduces `x` over the ranks, and gives the result to every rank.

    Args:
        x: A number, an array, a tensor, or a structure of them. Ranks have the same shapes and dtypes.
        op: `"sum"`, `"min"`, `"max"`, `"and"`, `"or"`, `"average"` or `"product"`, or a `tnt.ReductionOp`.
        group: The ranks that take part; by default all.

    Returns:
        The same kind, dtype and shape as `x`; the same bits on all ranks.

    Raises:
        TypeError: The dtype does not support the reduction, such as an average of integers.
        ValueError: There is no such `op`, or this rank is not in the group.

    Example:
        >>> import tarantella as tnt
        >>> tnt.allreduce({"loss": 0.5, "rows": 64}) == {"loss": 0.5 * tnt.get_size(), "rows": 64 * tnt.get_size()}
        True
    """
    group, reduction = group or Group(), _reduction(op)

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        context = group.context()
        if context is None:
            return array.copy()
        if reduction is ReductionOp.PRODUCT:
            return _product(_exchange.rows(context, array[np.newaxis], name))
        return context.allreduce(_exported(array), name, reduction.value, array.dtype.name).view(array.dtype)

    check_reduction(x, reduction)
    return _map(one, x)


def broadcast(x: Any, root_rank: int | None = None, group: Group | None = None) -> Any:
    """Gives the values of one rank to every rank.

    Args:
        x: As in `allreduce`. Other ranks than the root have its structure, shapes and dtypes; their values do not
            count.
        root_rank: The rank whose values are sent: a rank of the job that is in the group. By default the first one of
            the group.
        group: The ranks that take part; by default all.

    Returns:
        The root's `x`.

    Raises:
        ValueError: `root_rank` or this rank is not in the group.

    Example:
        >>> import tarantella as tnt
        >>> tnt.broadcast(tnt.get_rank() + 0.5)
        0.5
    """
    group = group or Group()
    root = 0 if root_rank is None else group.to_group_rank(root_rank)

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        context = group.context()
        if context is None:
            return array.copy()
        return context.broadcast(_bytes(array), root, name).view(array.dtype).reshape(array.shape)

    return _map(one, x)


def allgather(x: Any, group: Group | None = None) -> Any:
    """Concatenates the rows of all ranks in rank order, on every rank.

    Args:
        x: As in `allreduce`, except that first dimensions may differ between ranks. A scalar counts as one row.
        group: The ranks that take part; by default all.

    Returns:
        The rows of all ranks: an array for a scalar, else the kind of `x`.

    Example:
        >>> import tarantella as tnt
        >>> tnt.allgather(tnt.get_rank()).tolist() == list(range(tnt.get_size()))
        True
    """
    group = group or Group()

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        rows = array.reshape(1) if array.ndim == 0 else array
        context = group.context()
        return rows.copy() if context is None else _exchange.rows(context, rows, name)

    return _map(one, x, rows=True)


def reduce_scatter(x: Any, op: str | ReductionOp = "sum", group: Group | None = None) -> Any:
    """Reduces `x` over the ranks, and gives each rank its rows of the result.

    The rows are split evenly, in the order of the group; its first ranks get one more if its size does not divide them.

    Args:
        x: As in `allreduce`, but no scalars.
        op: As in `allreduce`.
        group: The ranks that take part; by default all.

    Returns:
        This rank's rows, of the kind and dtype of `x`.

    Raises:
        TypeError: Where `allreduce` does, and for scalars.

    Example:
        >>> import numpy as np, tarantella as tnt
        >>> rows = tnt.reduce_scatter(np.ones((8, 2), "float32"))
        >>> bool((rows == tnt.get_size()).all())
        True
    """
    group, reduction = group or Group(), _reduction(op)

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        _check_reduction(name, array.dtype.name, reduction)
        if array.ndim == 0:
            raise TypeError(f"{name} has no rows to give to the ranks")
        context = group.context()
        if context is None:
            return array.copy()
        ends = _even_ends(len(array), group.size)
        rank = group.to_group_rank(runtime.get_rank())
        if reduction is ReductionOp.PRODUCT:
            return _product(_exchange.rows(context, array[np.newaxis], name))[ends[rank] : ends[rank + 1]]
        most = ends[1]  # every rank gets as many from the core
        padded = np.zeros((group.size, most, *array.shape[1:]), array.dtype)
        for part, begin, end in zip(padded, ends, ends[1:], strict=False):
            part[: end - begin] = array[begin:end]
        flat = padded.reshape(-1, *array.shape[1:])
        own = context.reduce_scatter(_exported(flat), name, reduction.value, array.dtype.name).view(array.dtype)
        return own[: ends[rank + 1] - ends[rank]].copy()

    return _map(one, x)


def alltoall(x: Any, splits: Sequence[int] | NDArray[Any], group: Group | None = None) -> Any:
    """Gives every rank its rows of this rank's `x`.

    Args:
        x: As in `allgather`, but no scalars.
        splits: How many rows go to each rank of the group, in its order; in total those of `x`.
        group: The ranks that take part; by default all.

    Returns:
        The rows that this rank has received, in rank order.

    Raises:
        ValueError: `splits` has not a number for each rank, or does not add up to the rows.

    Example:
        >>> import numpy as np, tarantella as tnt
        >>> size = tnt.get_size()
        >>> tnt.alltoall(np.full(size, tnt.get_rank()), [1] * size).tolist() == [*range(size)]
        True
    """
    group = group or Group()
    counts = [operator.index(each) for each in np.asarray(splits).ravel()]

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        if len(counts) != group.size or min(counts) < 0 or array.ndim == 0 or sum(counts) != len(array):
            raise ValueError(
                f"{name}: splits must say how many of its rows go to each of the {group.size} ranks "
                f"(got {counts} for shape {list(array.shape)})"
            )
        context = group.context()
        if context is None:
            return array.copy()
        return context.alltoall(_exported(array), counts, name, array.dtype.name).view(array.dtype)

    return _map(one, x, rows=True)


def check_reduction(x: Any, op: ReductionOp) -> None:
    """Raises TypeError for a structure that cannot be reduced. Does not communicate."""

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        _check_reduction(name, array.dtype.name, op)
        return array

    _map(one, x)


def check_kinds(x: Any) -> None:
    """Raises TypeError for a structure with other values than ranks can exchange. Does not communicate."""
    _map(lambda name, array: array, x)


def _reduction(op: str | ReductionOp) -> ReductionOp:
    try:
        return ReductionOp(op)
    except ValueError:
        names = ", ".join(repr(each.value) for each in ReductionOp)
        raise ValueError(f"op must be one of {names} (got {op!r})") from None


def _exported(array: NDArray[Any]) -> NDArray[Any]:
    """The array as one that NumPy can export: it cannot export bfloat16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _product(rows: NDArray[Any]) -> NDArray[Any]:
    """Of the ranks, in rank order; halves are multiplied as float32, as they are summed."""
    wide = np.promote_types(rows.dtype, np.float32) if "float" in rows.dtype.name else rows.dtype
    return np.multiply.reduce(rows.astype(wide), axis=0, dtype=wide).astype(rows.dtype)


def _even_ends(rows: int, parts: int) -> list[int]:
    """Where the parts begin, and where the last one ends."""
    least, more = divmod(rows, parts)
    return [least * part + min(part, more) for part in range(parts + 1)]


def _check_reduction(name: str, dtype: str, op: ReductionOp) -> None:
    if dtype not in _REDUCED:
        raise TypeError(f"{name} of type {dtype} cannot be reduced; convert it to one of {', '.join(_REDUCED)}")
    floating = "float" in dtype
    if (
        (op is ReductionOp.AVERAGE and not floating)
        or (op in (ReductionOp.AND, ReductionOp.OR) and floating)
        or (op in (ReductionOp.SUM, ReductionOp.PRODUCT) and dtype == "bool")
    ):
        raise TypeError(f"{name} of type {dtype} has no {op.value} over ranks; convert it first")


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _map(
    function: Callable[[str, NDArray[Any]], NDArray[Any]], value: Any, name: str = "input", rows: bool = False
) -> Any:
    """Calls `function(name, array)` for each value of a structure and converts each result to the kind of its value.

    Dtype and shape are part of the name, so that ranks that disagree get an error even if the numbers of bytes agree.
    With `rows`, first dimensions may differ, and the result for a scalar is an array.
    """
    if isinstance(value, dict):
        # in an order that is the same on all ranks
        done = {key: _map(function, value[key], f"{name}[{key!r}]", rows) for key in sorted(value, key=repr)}
        return {key: done[key] for key in value}
    if isinstance(value, (list, tuple)):
        items = [_map(function, item, f"{name}[{place}]", rows) for place, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    array, back = _array(name, value)
    shape = array.shape[1:] if rows else array.shape
    whole = np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED")).reshape(array.shape)  # as the core reads it
    result = function(f"{name}: {array.dtype.name}{list(shape)}", whole)
    return result if rows and array.ndim == 0 else back(result)


def _array(name: str, value: Any) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """A value as an array, and the way back to its kind."""
    if isinstance(value, (bool, float)):
        return np.array(value), type(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise TypeError(f"{name} is an integer of more than 64 bits: {value}; pass a float")
        return np.array(value, np.int64), int
    if isinstance(value, np.generic):
        return np.asarray(value), lambda result: result[()]
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or (value.dtype.kind in "USV" and value.dtype.name != "bfloat16"):
            raise TypeError(f"{name} is an array of {value.dtype}; ranks can exchange only numbers")
        return value, lambda result: result
    return _tensor(name, value)


def _tensor(name: str, value: Any) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """Converts a tensor or variable of a framework that is already loaded."""
    if hasattr(value, "path") and hasattr(value, "value") and not callable(value.value):  # a keras.Variable
        value = value.value
    tf, torch, jax = (sys.modules.get(module) for module in ("tensorflow", "torch", "jax"))
    if tf is not None and isinstance(value, (tf.Tensor, tf.Variable)):
        if not hasattr(value, "numpy") or not tf.executing_eagerly():
            raise TypeError(f"{name} is a symbolic tensor; call this outside of tf.function")
        if value.dtype == tf.string:
            raise TypeError(f"{name} is a tensor of strings; ranks can exchange only numbers")
        return value.numpy(), tf.convert_to_tensor
    if torch is not None and isinstance(value, torch.Tensor):
        # torch cannot convert its bfloat16 to NumPy
        device, kind = value.device, value.dtype
        plain = value.detach().cpu()
        if kind == torch.bfloat16:
            import ml_dtypes

            array = plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
            return array, lambda result: torch.from_numpy(result.view(np.int16)).view(kind).to(device)
        return plain.numpy(), lambda result: torch.from_numpy(result).to(device)
    if jax is not None and isinstance(value, jax.Array):
        if isinstance(value, jax.core.Tracer):
            raise TypeError(f"{name} is a traced array; call this outside of jax.jit")
        return np.asarray(value), jax.numpy.asarray
    raise TypeError(
        f"{name} is a {type(value).__name__}; ranks can exchange numbers, arrays, tensors, and lists, tuples and dicts "
        "of them"
    )
