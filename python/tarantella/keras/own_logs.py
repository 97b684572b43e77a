"""The logs that a step of the user's own returns: results of metrics, or numbers of its last batch.

Which log is a metric's result is found while the step is traced: it is the very tensor that `result` has returned,
under whatever name. At the end of an epoch it is made anew, from the states of all ranks. Any other log is one rank's
number for its own rows; the ranks' numbers are averaged by their rows, as the mean over a batch is.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import tree

from .. import _log, _runtime
from .._backend import tensorflow as backend
from .._names import listed
from . import flat, hooks


class _Source:
    """Of one log."""

    def __init__(self, metric: Any = None, part: int = 0) -> None:
        """`part` of the results of `metric`, or a number of the last batch where that is None."""
        self._metric, self._part = None if metric is None else weakref.ref(metric), part

    @property
    def is_metric(self) -> bool:
        """Whether it is a result of a metric."""
        return self._metric is not None

    def result(self) -> Any:
        """The result that the metric has now, None for a number of the last batch."""
        metric = None if self._metric is None else self._metric()
        return None if metric is None else tree.flatten(metric.result())[self._part]


class _Steps:
    """What is known of the training or evaluation steps of a model."""

    def __init__(self) -> None:
        self.rows = backend.counter()  # of this rank, in the latest step
        self.sources: Any = None  # of its logs, in their structure


# By model, then by whether the steps train.
_steps: weakref.WeakKeyDictionary[Any, dict[bool, _Steps]] = weakref.WeakKeyDictionary()


def install(metrics: list[Any]) -> None:
    """Hooks what metrics return and what changes them. Idempotent."""
    for metric in metrics:
        hooks.hook(metric, "result", functools.partial(_result, metric), layer="logs")
        for name in ("update_state", "reset_state"):
            hooks.hook(metric, name, functools.partial(_change, metric), layer="logs")


def _result(metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
    def result() -> Any:
        value, step = original(), hooks.current()
        if step is not None:
            leaves = enumerate(tree.flatten(value))
            step.results.update({id(leaf): (leaf, metric, part) for part, leaf in leaves if hasattr(leaf, "dtype")})
        return value

    return result


def _change(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """After its state has changed, what a metric returned before is not its result."""

    def change(*args: Any, **kwargs: Any) -> Any:
        step = hooks.current()
        if step is not None:
            step.results = {key: found for key, found in step.results.items() if found[1] is not metric}
        return original(*args, **kwargs)

    return change


def note(step: hooks.Step, trains: bool, logs: Any) -> None:
    """Remembers where the logs of a step of the model come from, within the step."""
    if not isinstance(logs, dict):
        return
    of_model = _steps.setdefault(step.model, {})
    if trains not in of_model:
        of_model[trains] = _Steps()
    steps = of_model[trains]
    steps.sources = tree.map_structure(lambda leaf: _Source(*step.results.get(id(leaf), (None, None, 0))[1:]), logs)
    if not all(source.is_metric for source in tree.flatten(steps.sources)):
        steps.rows.assign(step.rows)


def combined(model: Any, trains: bool, logs: dict[str, Any]) -> dict[str, Any]:
    """The logs that one process would return, where the metrics hold the states of all ranks. Collective."""
    steps = _steps[model][trains]
    results = [source.result() for source in tree.flatten(steps.sources)]
    others = [i for i, result in enumerate(results) if result is None]
    for i, value in zip(others, _averaged(steps, logs, others), strict=True):
        results[i] = value
    packed: dict[str, Any] = tree.pack_sequence_as(logs, results)
    return packed


def flattened(logs: Any) -> dict[str, Any]:
    """The numbers and arrays in logs, those of nested dicts too, as Keras gives them to callbacks."""
    flat_logs: dict[str, Any] = {}
    for name, value in logs.items():
        flat_logs |= flattened(value) if isinstance(value, dict) else {name: _number(value)}
    return flat_logs


def _number(value: Any) -> Any:
    return np.asarray(value) if np.ndim(value) else float(value)


def _averaged(steps: _Steps, logs: dict[str, Any], others: list[int]) -> list[Any]:
    if not others:
        return []
    values = [np.asarray(tree.flatten(logs)[i]) for i in others]
    mine = np.concatenate([[float(steps.rows.numpy())], flat.join(values, np.float64)])
    everyone = _runtime.context().allgather(mine, "logs")
    rows, numbers = everyone[:, 0], everyone[:, 1:]
    seen = numbers[rows > 0]  # a rank without rows has numbers of a copied one
    alike = (seen == seen[0]).all(axis=0)
    means = np.where(alike, seen[0], rows[rows > 0] @ seen / rows.sum())
    differ = [not each.all() for each in flat.cut(alike, values)]
    if any(differ):
        names = _names(logs)
        _log.warn_once(
            f"{listed([names[i] for i, differs in zip(others, differ, strict=True) if differs])} (logs of the model's "
            "own step that are no metric's result): the ranks' values for the last batch are averaged by their rows, "
            "which equals one process's for a mean over rows; for all else return the result of a metric"
        )
    return flat.cut(means, values)


def _names(logs: dict[str, Any]) -> list[str]:
    """Of the leaves, in the order in which `tree.flatten` has them."""
    return [str(name) for name in tree.flatten(_named(logs, ""))]


def _named(logs: Any, name: str) -> Any:
    if isinstance(logs, dict):
        return {key: _named(value, str(key)) for key, value in logs.items()}
    return tree.map_structure(lambda _: name, logs)
