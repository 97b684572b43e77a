"""Collectives for the user's own data: numbers, arrays, tensors, and structures of them.

Every rank of the group makes the same calls in the same order, with the same structure, shapes and dtypes. A call
blocks until its result is complete. Results have the kind, dtype and shape of the inputs and are copies, which later
calls do not change. With one rank they are copies of the inputs.

Supported inputs: bool, int (64 bits) and float; NumPy arrays and scalars; eager tensors and variables of TensorFlow,
torch and JAX (a variable gives a tensor); nested lists, tuples and dicts of these. Raises TypeError for anything else,
tarantella.MismatchError if ranks disagree, tarantella.PeerLostError if a rank is lost.
"""

from __future__ import annotations

import enum
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _exchange
from ._job import runtime
from ._job.groups import Barrier, Group

__all__ = [
    "Allgatherv",
    "Allreduce",
    "Alltoall",
    "Barrier",
    "Broadcast",
    "ReduceScatter",
    "ReductionOp",
    "TensorAllgatherer",
    "TensorAllreducer",
    "TensorBroadcaster",
]

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


class Allreduce:
    """`Allreduce(group, op).execute(inputs)`: reduces over the ranks and gives the result to every rank."""

    def __init__(self, group: Group | None = None, op: ReductionOp = ReductionOp.SUM) -> None:
        self.group, self.op = group or Group(), ReductionOp(op)

    def check(self, inputs: Any) -> None:
        """Raises TypeError for inputs that cannot be reduced. Does not communicate."""

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            _check_reduction(name, array.dtype.name, self.op)
            return array

        _map(one, inputs)

    def execute(self, inputs: Any) -> Any:
        """Also raises TypeError if the dtype does not support the reduction, such as an average of integers."""

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            context = self.group.context()
            if context is None:
                return array.copy()
            if self.op is ReductionOp.PRODUCT:
                return _product(_exchange.rows(context, array[np.newaxis], name))
            return context.allreduce(_exported(array), name, self.op.value, array.dtype.name).view(array.dtype)

        self.check(inputs)
        return _map(one, inputs)


class Broadcast:
    """`Broadcast(group, root_rank).execute(inputs)`: gives the values of one rank to every rank.

    `root_rank` is a rank of the job that is in the group; by default the first of the group.
    """

    def __init__(self, group: Group | None = None, root_rank: int | None = None) -> None:
        """Raises ValueError if `root_rank` is not in the group."""
        self.group = group or Group()
        self.root = 0 if root_rank is None else self.group.to_group_rank(root_rank)

    def execute(self, inputs: Any) -> Any:
        """The inputs of other ranks must have the root's structure, shapes and dtypes; their values do not count."""

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            context = self.group.context()
            if context is None:
                return array.copy()
            return context.broadcast(_bytes(array), self.root, name).view(array.dtype).reshape(array.shape)

        return _map(one, inputs)


class Allgatherv:
    """`Allgatherv(group).execute(inputs)`: concatenates the rows of all ranks in rank order, on every rank.

    First dimensions may differ between ranks. A scalar counts as one row, and the result is an array.
    """

    def __init__(self, group: Group | None = None) -> None:
        self.group = group or Group()

    def execute(self, inputs: Any) -> Any:
        """Blocks until all ranks of the group have called this."""

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            rows = array.reshape(1) if array.ndim == 0 else array
            context = self.group.context()
            if context is None:
                return rows.copy()
            return _exchange.rows(context, rows, name)

        return _map(one, inputs, rows=True)


class ReduceScatter:
    """`ReduceScatter(group, op).execute(inputs)`: reduces over the ranks, and gives each rank its rows of the result.

    The rows are split evenly, in the order of the group; its first ranks get one more if its size does not divide them.
    """

    def __init__(self, group: Group | None = None, op: ReductionOp = ReductionOp.SUM) -> None:
        self.group, self.op = group or Group(), ReductionOp(op)

    def execute(self, inputs: Any) -> Any:
        """Raises TypeError for scalars, and where `Allreduce` does."""

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            _check_reduction(name, array.dtype.name, self.op)
            if array.ndim == 0:
                raise TypeError(f"{name} has no rows to give to the ranks")
            context = self.group.context()
            if context is None:
                return array.copy()
            ends = _even_ends(len(array), self.group.size)
            rank = self.group.to_group_rank(runtime.get_rank())
            if self.op is ReductionOp.PRODUCT:
                return _product(_exchange.rows(context, array[np.newaxis], name))[ends[rank] : ends[rank + 1]]
            most = ends[1]  # every rank gets as many from the core
            padded = np.zeros((self.group.size, most, *array.shape[1:]), array.dtype)
            for part, begin, end in zip(padded, ends, ends[1:], strict=False):
                part[: end - begin] = array[begin:end]
            flat = padded.reshape(-1, *array.shape[1:])
            own = context.reduce_scatter(_exported(flat), name, self.op.value, array.dtype.name).view(array.dtype)
            return own[: ends[rank + 1] - ends[rank]].copy()

        return _map(one, inputs)


class Alltoall:
    """`Alltoall(group).execute(inputs, splits)`: gives every rank its rows of this rank's inputs."""

    def __init__(self, group: Group | None = None) -> None:
        self.group = group or Group()

    def execute(self, inputs: Any, splits: Any) -> Any:
        """Sends `splits[i]` rows to rank i of the group, and returns the rows received, in rank order.

        Raises ValueError unless `splits` has a number of rows for each rank, in total those of the inputs.
        """
        counts = [operator.index(each) for each in np.asarray(splits).ravel()]

        def one(name: str, array: NDArray[Any]) -> NDArray[Any]:
            if len(counts) != self.group.size or min(counts) < 0 or array.ndim == 0 or sum(counts) != len(array):
                raise ValueError(
                    f"{name}: splits must say how many of its rows go to each of the {self.group.size} ranks "
                    f"(got {counts} for shape {list(array.shape)})"
                )
            context = self.group.context()
            if context is None:
                return array.copy()
            return context.alltoall(_exported(array), counts, name, array.dtype.name).view(array.dtype)

        return _map(one, inputs, rows=True)


class TensorAllreducer:
    """Reduces structures like `inputs` over the ranks: `TensorAllreducer(inputs).allreduce(inputs)`."""

    def __init__(self, inputs: Any, group: Group | None = None, op: ReductionOp = ReductionOp.SUM) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        self._allreduce = Allreduce(group, op)
        self._allreduce.check(inputs)

    def allreduce(self, inputs: Any) -> Any:
        """Reduces each value in `inputs` over the ranks."""
        return self._allreduce.execute(inputs)


class TensorBroadcaster:
    """Gives the root's values to all ranks: `TensorBroadcaster(inputs, root_rank).broadcast(inputs)`."""

    def __init__(self, inputs: Any, root_rank: int | None = None, group: Group | None = None) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        _check_kinds(inputs)
        self._inputs = inputs
        self._broadcast = Broadcast(group, root_rank)

    def broadcast(self, inputs: Any = None) -> Any:
        """Returns the root's `inputs`, by default those of the constructor."""
        return self._broadcast.execute(self._inputs if inputs is None else inputs)


class TensorAllgatherer:
    """Concatenates the rows of all ranks: `TensorAllgatherer(inputs).allgather(inputs)`."""

    def __init__(self, inputs: Any, group: Group | None = None) -> None:
        """Raises TypeError for unsupported inputs. Does not communicate."""
        _check_kinds(inputs)
        self._allgather = Allgatherv(group)

    def allgather(self, inputs: Any) -> Any:
        """The rows of all ranks, in rank order; see `Allgatherv`."""
        return self._allgather.execute(inputs)


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


def _check_kinds(inputs: Any) -> None:
    _map(lambda name, array: array, inputs)


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
