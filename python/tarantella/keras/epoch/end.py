"""The end of an epoch or evaluation: ranks compare data and weights, and combine states and results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import hooks, private, training
from . import drift, layer_state, metrics, user_logs


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
            drift.nan_labels(model, user_logs.flattened(results).get("loss", 0.0))
        return results

    return result_or_logs


def _results(model: Any, call: training.Call, original: Callable[[Any], Any], logs: Any) -> Any:
    """The results of the metrics, or the combined logs of a user-defined step."""
    results = original(logs)
    is_own = results is logs and isinstance(logs, dict) and logs
    return user_logs.combined(model, call.trains, logs) if is_own else results


def batch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs of one process within an epoch. The metrics keep this rank's state. Collective."""
    call, original = training.of(model).call, hooks.original(model, private.RESULTS)
    assert call is not None
    variables = model.metrics_variables
    local = [np.array(variable) for variable in variables]
    metrics.combine(model)
    try:
        return user_logs.flattened(_results(model, call, original, logs))
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)
