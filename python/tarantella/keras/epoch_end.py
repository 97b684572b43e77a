"""The end of an epoch or evaluation: ranks compare data and weights, and combine states, results and logs.

A log that is the result of a metric is computed again from the states of all ranks. Any other log of a user-defined
step is a number for the rows of one rank; these are averaged over the ranks, weighted by their rows, which is right
for a mean over the batch.

The states of metrics are summed in float64. This is right for all metrics of Keras. User-defined metrics that are
given to compile see the rows of all ranks in each step (see `step.gather`): the master's state is taken. Others, which
a step updates, are summed, too, or declare in their attribute `tnt_combine` how their states combine:

- "sum", "max" or "min", for all variables;
- a dict of these by variable name; variables that are not in it are summed;
- a function or method that takes the list of the ranks' states and returns the combined one; each state is a dict of
  float64 arrays by variable name.

    class Largest(keras.metrics.Metric):
        tnt_combine = "max"

A metric that contains others declares it for all of their variables.

After an epoch of fit or evaluate, the metric objects hold the global state on every rank. Before the end of an epoch,
training exchanges nothing for metrics. Keras keeps the metric state of an evaluation inside an epoch. The master
continues from it and the other ranks reset theirs, so that the sum stays right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import tree

from .. import _exchange
from .._backend import backend
from .._job import log, runtime, timeline
from .._job.log import abbreviated
from . import hooks, model_state, private, replicas

_OPERATIONS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}


def install(model: Any) -> None:
    """Hooks the methods in which a model computes results. Idempotent. Raises ValueError for a bad tnt_combine."""
    hooks.hook(model, private.METRICS_RESULT, functools.partial(_result_or_logs, model))
    hooks.hook(model, "reset_metrics", functools.partial(_reset, model))
    for metric in private.metrics_of(model):
        rules_of(metric)


def _reset(model: Any, original: Callable[[], None]) -> Callable[[], None]:
    def reset_metrics() -> None:
        original()
        call = model_state.of(model).call
        if call is not None:
            call.metrics_are_local = True

    return reset_metrics


def _result_or_logs(model: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keras calls this once per epoch or evaluation: then the ranks combine their states permanently."""

    def result_or_logs(logs: Any) -> Any:
        call = model_state.of(model).call
        if call is None:
            return original(logs)
        backend.sync(model)  # ranks call the core in one order: first the steps, then what follows
        replicas.same_data(model)
        if call.trains and not call.on_batch:
            average_layer_state(model)
            replicas.same_weights(model)
        combine_metrics(model)
        call.metrics_are_local = False
        results = _results(model, call, original, logs)
        if call.trains and not call.on_batch:
            replicas.nan_labels(model, flattened(results).get("loss", 0.0))
        return results

    return result_or_logs


def _results(model: Any, call: model_state.Call, original: Callable[[Any], Any], logs: Any) -> Any:
    """The results of the metrics, or the combined logs of a user-defined step."""
    results = original(logs)
    is_own = results is logs and isinstance(logs, dict) and logs
    return combined(model, call.trains, logs) if is_own else results


def batch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs of one process within an epoch. The metrics keep this rank's state. Collective."""
    call, original = model_state.of(model).call, hooks.original(model, private.METRICS_RESULT)
    assert call is not None
    backend.sync(model)
    variables = model.metrics_variables
    local = [np.array(variable) for variable in variables]
    combine_metrics(model)
    try:
        return flattened(_results(model, call, original, logs))
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)


def combined(model: Any, trains: bool, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs that one process would return. The metrics must hold the combined states. Collective."""
    steps = model_state.of(model).logs[trains]
    results = [source.result() for source in tree.flatten(steps.log_sources)]
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


def _averaged(steps: model_state.Logs, logs: dict[str, Any], others: list[int]) -> list[Any]:
    if not others:
        return []
    values = [np.asarray(tree.flatten(logs)[i]) for i in others]
    local = np.concatenate([[float(steps.rows.numpy())], _exchange.flatten(values, np.float64)])
    everyone = runtime.context().allgather(local, "logs")
    rows, numbers = everyone[:, 0], everyone[:, 1:]
    seen = numbers[rows > 0]  # the numbers of a rank without rows come from a padding row
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


@timeline.part("average layer state")
def average_layer_state(model: Any) -> None:
    """Sets the float weights that are not trained and differ between ranks to their mean. Collective.

    They are the moving statistics of BatchNormalization, and variables that user-defined layers assign: a running
    mean, a codebook. Weights of other dtypes are not changed. States of random generators differ on purpose.
    """
    progress = model_state.get(model)
    if progress is not None:
        progress.stepped_since_sync = False
    average_of(model, replicas.differing(model.non_trainable_weights))


def average_of(model: Any, differ: list[Any]) -> list[Any]:
    """As `average_layer_state`, of these variables. Returns those that are equal now. Collective."""
    floats = [v for v in differ if keras.backend.is_float_dtype(v.dtype)]
    _warn_of_layer_state(model, floats, [v for v in differ if not keras.backend.is_float_dtype(v.dtype)])
    if not floats:
        return []
    everyone = runtime.context().allgather(_exchange.flatten(floats, np.float64), "moving statistics")
    # A number that is the same on all ranks stays the same to the last bit.
    mean = np.where((everyone == everyone[0]).all(axis=0), everyone[0], everyone.mean(axis=0))
    replicas.assign(floats, _exchange.unflatten(mean, floats))
    return floats


def _warn_of_layer_state(model: Any, floats: list[Any], others: list[Any]) -> None:
    known = {id(v) for layer in replicas.normalizations(model) for v in layer.weights}
    own = [v.path for v in floats if id(v) not in known]
    if own:
        log.warn_once(
            f"{abbreviated(own)} (not trained, but assigned by layers): each rank computes them from its own rows, so "
            "they differ from one process; they are averaged over the ranks after every epoch and before evaluations"
        )
    if others:
        log.warn_once(
            f"{abbreviated([v.path for v in others])} (assigned by layers, not floats): each rank keeps its own, which "
            "differ from one process; saved files contain those of the master"
        )


@timeline.part("exchange metrics")
def combine_metrics(model: Any) -> None:
    """Sets the metrics on all ranks to the global state. Collective."""
    metrics = private.metrics_of(model)
    own = [metric for metric in metrics if rules_of(metric) is not None]
    theirs = {id(variable) for metric in own for variable in metric.variables}
    whole = {id(variable) for metric in model_state.of(model).global_metrics.values() for variable in metric.variables}
    summed = [variable for variable in model.metrics_variables if id(variable) not in theirs]
    if summed:
        # Of states that every rank has for all rows, the master's are taken.
        counted = [
            np.zeros(v.shape) if id(v) in whole and not runtime.is_master_rank() else np.asarray(v) for v in summed
        ]
        total = runtime.context().allreduce(_exchange.flatten(counted, np.float64), "metrics")
        replicas.assign(summed, _exchange.unflatten(total, summed))
    for metric in own:
        names = [variable.name for variable in metric.variables]
        everyone = runtime.context().allgather(_exchange.flatten(metric.variables, np.float64), f"metric {metric.name}")
        states = [dict(zip(names, _exchange.unflatten(row, metric.variables), strict=True)) for row in everyone]
        state = _apply_rules(metric, names, states)
        replicas.assign(metric.variables, [np.asarray(state[name]) for name in names])


def rules_of(metric: Any) -> Any:
    """The metric's `tnt_combine`, or None if its states are summed. Raises ValueError if it is invalid."""
    rules = getattr(metric, "tnt_combine", None)
    operations = [rules] if isinstance(rules, str) else rules.values() if isinstance(rules, dict) else []
    if not all(operation in _OPERATIONS for operation in operations) or not (
        rules is None or callable(rules) or isinstance(rules, (str, dict))
    ):
        raise ValueError(
            f"tnt_combine of the metric {metric.name!r} must be 'sum', 'max' or 'min', a dict of these by variable "
            f"name, or a function of the ranks' states (got {rules!r})"
        )
    return rules


def _apply_rules(metric: Any, names: list[str], states: list[dict[str, Any]]) -> dict[str, Any]:
    rules = rules_of(metric)
    if isinstance(rules, str):
        rules = dict.fromkeys(names, rules)
    unknown = sorted(set(rules) - set(names)) if isinstance(rules, dict) else []
    if unknown or len(set(names)) < len(names):
        raise ValueError(
            f"tnt_combine of the metric {metric.name!r} needs its variables by different names: they are "
            f"{', '.join(names)}{f', not {unknown[0]}' if unknown else ''}"
        )
    if not isinstance(rules, dict):
        state: dict[str, Any] = rules(states)
        return state
    return {
        name: _OPERATIONS[rules.get(name, "sum")](np.stack([state[name] for state in states]), axis=0) for name in names
    }
