"""Global results of metrics: the states of all ranks are brought together, never their results averaged.

States are summed, in float64, which is right for all metrics of Keras (but see `limits`) and for every own metric
that counts or adds up. One whose state combines in another way says so in its attribute `tnt_combine`:

- "sum", "max" or "min", for all variables;
- a dict of these by the names of the variables, where those that it leaves out are summed;
- a function, or a method, of the list of the ranks' states, each a dict of float64 arrays by the names of the
  variables; it returns one such dict.

    class Largest(keras.metrics.Metric):
        tnt_combine = "max"

A metric that has others inside says it for all of their variables.

Once fit and evaluate have ended an epoch, the metric objects hold the global state on every rank. Training exchanges
nothing for metrics before the end of an epoch. What evaluates the model amid an epoch leaves its state, as in Keras:
then the master goes on from it and the others from `reset_state`, as a rank does that has seen no rows.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _runtime
from ..data.adapter import MicroBatches
from . import checks, flat, hooks, own_logs, statistics

_OPERATIONS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}


class Call:
    """A fit or evaluation of a model in which all ranks ask for results together."""

    def __init__(self, trains: bool, on_batch: bool = False) -> None:
        """`on_batch`: of a single batch, after which ranks compare and average nothing else."""
        self.trains, self.on_batch = trains, on_batch
        self.in_parts = False  # whether the metrics hold what this rank has seen, not what all have


# By model: the innermost call that runs now; None where this rank runs it for itself.
_calls: weakref.WeakKeyDictionary[Any, Call | None] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def during(model: Any, call: Call | None) -> Iterator[None]:
    """Until `call` has ended, it says how the model's results are made; then the call around it does again."""
    outer, _calls[model] = _calls.get(model), call
    try:
        yield
    finally:
        _calls[model] = outer
        if outer is not None and outer.in_parts:
            go_on(model)


def go_on(model: Any) -> None:
    """From a state that all ranks have alike: the master from this state, the others from nothing."""
    if not _runtime.is_master_rank():
        model.reset_metrics()


def loss_trackers(model: Any) -> list[Any]:
    """The model's running means of the loss, in total and for each output."""
    total = getattr(model, "_loss_tracker", None)
    parts = getattr(getattr(model, "_compile_loss", None), "metrics", [])
    return [tracker for tracker in [total, *parts] if tracker is not None]


def single(model: Any) -> list[Any]:
    """The model's metrics, those given to compile one by one."""
    return [each for metric in model.metrics for each in getattr(metric, "metrics", [metric])]


def install(model: Any) -> None:
    """Hooks the places where a Keras model asks for results. Idempotent. Raises ValueError for a bad tnt_combine."""
    hooks.hook(model, "_get_metrics_result_or_logs", functools.partial(_result_or_logs, model))
    hooks.hook(model, "reset_metrics", functools.partial(_reset, model))
    hooks.hook(model, "fit", functools.partial(_call, model, True))
    hooks.hook(model, "evaluate", functools.partial(_call, model, False))
    own_logs.install(single(model))
    for metric in single(model):
        _rules(metric)


def _call(model: Any, trains: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    """Tells calls on our batches from those that a callback, or a user, makes with other data on this rank alone."""

    def call(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs.get("x")
        with during(model, Call(trains) if isinstance(x, MicroBatches) else None):
            return original(*args, **kwargs)

    return call


def _reset(model: Any, original: Callable[[], None]) -> Callable[[], None]:
    def reset_metrics() -> None:
        original()
        call = _calls.get(model)
        if call is not None:
            call.in_parts = True

    return reset_metrics


def _result_or_logs(model: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keras asks for it once an epoch or evaluation: then the ranks bring their states together, for good."""

    def result_or_logs(logs: Any) -> Any:
        call = _calls.get(model)
        if call is None:
            return original(logs)
        checks.same_data(model)
        if call.trains and not call.on_batch:
            statistics.average(model)
            checks.same_weights(model)
        _combine(model)
        call.in_parts = False
        results = _results(model, call, original, logs)
        if call.trains and not call.on_batch:
            checks.nan_labels(model, own_logs.flattened(results).get("loss", 0.0))
        return results

    return result_or_logs


def _results(model: Any, call: Call, original: Callable[[Any], Any], logs: Any) -> Any:
    """The results of the metrics, or where a user's own step returns other logs, those of one process."""
    results = original(logs)
    is_own = results is logs and isinstance(logs, dict) and logs
    return own_logs.combined(model, call.trains, logs) if is_own else results


def batch_logs(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """What one process would log now, within an epoch; the metrics go on from this rank's state. Collective."""
    call, original = _calls.get(model), hooks.original(model, "_get_metrics_result_or_logs")
    assert call is not None
    variables = model.metrics_variables
    local = [np.array(variable) for variable in variables]
    _combine(model)
    try:
        return own_logs.flattened(_results(model, call, original, logs))
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)


def _combine(model: Any) -> None:
    """Gives the metrics of all ranks the global state. Collective."""
    metrics = single(model)
    own = [metric for metric in metrics if _rules(metric) is not None]
    theirs = {id(variable) for metric in own for variable in metric.variables}
    summed = [variable for variable in model.metrics_variables if id(variable) not in theirs]
    if summed:
        total = _runtime.context().allreduce(flat.join(summed, np.float64), "metrics")
        _assign(summed, flat.cut(total, summed))
    for metric in own:
        names = [variable.name for variable in metric.variables]
        everyone = _runtime.context().allgather(flat.join(metric.variables, np.float64), f"metric {metric.name}")
        states = [dict(zip(names, flat.cut(row, metric.variables), strict=True)) for row in everyone]
        state = _apply(metric, names, states)
        _assign(metric.variables, [np.asarray(state[name]) for name in names])


def _assign(variables: list[Any], values: list[NDArray[Any]]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value.astype(np.asarray(variable).dtype))


def _rules(metric: Any) -> Any:
    """The metric's `tnt_combine`, or None where its states are summed."""
    rules = getattr(metric, "tnt_combine", None)
    operations = [rules] if isinstance(rules, str) else rules.values() if isinstance(rules, dict) else []
    if not all(operation in _OPERATIONS for operation in operations) or not (
        rules is None or callable(rules) or isinstance(rules, (str, dict))
    ):
        raise ValueError(
            f"tnt_combine of the metric {metric.name!r} must be 'sum', 'max' or 'min', a dict of these by the names "
            f"of its variables, or a function of the ranks' states (got {rules!r})"
        )
    return rules


def _apply(metric: Any, names: list[str], states: list[dict[str, Any]]) -> dict[str, Any]:
    rules = _rules(metric)
    if isinstance(rules, str):
        rules = dict.fromkeys(names, rules)
    unknown = sorted(set(rules) - set(names)) if isinstance(rules, dict) else []
    if unknown or len(set(names)) < len(names):
        raise ValueError(
            f"tnt_combine of the metric {metric.name!r} needs the names of its variables, each another one: they are "
            f"{', '.join(names)}{f' and not {unknown[0]}' if unknown else ''}"
        )
    if not isinstance(rules, dict):
        state: dict[str, Any] = rules(states)
        return state
    return {
        name: _OPERATIONS[rules.get(name, "sum")](np.stack([state[name] for state in states]), axis=0) for name in names
    }
