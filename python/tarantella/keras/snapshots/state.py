"""The state of training in a snapshot: collected from all ranks, and restored on the same or another number of ranks.

All ranks have the same weights. Metrics and the state of layers are combined first, as before a checkpoint within an
epoch. Generators and the states of callbacks are gathered: each rank has its own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ... import _exchange
from ..._exchange import described
from ..._job import runtime
from ...data import position
from .. import epoch_end, model_state, private, replicas
from . import callback_states
from .callback_states import Arrays
from .store import Content


def variables(model: Any) -> list[Any]:
    """Those of a snapshot, in its order."""
    every = [*replicas.variables(model), *model.metrics_variables]
    return list({id(v): v for v in every}.values())


def at_end(callbacks: Sequence[Any], before: dict[str, Any]) -> list[Any]:
    """The generators and the callbacks, without arrays, of each rank at the end of a completed fit. Collective.

    A later fit of the script may have the same callbacks, and the script may draw before it.
    """
    local = _of_rank_alone(callbacks, before, {})
    # Files of logs are left as they are: a later fit may have gone on with them.
    kept = {
        name: each
        for name, each in local["callbacks"].items()
        if "size" not in each and not callback_states.has_array(each)
    }
    return [json.loads(each) for each in _exchange.gather_bytes(json.dumps({**local, "callbacks": kept}).encode())]


def restore_end(callbacks: Sequence[Any], ranks: list[Any]) -> None:
    """Restores the result of `at_end`."""
    saved = _of_this_rank(ranks)
    callback_states.restore(callbacks, saved["callbacks"], {})
    position.set_generators(saved["generators"])


def _of_rank_alone(callbacks: Sequence[Any], before: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The generators and callbacks of this rank, without attributes that are still as `before` the fit."""
    now = callback_states.states(callbacks, arrays)
    return {"generators": position.generators(), "callbacks": callback_states.changed(now, before)}


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
        **_of_rank_alone(callbacks, before, arrays),
    }
    everywhere = _exchange.gather_bytes(json.dumps([local, [*arrays]]).encode())
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
    callback_states.restore(callbacks, saved["callbacks"], content.arrays)
    taken, begun_with = content.text["position"]["taken"], content.text["position"]["generators"]
    position.set_generators(saved["generators"], begun_with if within and taken[-1] else None)


def of_history(model: Any, arrays: Arrays) -> Any:
    """The model's history, as JSON has it."""
    return callback_states.plain({"epoch": model.history.epoch, "history": model.history.history}, "history", arrays)


def set_history(model: Any, encoded: Any) -> None:
    """Restores the result of `of_history`."""
    known = callback_states.decoded(encoded, {})
    model.history.epoch, model.history.history = known["epoch"], known["history"]


def check(model: Any, content: Content, where: str) -> None:
    """Raises ValueError if the snapshot is of another model."""
    local, theirs = [described(v) for v in variables(model)], content.text["variables"]
    place = next(
        (i for i, (a, b) in enumerate(zip(local, theirs, strict=False)) if a != b), min(len(local), len(theirs))
    )
    if len(local) != len(theirs) or place < len(local):
        one, other = (each[place] if place < len(each) else "no more variables" for each in (local, theirs))
        raise ValueError(
            f"Snapshot: {where} is from another model: there {other}, here {one}; use the model with which the "
            "training began, or another place for the snapshots of this one"
        )


def _bytes_of(variable: Any) -> NDArray[np.uint8]:
    """A copy of a variable's bytes: dtypes of machine learning have no name in files of NumPy."""
    return np.array(np.asarray(variable)).reshape(-1).view(np.uint8)
