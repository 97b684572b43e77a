"""The states of callbacks in a snapshot: JSON, which refers to arrays by name."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ..._job import log
from .. import private

Arrays = dict[str, NDArray[Any]]
# Attributes of callbacks that fit sets.
_SET_BY_FIT = ("_model", "params", "model", "validation_data")


class NotPlainError(TypeError):
    """A value that a snapshot cannot hold."""


def states(callbacks: Sequence[Any], arrays: Arrays) -> dict[str, Any]:
    """The states of this rank's callbacks, as JSON has them; their arrays get into `arrays`."""
    return {name: _state_of(each, name, arrays) for name, each in _named(callbacks).items()}


def before_fit(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The attributes of this rank's callbacks. None is asked for its state: it may have none before training."""
    asked = [None if hasattr(each, "get_state") else each for each in callbacks]
    return states(asked, {})


def restore(callbacks: Sequence[Any], saved: dict[str, Any], arrays: Any) -> None:
    """Sets the states of this rank's callbacks to those that `states` has returned."""
    for name, callback in _named(callbacks).items():
        state = saved.get(name)
        if state is not None:
            _set_state(callback, state, arrays)


def has_array(state: Any) -> bool:
    """Whether a state has an array."""
    return '"array"' in json.dumps(state)


def check(callbacks: Sequence[Any]) -> None:
    """Warns of callbacks that a restart resets. Raises TypeError for one with `get_state` but no `set_state`."""
    for each in callbacks:
        if hasattr(each, "get_state") and not hasattr(each, "set_state"):
            raise TypeError(f"Snapshot: {type(each).__name__} has get_state(), so it needs set_state(state), too")
    names = sorted({type(each).__name__ for each in callbacks if not _has_state(each)})
    names += [
        f"{type(each).__name__}.{key}"
        for each in callbacks
        if not private.is_of_keras(type(each)) and _has_state(each) and not hasattr(each, "get_state")
        for key, value in vars(each).items()
        if key not in _SET_BY_FIT and not callable(value) and not _is_plain(value)
    ]
    if names:
        log.warn_once(
            f"Snapshot: a restart loses the state of {', '.join(names)}; to keep it, define get_state(), which returns "
            "numbers, texts, arrays, and lists and dicts of them, and set_state(state) in the callback"
        )


def _named(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The callbacks of this rank by their place among those of the user, which is the same on all ranks."""
    return {f"{i} {type(each).__name__}": each for i, each in enumerate(callbacks) if each is not None}


def _has_state(callback: Any) -> bool:
    return hasattr(callback, "get_state") or any(
        private.is_of_keras(kind) and kind is not keras.callbacks.Callback for kind in type(callback).__mro__
    )


def _state_of(callback: Any, name: str, arrays: Arrays) -> dict[str, Any]:
    """The plain attributes of a callback of Keras; the `get_state()` of a user-defined one."""
    if hasattr(callback, "get_state"):
        return {"state": plain(callback.get_state(), name, arrays)}
    state = {}
    for key, value in vars(callback).items() if _has_state(callback) else ():
        if key not in _SET_BY_FIT:
            with contextlib.suppress(NotPlainError):
                state[key] = plain(value, f"{name}.{key}", arrays)
    if isinstance(callback, keras.callbacks.CSVLogger) and os.path.isfile(callback.filename):
        return {"attributes": state, "size": os.path.getsize(callback.filename)}
    return {"attributes": state}


def changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """States without the attributes that are still as `before`."""
    return {name: _changed(each, before.get(name, each)) for name, each in now.items()}


def _changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    if "attributes" not in now:
        return now
    old = before["attributes"]
    return {
        **now,
        "attributes": {
            key: value
            for key, value in now["attributes"].items()
            if key not in old or value != old[key] or has_array(value)
        },
    }


def _set_state(callback: Any, state: dict[str, Any], arrays: Any) -> None:
    if "state" in state:
        callback.set_state(decoded(state["state"], arrays))
    else:
        vars(callback).update({key: decoded(each, arrays) for key, each in state["attributes"].items()})
        if "size" in state:
            os.truncate(callback.filename, state["size"])


def plain(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON has it, with its arrays by name in `arrays`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        arrays[name] = value.copy()
        return {"array": name}
    if isinstance(value, (list, tuple)):
        return [plain(each, f"{name}.{i}", arrays) for i, each in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, (int, str)) for key in value):
        return {"items": [[key, plain(each, f"{name}.{key}", arrays)] for key, each in value.items()]}
    function = name_of_function(value)
    if function is not None:
        return {"function": function}
    raise NotPlainError(
        f"Snapshot: {name} has a {type(value).__name__}; get_state() must return numbers, texts, arrays, and "
        "lists and dicts of them"
    )


def _is_plain(value: Any) -> bool:
    try:
        plain(value, "", {})
    except NotPlainError:
        return False
    return True


def continue_logs(callbacks: Sequence[Any]) -> None:
    """Makes Keras's callbacks append to their logs, before a fit that resumes."""
    for each in callbacks:
        if isinstance(each, keras.callbacks.CSVLogger):
            each.append = True


def decoded(value: Any, arrays: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if isinstance(value, dict):
        if "array" in value:
            return arrays[value["array"]]
        if "function" in value:
            return function_named(value["function"])
        return {key: decoded(each, arrays) for key, each in value["items"]}
    return value


def name_of_function(value: Any) -> list[str] | None:
    """The module and name by which a function of Keras can be found again; None for other values."""
    if not inspect.isfunction(value) or not private.is_of_keras(value):
        return None
    name = [value.__module__, value.__name__]
    return name if getattr(importlib.import_module(name[0]), name[1], None) is value else None


def function_named(name: Any) -> Any:
    """The function with a name from `name_of_function`. Raises ValueError for a name that it does not give."""
    module, attribute = name
    function = None
    if module.split(".")[0] == "keras":  # nothing else is imported: who writes a snapshot must not run code
        function = getattr(importlib.import_module(module), attribute, None)
    if name_of_function(function) != [module, attribute]:
        raise ValueError(f"{module}.{attribute} is not a function of Keras")
    return function
