"""The end of an epoch or evaluation: ranks compare data and weights, and combine states, results and logs.

A log that is the result of a metric is computed again from the states of all ranks. Any other log of a user-defined
step is a number for the rows of one rank; these are averaged over the ranks, weighted by their rows, which is right
for a mean over the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import tree

from ... import _exchange
from ..._backend import backend
from ..._job import log, runtime
from ..._job.log import abbreviated
from .. import hooks, private, training
from . import drift, layer_state, metrics


def install(model: Any) -> None:
    """Hooks the methods in which a model computes results. Idempotent. Raises ValueError for a bad tnt_combine."""
    hooks.hook(model, private.RESULTS, functools.partial(_result_or_logs, model))
    hooks.hook(model, "reset_metrics", functools.partial(_reset, model))
    for metric in private.metrics_of(model):
        metrics.rules_of(metric)


def _reset(model: Any, original: Callable[[], None]) -> Callable[[], None]:
    def reset_metrics() -> None:
        original()
        call = training.of(model).call
        if call is not None:
            call.in_parts = True

    return reset_metrics


def _result_or_logs(model: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keras calls this once per epoch or evaluation: then the ranks combine their states permanently."""

    def result_or_logs(logs: Any) -> Any:
        call = training.of(model).call
        if call is None:
            return original(logs)
        drift.same_data(model)
        if call.trains and not call.on_batch:
            layer_state.average(model)
            drift.same_weights(model)
        metrics.combine(model)
        call.in_parts = False
        results = _results(model, call, original, logs)
        if call.trains and not call.on_batch:
            drift.nan_labels(model, flattened(results).get("loss", 0.0))
        return results

    return result_or_logs


def _results(model: Any, call: training.Call, original: Callable[[Any], Any], logs: Any) -> Any:
    """The results of the metrics, or the combined logs of a user-defined step."""
    results = original(logs)
    is_own = results is logs and isinstance(logs, dict) and logs
    return combined(model, call.trains, logs) if is_own else results


def batch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs of one process within an epoch. The metrics keep this rank's state. Collective."""
    call, original = training.of(model).call, hooks.original(model, private.RESULTS)
    assert call is not None
    backend.sync(model)
    variables = model.metrics_variables
    local = [np.array(variable) for variable in variables]
    metrics.combine(model)
    try:
        return flattened(_results(model, call, original, logs))
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)


def combined(model: Any, trains: bool, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs that one process would return. The metrics must hold the combined states. Collective."""
    steps = training.of(model).logs[trains]
    results = [source.result() for source in tree.flatten(steps.sources)]
    others = [i for i, result in enumerate(results) if result is None]
    for i, value in zip(others, _averaged(steps, logs, others), strict=True):
        results[i] = value
    packed: dict[str, Any] = tree.pack_sequence_as(logs, results)
    return packed


def flattened(logs: Any) -> dict[str, Any]:
    """The numbers and arrays in logs, with nested dicts flattened, as Keras passes them to callbacks."""
    flat_logs: dict[str, Any] = {}
    for name, value in logs.items():
        flat_logs |= flattened(value) if isinstance(value, dict) else {name: _number(value)}
    return flat_logs


def _number(value: Any) -> Any:
    return np.asarray(value) if np.ndim(value) else float(value)


def _averaged(steps: training.Logs, logs: dict[str, Any], others: list[int]) -> list[Any]:
    if not others:
        return []
    values = [np.asarray(tree.flatten(logs)[i]) for i in others]
    mine = np.concatenate([[float(steps.rows.numpy())], _exchange.flatten(values, np.float64)])
    everyone = runtime.context().allgather(mine, "logs")
    rows, numbers = everyone[:, 0], everyone[:, 1:]
    seen = numbers[rows > 0]  # the numbers of a rank without rows come from a copied row
    alike = (seen == seen[0]).all(axis=0)
    means = np.where(alike, seen[0], rows[rows > 0] @ seen / rows.sum())
    differ = [not each.all() for each in _exchange.unflatten(alike, values)]
    if any(differ):
        names = _names(logs)
        log.warn_once(
            f"{abbreviated([names[i] for i, differs in zip(others, differ, strict=True) if differs])} (logs of a "
            "user-defined step that are not results of metrics): the ranks' values for the last batch are averaged, "
            "weighted by their rows, which is exact for a mean over rows; for other logs return the result of a metric"
        )
    return _exchange.unflatten(means, values)


def _names(logs: dict[str, Any]) -> list[str]:
    """The names of the leaves, in the order of `tree.flatten`."""
    return [str(name) for name in tree.flatten(_named(logs, ""))]


def _named(logs: Any, name: str) -> Any:
    if isinstance(logs, dict):
        return {key: _named(value, str(key)) for key, value in logs.items()}
    return tree.map_structure(lambda _: name, logs)
