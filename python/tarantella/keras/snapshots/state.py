"""The state of training in a snapshot: collected from all ranks, and restored on the same or another number of ranks.

All ranks have the same weights. Metrics and the state of layers are combined first, as before a checkpoint within an
epoch. Generators and the states of callbacks are gathered: each rank has its own. Those of callbacks are JSON, which
refers to arrays by name.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ... import _exchange
from ..._exchange import described
from ..._job import log, runtime
from ...data import position
from .. import epoch_end, model_state, private, replicas
from .store import Content

Arrays = dict[str, NDArray[Any]]
# Attributes of callbacks that fit sets.
_SET_BY_FIT = ("_model", "params", "model", "validation_data")


def variables(model: Any) -> list[Any]:
    """Those of a snapshot, in its order."""
    every = [*replicas.variables(model), *model.metrics_variables]
    return list({id(v): v for v in every}.values())


def at_end(callbacks: Sequence[Any], before: dict[str, Any]) -> list[Any]:
    """The generators and the callbacks, without arrays, of each rank at the end of a completed fit. Collective.

    A later fit of the script may have the same callbacks, and the script may draw before it.
    """
    states = callback_states(callbacks, {}, before)
    # Files of logs are left as they are: a later fit may have gone on with them.
    kept = {name: each for name, each in states.items() if "size" not in each and not _has_array(each)}
    return _exchange.gather_json({"generators": position.generators(), "callbacks": kept})


def restore_end(callbacks: Sequence[Any], ranks: list[Any]) -> None:
    """Restores the result of `at_end`."""
    saved = _of_this_rank(ranks)
    _restore_callbacks(callbacks, saved["callbacks"], {})
    position.set_generators(saved["generators"])


def _of_this_rank(ranks: list[Any]) -> Any:
    """This rank's item of a list by rank; rank 0's if the number of ranks has changed."""
    return ranks[runtime.get_rank() if len(ranks) == runtime.get_size() else 0]


def collect(model: Any, callbacks: Sequence[Any], before: dict[str, Any], within: bool, with_arrays: bool) -> Content:
    """The state of training on all ranks; the arrays of variables on those that ask for them. Collective.

    Attributes of callbacks that are still as `before` the fit are left out: the script sets them. `within` an epoch,
    metrics and layers have the state of all ranks afterwards, and training goes on from it.
    """
    if within and runtime.get_size() > 1:
        epoch_end.average_layer_state(model)
        epoch_end.combine_metrics(model)
    arrays: Arrays = {}
    every = variables(model)
    local = {
        "seeds": [np.asarray(v).tolist() for v in every if private.is_seed(v)],
        "generators": position.generators(),
        "callbacks": callback_states(callbacks, arrays, before),
    }
    ranks, names = zip(*_exchange.gather_json([local, [*arrays]]), strict=True)
    _add_arrays_of_others(arrays, names)
    text = {
        "ranks": [*ranks],
        "history": of_history(model, arrays),
        "variables": [described(v) for v in every],
    }
    if with_arrays:  # copies of bytes: dtypes of machine learning have no name in files of NumPy
        arrays |= {f"variable {i}": np.array(np.asarray(v)).reshape(-1).view(np.uint8) for i, v in enumerate(every)}
    if within:
        model_state.reset_unless_master(model)
    return Content(text, arrays)


def _add_arrays_of_others(arrays: Arrays, names: Sequence[list[str]]) -> None:
    """Adds the arrays that another rank's callbacks have: by rank, the `names` of its arrays. Collective."""
    for name in sorted(set().union(*names).difference(set(names[0]).intersection(*names))):
        owner = next(rank for rank, known in enumerate(names) if name in known)
        file = io.BytesIO()
        if runtime.get_rank() == owner:
            np.save(file, arrays[name])
        arrays[name] = np.load(io.BytesIO(_exchange.gather_bytes(file.getvalue())[owner]), allow_pickle=False)


def restore(model: Any, callbacks: Sequence[Any], content: Content, within: bool) -> None:
    """Sets the model, its history, generators and callbacks to a state that `check` has accepted."""
    rank, ranks = runtime.get_rank(), content.text["ranks"]
    has_as_many = len(ranks) == runtime.get_size()
    saved = _of_this_rank(ranks)
    seeds = iter(saved["seeds"])
    for i, variable in enumerate(variables(model)):
        if private.is_seed(variable):
            state = np.array(next(seeds), np.dtype(keras.backend.standardize_dtype(variable.dtype)))
            variable.assign(state if has_as_many else replicas.fold_in(state, rank))
        else:
            value = np.empty(tuple(variable.shape), np.asarray(variable).dtype)
            value.reshape(-1).view(np.uint8)[:] = content.arrays[f"variable {i}"]
            variable.assign(value)
    if within:
        model_state.reset_unless_master(model)
    set_history(model, content.text["history"])
    _restore_callbacks(callbacks, saved["callbacks"], content.arrays)
    taken, begun_with = content.text["position"]["taken"], content.text["position"]["generators"]
    position.set_generators(saved["generators"], begun_with if within and taken[-1] else None)


def of_history(model: Any, arrays: Arrays) -> Any:
    """The model's history, as JSON has it."""
    return _encoded({"epoch": model.history.epoch, "history": model.history.history}, "history", arrays)


def set_history(model: Any, encoded: Any) -> None:
    """Restores the result of `of_history`."""
    known = decoded(encoded, {})
    model.history.epoch, model.history.history = known["epoch"], known["history"]


def check(model: Any, content: Content, where: str) -> None:
    """Raises ValueError if the snapshot is of another model."""
    local, theirs = [described(v) for v in variables(model)], content.text["variables"]
    for here, there in itertools.zip_longest(local, theirs, fillvalue="no more variables"):
        if here != there:
            raise ValueError(
                f"Snapshot: {where} is from another model: there {there}, here {here}; use the model with which the "
                "training began, or another place for the snapshots of this one"
            )


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Warns of callbacks that a restart resets. Raises TypeError for one with `get_state` but no `set_state`."""
    names: set[str] = set()
    for kind, each in ((type(each).__name__, each) for each in callbacks if each is not None):
        if hasattr(each, "get_state"):
            if not hasattr(each, "set_state"):
                raise TypeError(f"Snapshot: {kind} has get_state(), so it needs set_state(state), too")
        elif not _is_like_keras(each):
            names.add(kind)
        elif not private.is_of_keras(type(each)):
            kept = _attributes(each, kind, {})
            names |= {f"{kind}.{key}" for key, value in _own(each).items() if key not in kept and not callable(value)}
    if names:
        log.warn_once(
            f"Snapshot: a restart loses the state of {', '.join(sorted(names))}; to keep it, define get_state(), which "
            "returns numbers, texts, arrays, and lists and dicts of them, and set_state(state) in the callback"
        )


def callback_states(callbacks: Sequence[Any], arrays: Arrays, before: dict[str, Any]) -> dict[str, Any]:
    """The states of this rank's callbacks as JSON has them; their arrays get into `arrays`.

    Of a user-defined one its `get_state()`, of Keras's the plain attributes that are no longer as `before`.
    """
    states: dict[str, Any] = {}
    for name, each in _named(callbacks).items():
        if hasattr(each, "get_state"):
            states[name] = {"state": _encoded(each.get_state(), name, arrays)}
            continue
        now, old = _attributes(each, name, arrays), before.get(name, {}).get("attributes", {})
        changed = {key: value for key, value in now.items() if key not in old or value != old[key] or _has_array(value)}
        states[name] = {"attributes": changed}
        if isinstance(each, keras.callbacks.CSVLogger) and os.path.isfile(each.filename):
            states[name]["size"] = os.path.getsize(each.filename)
    return states


def _restore_callbacks(callbacks: Sequence[Any], saved: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """Sets the states of this rank's callbacks to those that `callback_states` has returned."""
    for name, callback in _named(callbacks).items():
        state = saved.get(name, {})
        if "state" in state:
            callback.set_state(decoded(state["state"], arrays))
        vars(callback).update({key: decoded(each, arrays) for key, each in state.get("attributes", {}).items()})
        if "size" in state:
            os.truncate(callback.filename, state["size"])


def _named(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The callbacks of this rank by their place among those of the user, which is the same on all ranks."""
    return {f"{i} {type(each).__name__}": each for i, each in enumerate(callbacks) if each is not None}


def _is_like_keras(callback: Any) -> bool:
    """Whether it is a callback of Keras, or a subclass of one."""
    return any(private.is_of_keras(kind) and kind is not keras.callbacks.Callback for kind in type(callback).__mro__)


def _own(callback: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(callback).items() if key not in _SET_BY_FIT}


def _attributes(callback: Any, name: str, arrays: Arrays) -> dict[str, Any]:
    """The attributes of a callback of Keras that JSON can have."""
    found = {}
    for key, value in _own(callback).items() if _is_like_keras(callback) else ():
        with contextlib.suppress(TypeError):
            found[key] = _encoded(value, f"{name}.{key}", arrays)
    return found


def _has_array(state: Any) -> bool:
    return '"array"' in json.dumps(state)


def _encoded(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON has it, with its arrays by name in `arrays`. Raises TypeError for what it cannot have."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        arrays[name] = value.copy()
        return {"array": name}
    if isinstance(value, (list, tuple)):
        return [_encoded(each, f"{name}.{i}", arrays) for i, each in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, (int, str)) for key in value):
        return {"items": [[key, _encoded(each, f"{name}.{key}", arrays)] for key, each in value.items()]}
    operation = getattr(value, "__name__", "")
    if getattr(keras.ops, operation, None) is value:  # by which EarlyStopping compares
        return {"operation": operation}
    raise TypeError(
        f"Snapshot: {name} has a {type(value).__name__}; get_state() must return numbers, texts, arrays, and "
        "lists and dicts of them"
    )


def decoded(value: Any, arrays: Mapping[str, Any]) -> Any:
    """The inverse of `_encoded`."""
    if isinstance(value, list):
        return [decoded(each, arrays) for each in value]
    if isinstance(value, dict):
        if "array" in value:
            return arrays[value["array"]]
        if "operation" in value:
            return getattr(keras.ops, value["operation"])
        return {key: decoded(each, arrays) for key, each in value["items"]}
    return value
