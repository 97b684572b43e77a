"""Values of users as arrays that ranks can exchange, and back: numbers, arrays, tensors, and structures of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
