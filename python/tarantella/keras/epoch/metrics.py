"""Global results of metrics: combines the states of all ranks instead of averaging their results.

States are summed in float64. This is right for all metrics of Keras. User-defined metrics that are given to compile
see the rows of all ranks in each step (see `step.gather`): the master's state is taken. Others, which a step updates,
are summed, too, or declare in their attribute `tnt_combine` how their states combine:

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

from typing import Any

import numpy as np

from ... import _exchange
from ..._job import runtime, timeline
from .. import private, replicas, training

_OPERATIONS: dict[str, Any] = {"sum": np.sum, "max": np.max, "min": np.min}


@timeline.part("exchange metrics")
def combine(model: Any) -> None:
    """Sets the metrics on all ranks to the global state. Collective."""
    metrics = private.metrics_of(model)
    own = [metric for metric in metrics if rules_of(metric) is not None]
    theirs = {id(variable) for metric in own for variable in metric.variables}
    whole = {id(variable) for metric in training.of(model).whole.values() for variable in metric.variables}
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
        state = _apply(metric, names, states)
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


def _apply(metric: Any, names: list[str], states: list[dict[str, Any]]) -> dict[str, Any]:
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
