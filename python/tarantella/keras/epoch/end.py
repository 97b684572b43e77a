"""The end of an epoch or evaluation: ranks check their data and weights, and bring states and results together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import hooks, private, training
from . import drift, layer_state, metrics, user_logs


def install(model: Any) -> None:
    """Hooks the places where a Keras model asks for results. Idempotent. Raises ValueError for a bad tnt_combine."""
    hooks.hook(model, "_get_metrics_result_or_logs", functools.partial(_result_or_logs, model))
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
    """Keras asks for it once an epoch or evaluation: then the ranks bring their states together, for good."""

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
    """The results of the metrics, or where a user's own step returns other logs, those of one process."""
    results = original(logs)
    is_own = results is logs and isinstance(logs, dict) and logs
    return user_logs.combined(model, call.trains, logs) if is_own else results


def batch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """What one process would log now, within an epoch; the metrics go on from this rank's state. Collective."""
    call, original = training.of(model).call, hooks.original(model, "_get_metrics_result_or_logs")
    assert call is not None
    variables = model.metrics_variables
    local = [np.array(variable) for variable in variables]
    metrics.combine(model)
    try:
        return user_logs.flattened(_results(model, call, original, logs))
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)
