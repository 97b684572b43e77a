"""The state of training as a snapshot holds it: collected from all ranks, and given back to as many or another number.

All ranks have the same weights. Metrics and the state of layers are combined first, as before a checkpoint within an
epoch. What each rank has of its own is gathered: generators, and what callbacks count.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ... import _exchange
from ..._job import log, runtime
from ..._names import described
from ...data import position
from .. import private, replicas, training
from ..epoch import layer_state, metrics
from .store import Content

_Arrays = dict[str, NDArray[Any]]
# Attributes of callbacks that fit sets.
_SET_BY_FIT = ("_model", "params", "model", "validation_data")


class NotPlainError(TypeError):
    """A value that a snapshot cannot hold."""


def variables(model: Any) -> list[Any]:
    """Those of a snapshot, in its order."""
    every = [*replicas.variables(model), *model.metrics_variables]
    return list({id(v): v for v in every}.values())


def of_callbacks(callbacks: Sequence[Any], arrays: _Arrays) -> dict[str, Any]:
    """The states of this rank's callbacks, as JSON has them; their arrays get into `arrays`."""
    return {name: _state_of(each, name, arrays) for name, each in _named(callbacks).items()}


def before_fit(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The attributes of this rank's callbacks. None is asked for its state: it may have none before training."""
    asked = [None if hasattr(each, "get_state") else each for each in callbacks]
    return of_callbacks(asked, {})


def at_end(callbacks: Sequence[Any], before: dict[str, Any]) -> list[Any]:
    """By rank, what a fit that was completed leaves beside the model: generators, callbacks without arrays. Collective.

    A later fit of the script may have the same callbacks, and the script may draw before it.
    """
    own = _own(callbacks, before, {})
    # Files of logs are left as they are: a later fit may have gone on with them.
    kept = {name: each for name, each in own["callbacks"].items() if "size" not in each and not _has_array(each)}
    return [json.loads(each) for each in _exchange.gather_bytes(json.dumps({**own, "callbacks": kept}).encode())]


def restore_end(callbacks: Sequence[Any], ranks: list[Any]) -> None:
    """Sets what `at_end` has returned."""
    own = _of_this_rank(ranks)
    _restore_callbacks(callbacks, own, {})
    position.set_generators(own["generators"])


def _own(callbacks: Sequence[Any], before: dict[str, Any], arrays: _Arrays) -> dict[str, Any]:
    """What this rank has of its own, without attributes of callbacks that are still as `before` the fit."""
    now = of_callbacks(callbacks, arrays)
    return {
        "generators": position.generators(),
        "callbacks": {name: _changed(each, before.get(name, each)) for name, each in now.items()},
    }


def _of_this_rank(ranks: list[Any]) -> Any:
    """What this rank takes of a list by rank: that of rank 0 if their number was another."""
    return ranks[runtime.get_rank() if len(ranks) == runtime.get_size() else 0]


def _restore_callbacks(callbacks: Sequence[Any], own: dict[str, Any], arrays: Any) -> None:
    for name, callback in _named(callbacks).items():
        state = own["callbacks"].get(name)
        if state is not None:
            _set_state(callback, state, arrays)


def _has_array(state: Any) -> bool:
    return '"array"' in json.dumps(state)


def collect(model: Any, callbacks: Sequence[Any], before: dict[str, Any], within: bool, with_arrays: bool) -> Content:
    """The state of training on all ranks; the arrays of variables on those that ask for them. Collective.

    Attributes of callbacks that are still as `before` the fit are left out: the script sets them. `within` an epoch,
    metrics and layers have the state of all ranks afterwards, and training goes on from it.
    """
    if within and runtime.get_size() > 1:
        layer_state.average(model)
        metrics.combine(model)
    arrays: _Arrays = {}
    every = variables(model)
    own = {
        "seeds": [np.asarray(v).tolist() for v in every if private.is_seed(v)],
        **_own(callbacks, before, arrays),
    }
    everywhere = _exchange.gather_bytes(json.dumps([own, [*arrays]]).encode())
    ranks, names = zip(*map(json.loads, everywhere), strict=True)
    _add_arrays_of_others(arrays, names)
    text = {
        "ranks": [*ranks],
        "history": of_history(model, arrays),
        "variables": [described(v) for v in every],
    }
    if with_arrays:
        arrays |= {f"variable {i}": _bytes_of(v) for i, v in enumerate(every)}
    if within:
        training.go_on(model)
    return Content(text, arrays)


def _add_arrays_of_others(arrays: _Arrays, names: Sequence[list[str]]) -> None:
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
    own = _of_this_rank(ranks)
    seeds = iter(own["seeds"])
    for i, variable in enumerate(variables(model)):
        if private.is_seed(variable):
            state = np.array(next(seeds), np.dtype(keras.backend.standardize_dtype(variable.dtype)))
            variable.assign(state if has_as_many else replicas.fold(state, rank))
        else:
            value = np.empty(tuple(variable.shape), np.asarray(variable).dtype)
            value.reshape(-1).view(np.uint8)[:] = content.arrays[f"variable {i}"]
            variable.assign(value)
    if within:
        training.go_on(model)
    set_history(model, content.text["history"])
    _restore_callbacks(callbacks, own, content.arrays)
    taken, begun_with = content.text["position"]["taken"], content.text["position"]["generators"]
    position.set_generators(own["generators"], begun_with if within and taken[-1] else None)


def of_history(model: Any, arrays: _Arrays) -> Any:
    """The model's history, as JSON has it."""
    return _plain({"epoch": model.history.epoch, "history": model.history.history}, "history", arrays)


def set_history(model: Any, encoded: Any) -> None:
    """Sets what `of_history` has returned."""
    known = _decoded(encoded, {})
    model.history.epoch, model.history.history = known["epoch"], known["history"]


def check(model: Any, content: Content, where: str) -> None:
    """Raises ValueError if the snapshot is of another model."""
    mine, theirs = [described(v) for v in variables(model)], content.text["variables"]
    place = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    if len(mine) != len(theirs) or place < len(mine):
        one, other = (each[place] if place < len(each) else "no more variables" for each in (mine, theirs))
        raise ValueError(
            f"Snapshot: {where} has the training of another model: there {other}, here {one}; use the model with which "
            "the training began, or keep the snapshots of this one elsewhere"
        )


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Says which callbacks begin anew after a restart. Raises TypeError for one that only gives its state."""
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
            f"Snapshot: {', '.join(names)} begins anew after a restart; to go on, a callback has get_state(), whose "
            "result JSON can hold, and set_state(state)"
        )


def _named(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The callbacks of this rank by their place among those of the user, which is the same on all ranks."""
    return {f"{i} {type(each).__name__}": each for i, each in enumerate(callbacks) if each is not None}


def _has_state(callback: Any) -> bool:
    return hasattr(callback, "get_state") or any(
        private.is_of_keras(kind) and kind is not keras.callbacks.Callback for kind in type(callback).__mro__
    )


def _state_of(callback: Any, name: str, arrays: _Arrays) -> dict[str, Any]:
    """Attributes of one of Keras, those that are plain; what a user's says of itself."""
    if hasattr(callback, "get_state"):
        return {"state": _plain(callback.get_state(), name, arrays)}
    state = {}
    for key, value in vars(callback).items() if _has_state(callback) else ():
        if key not in _SET_BY_FIT:
            with contextlib.suppress(NotPlainError):
                state[key] = _plain(value, f"{name}.{key}", arrays)
    if isinstance(callback, keras.callbacks.CSVLogger) and os.path.isfile(callback.filename):
        return {"attributes": state, "size": os.path.getsize(callback.filename)}
    return {"attributes": state}


def _changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    if "attributes" not in now:
        return now
    old = before["attributes"]
    return {
        **now,
        "attributes": {
            key: value
            for key, value in now["attributes"].items()
            if key not in old or value != old[key] or _has_array(value)
        },
    }


def _set_state(callback: Any, state: dict[str, Any], arrays: Any) -> None:
    if "state" in state:
        callback.set_state(_decoded(state["state"], arrays))
    else:
        vars(callback).update({key: _decoded(each, arrays) for key, each in state["attributes"].items()})
        if "size" in state:
            os.truncate(callback.filename, state["size"])


def _plain(value: Any, name: str, arrays: _Arrays) -> Any:
    """The value as JSON has it, with its arrays by name in `arrays`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        arrays[name] = value.copy()
        return {"array": name}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{name}.{i}", arrays) for i, each in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, (int, str)) for key in value):
        return {"items": [[key, _plain(each, f"{name}.{key}", arrays)] for key, each in value.items()]}
    function = private.name_of_function(value)
    if function is not None:
        return {"function": function}
    raise NotPlainError(
        f"Snapshot: {name} has a {type(value).__name__}; get_state() must return numbers, texts, arrays, and "
        "lists and dicts of them"
    )


def _is_plain(value: Any) -> bool:
    try:
        _plain(value, "", {})
    except NotPlainError:
        return False
    return True


def continue_logs(callbacks: Sequence[Any]) -> None:
    """Has the logs of Keras's callbacks continued, before a fit that goes on."""
    for each in callbacks:
        if isinstance(each, keras.callbacks.CSVLogger):
            each.append = True


def _decoded(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each, arrays) for each in value]
    if isinstance(value, dict):
        if "array" in value:
            return arrays[value["array"]]
        if "function" in value:
            return private.function_named(value["function"])
        return {key: _decoded(each, arrays) for key, each in value["items"]}
    return value


def _bytes_of(variable: Any) -> NDArray[np.uint8]:
    """A copy of a variable's bytes: dtypes of machine learning have no name in files of NumPy."""
    return np.array(np.asarray(variable)).reshape(-1).view(np.uint8)
