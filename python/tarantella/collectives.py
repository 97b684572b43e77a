"""Collectives for user data: numbers, arrays, tensors, and structures of them.

Every rank of the group makes the same calls in the same order, with the same structure, shapes and dtypes. A call
blocks until its result is complete. Results have the kind, dtype and shape of the inputs and are copies, which later
calls do not change. With one rank they are copies of the inputs.

Supported inputs: bool, int (64 bits) and float; NumPy arrays and scalars; eager tensors and variables of TensorFlow,
torch and JAX (a variable gives a tensor); nested lists, tuples and dicts of these.

All of them raise TypeError for inputs of another kind, ValueError on a rank that is not in the group,
tarantella.MismatchError if ranks disagree, and tarantella.PeerLostError if a rank is lost. Several threads may call
them at once only with different groups.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _exchange
from ._exchange import map_arrays
from ._job.groups import Group

__all__ = ["ReductionOp", "allgather", "allreduce", "alltoall", "broadcast", "reduce_scatter"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_REDUCED = (*_FLOATS, *_INTEGERS, "bool")
_Call = Callable[[Any, str, NDArray[Any]], NDArray[Any]]  # of a context, a name, and an array


class ReductionOp(enum.Enum):
    """How the values of the ranks are combined: in rank order, so that all ranks get the same bits."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    AVERAGE = "average"
    PRODUCT = "product"

    @classmethod
    def _missing_(cls, value: object) -> None:
        names = ", ".join(repr(each.value) for each in cls)
        raise ValueError(f"op must be one of {names} (got {value!r})")


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
    reduction = ReductionOp(op)

    def exchange(context: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
        if reduction is ReductionOp.PRODUCT:
            return _product(_exchange.rows(context, array[np.newaxis], name))
        return context.allreduce(_exported(array), name, reduction.value, array.dtype.name).view(array.dtype)

    check_reduction(x, reduction)
    return _exchanged(exchange, x, group or Group())


def broadcast(x: Any, root_rank: int | None = None, group: Group | None = None) -> Any:
    """Gives the values of one rank to every rank.

    Args:
        x: As in `allreduce`. All ranks have the same structure, shapes and dtypes; only the root's values are used.
        root_rank: The rank whose values are sent, as a rank of the job. By default the first rank of the group.
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

    def exchange(context: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
        raw = array.reshape(-1).view(np.uint8)
        return context.broadcast(raw, root, name).view(array.dtype).reshape(array.shape)

    return _exchanged(exchange, x, group)


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
    return _exchanged(
        lambda context, name, array: _exchange.rows(context, np.atleast_1d(array), name), x, group or Group(), rows=True
    )


def reduce_scatter(x: Any, op: str | ReductionOp = "sum", group: Group | None = None) -> Any:
    """Reduces `x` over the ranks, and gives each rank its rows of the result.

    The rows are split evenly, in the order of the group. If its size does not divide them, its first ranks get one row
    more.

    Args:
        x: As in `allreduce`, but no scalars.
        op: As in `allreduce`.
        group: The ranks that take part; by default all.

    Returns:
        This rank's rows, of the kind and dtype of `x`.

    Raises:
        TypeError: As in `allreduce`, and for scalars.

    Example:
        >>> import numpy as np, tarantella as tnt
        >>> rows = tnt.reduce_scatter(np.ones((8, 2), "float32"))
        >>> bool((rows == tnt.get_size()).all())
        True
    """
    group, reduction = group or Group(), ReductionOp(op)

    def exchange(context: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
        parts = np.array_split(array, group.size)  # the first ones may have one row more
        if reduction is ReductionOp.PRODUCT:
            return np.array_split(_product(_exchange.rows(context, array[np.newaxis], name)), group.size)[context.rank]
        padded = np.zeros((group.size, *parts[0].shape), array.dtype)  # the core gives all ranks as many rows
        for place, part in zip(padded, parts, strict=True):
            place[: len(part)] = part
        flat = padded.reshape(-1, *array.shape[1:])
        own = context.reduce_scatter(_exported(flat), name, reduction.value, array.dtype.name).view(array.dtype)
        return own[: len(parts[context.rank])].copy()

    check_reduction(x, reduction, needs_rows=True)
    return _exchanged(exchange, x, group)


def alltoall(x: Any, splits: Sequence[int] | NDArray[Any], group: Group | None = None) -> Any:
    """Gives every rank its rows of this rank's `x`.

    Args:
        x: As in `allgather`, but no scalars.
        splits: How many rows go to each rank of the group, in its order. Their sum is the number of rows of `x`.
        group: The ranks that take part; by default all.

    Returns:
        The rows that this rank has received, in rank order.

    Raises:
        ValueError: `splits` does not have a number for each rank, or its sum is not the number of rows.

    Example:
        >>> import numpy as np, tarantella as tnt
        >>> size = tnt.get_size()
        >>> tnt.alltoall(np.full(size, tnt.get_rank()), [1] * size).tolist() == [*range(size)]
        True
    """
    group = group or Group()
    counts = [operator.index(each) for each in np.asarray(splits).ravel()]

    def check(name: str, array: NDArray[Any]) -> NDArray[Any]:
        if len(counts) != group.size or min(counts) < 0 or array.ndim == 0 or sum(counts) != len(array):
            raise ValueError(
                f"{name}: splits must have the number of rows for each of the {group.size} ranks "
                f"(got {counts} for shape {list(array.shape)})"
            )
        return array

    def exchange(context: Any, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return context.alltoall(_exported(array), counts, name, array.dtype.name).view(array.dtype)

    map_arrays(check, x, rows=True)
    return _exchanged(exchange, x, group, rows=True)


def check_reduction(x: Any, op: ReductionOp, needs_rows: bool = False) -> None:
    """Raises TypeError for a structure that cannot be reduced, with `needs_rows` for scalars. Does not communicate."""

    def check(name: str, array: NDArray[Any]) -> NDArray[Any]:
        dtype = array.dtype.name
        if dtype not in _REDUCED:
            raise TypeError(f"{name} of type {dtype} cannot be reduced; convert it to one of {', '.join(_REDUCED)}")
        floating = "float" in dtype
        if (
            (op is ReductionOp.AVERAGE and not floating)
            or (op in (ReductionOp.AND, ReductionOp.OR) and floating)
            or (op in (ReductionOp.SUM, ReductionOp.PRODUCT) and dtype == "bool")
        ):
            raise TypeError(f"{name} of type {dtype} has no {op.value} over ranks; convert it first")
        if needs_rows and array.ndim == 0:
            raise TypeError(f"{name} is a scalar, which cannot be scattered; pass an array with rows")
        return array

    map_arrays(check, x)


def check_kinds(x: Any) -> None:
    """Raises TypeError for a structure with values that ranks cannot exchange. Does not communicate."""
    map_arrays(lambda name, array: array, x)


def _exchanged(exchange: _Call, x: Any, group: Group, rows: bool = False) -> Any:
    """`exchange(context, name, array)` for each value in `x`; copies in a job of one rank. `rows`: see `map_arrays`."""

    def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
        context = group.context()
        return array.copy() if context is None else exchange(context, name, array)

    return map_arrays(one, x, rows=rows)


def _exported(array: NDArray[Any]) -> NDArray[Any]:
    """The array as one that NumPy can export: it cannot export bfloat16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _product(rows: NDArray[Any]) -> NDArray[Any]:
    """Multiplies the rows of the ranks in rank order; 16-bit floats as float32, as in sums."""
    wide = np.promote_types(rows.dtype, np.float32) if "float" in rows.dtype.name else rows.dtype
    return np.multiply.reduce(rows.astype(wide), axis=0, dtype=wide).astype(rows.dtype)
