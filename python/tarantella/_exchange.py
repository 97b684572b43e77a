"""Exchange of host arrays between ranks: rows, bytes, many arrays as one; comparisons, with names of variables.

Exchanges are collective. `map_arrays` makes arrays of the values of users, and back.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._job import runtime
from ._job.errors import MismatchError
from ._job.groups import Group


def rows(context: Any, array: NDArray[Any], name: str, only: int | None = None) -> NDArray[Any]:
    """Gathers the rows of all ranks in rank order. Collective.

    `array` has at least one dimension; the first may differ between ranks. With `only`, that rank gets the rows and the
    others get an array without rows. Raises MismatchError if rows differ in dtype or shape.
    """
    name = f"{name}, rows of {array.dtype.name} {list(array.shape[1:])}"
    width = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize
    if width:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(len(array), width)
    else:  # rows without bytes are sent as one byte each
        raw = np.zeros((len(array), 1), np.uint8)
    if only is None:
        found = context.allgatherv(raw, name)
    else:
        found = context.alltoall(raw, [len(raw) if rank == only else 0 for rank in range(context.size)], name)
    values = found.reshape(-1)[: len(found) * width].view(array.dtype)
    return values.reshape(len(found), *array.shape[1:])


def flatten(arrays: Iterable[Any], dtype: Any) -> NDArray[Any]:
    """The elements of all arrays, one after the other, converted to `dtype`."""
    return np.concatenate([np.empty(0, dtype), *(np.asarray(each).astype(dtype).ravel() for each in arrays)])


def unflatten(flat: NDArray[Any], like: Sequence[Any]) -> list[NDArray[Any]]:
    """Undoes `flatten`: views of `flat` in the shapes of `like`. Further elements are ignored."""
    ends = np.cumsum([np.prod(each.shape, dtype=np.int64) for each in like], dtype=np.int64)
    return [part.reshape(each.shape) for part, each in zip(np.split(flat, ends), like, strict=False)]


def checksums(values: Iterable[Any]) -> NDArray[np.int64]:
    """A number for the bits of each of these variables or host arrays. Reads at the speed of memory; no exchange."""
    from ._core import checksum

    return np.array([checksum(_bytes(each)) for each in values], np.uint64).view(np.int64)


def checksum(values: Iterable[Any]) -> int:
    """One number for the bits of these variables or host arrays, in their order: signed, of 64 bits. No exchange."""
    return int(checksums([checksums(values)])[0])


def _bytes(value: Any) -> NDArray[np.uint8]:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def gather_bytes(payload: bytes, context: Any = None) -> list[bytes]:
    """The payloads of all ranks, in rank order. The context is the job's by default."""
    if context is None and runtime.get_size() == 1:
        return [payload]
    context = context or runtime.context()
    lengths = context.allgather(np.array([len(payload)], np.int64), "lengths").ravel()
    joined = context.allgatherv(np.frombuffer(payload, np.uint8), "bytes")
    return [part.tobytes() for part in np.split(joined, np.cumsum(lengths)[:-1])]


def gather_json(value: Any) -> list[Any]:
    """The values of all ranks, in rank order, as JSON has them. Collective."""
    return [json.loads(each) for each in gather_bytes(json.dumps(value).encode())]


def check_equal(what: str, lines: Sequence[str], cure: str, group: Group | None = None) -> None:
    """Raises MismatchError on all ranks if their `lines` differ, with the first different line. Collective.

    The group is all ranks by default. The message has ranks of the job, not of the group.
    """
    group = Group() if group is None else group
    context = group.context() or runtime.context()
    text = "\n".join(lines).encode()
    digest = np.frombuffer(hashlib.sha256(text).digest(), np.int64)
    digests = context.allgather(digest, f"compare {what}")
    if (digests == digests[0]).all():
        return
    descriptions = [payload.decode().split("\n") for payload in gather_bytes(text, context)]
    first, first_rank = descriptions[0], group.master_rank
    others = [rank for rank, each in zip(group, descriptions, strict=True) if each != first]
    other = descriptions[group.to_group_rank(others[0])]
    a, b = next((a, b) for a, b in itertools.zip_longest(first, other, fillvalue="no more") if a != b)
    lengths = "" if len(first) == len(other) else f" (the lists have {len(first)} and {len(other)} entries)"
    subject = f"rank {others[0]} differs" if len(others) == 1 else f"ranks {', '.join(map(str, others))} differ"
    raise MismatchError(
        f"{subject} from rank {first_rank} in {what}: rank {first_rank} has {a}, rank {others[0]} has {b}{lengths}; "
        f"{cure}"
    )


def on_any_rank(flag: bool, what: str) -> bool:
    """Whether `flag` is true on any rank. Collective."""
    return bool(runtime.context().allreduce(np.array([flag], np.int32), what)[0])


def name_of(variable: Any) -> str:
    """The variable's path without Keras's numbers, which count the layers made so far in the process."""
    return re.sub(r"_\d+(?=/|$)", "", variable.path if hasattr(variable, "path") else variable.name)


def short_name_of(variable: Any) -> str:
    """The last two parts of the name: Keras leaves the model's out of the paths of a Sequential that it loads."""
    return "/".join(name_of(variable).split("/")[-2:])


def described(variable: Any) -> str:
    """A variable's name, dtype and shape in one line, the same on every rank."""
    # Names of an optimizer's variables have those of layers inside: sequential_1_dense_3_kernel_momentum.
    name = re.sub(r"_\d+(?=_)", "", name_of(variable))
    return f"{name!r} {variable.dtype} {tuple(variable.shape)}"


def map_arrays(
    function: Callable[[str, NDArray[Any]], NDArray[Any]], value: Any, name: str = "input", rows: bool = False
) -> Any:
    """Calls `function(name, array)` for each value of a structure and converts each result to the kind of its value.

    Dtype and shape are part of the name, so that ranks that disagree get an error even if the numbers of bytes agree.
    With `rows`, first dimensions may differ, and the result for a scalar is an array.
    """
    if isinstance(value, dict):
        # in an order that is the same on all ranks
        done = {key: map_arrays(function, value[key], f"{name}[{key!r}]", rows) for key in sorted(value, key=repr)}
        return {key: done[key] for key in value}
    if isinstance(value, (list, tuple)):
        items = [map_arrays(function, item, f"{name}[{place}]", rows) for place, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    array, back = _array(name, value)
    shape = array.shape[1:] if rows else array.shape
    whole = np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED")).reshape(array.shape)  # as the core reads it
    result = function(f"{name}: {array.dtype.name}{list(shape)}", whole)
    return np.atleast_1d(result) if rows and array.ndim == 0 else back(result)


def _array(name: str, value: Any) -> tuple[NDArray[Any], Callable[[NDArray[Any]], Any]]:
    """The value as an array, and the function that converts an array to its kind."""
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
