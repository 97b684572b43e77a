"""Where the logs of a user-defined step come from, noted while the step is traced.

A log is the result of a metric if it is the very tensor that the metric's `result` has returned, under whatever name.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from keras import tree

from .. import hooks, private, training
from .step import Step, current_step


class _Source:
    """Where one log comes from."""

    def __init__(self, metric: Any = None, part: int = 0) -> None:
        """The leaf `part` of the result of `metric`; a number of the last batch if `metric` is None."""
        self._metric, self._part = None if metric is None else weakref.ref(metric), part

    @property
    def is_metric(self) -> bool:
        """Whether it is a result of a metric."""
        return self._metric is not None

    def result(self) -> Any:
        """The result that the metric has now, None for a number of the last batch."""
        metric = None if self._metric is None else self._metric()
        return None if metric is None else tree.flatten(metric.result())[self._part]


def install(model: Any) -> None:
    """Hooks what the metrics of a model return and what changes them. Idempotent."""
    for metric in private.metrics_of(model):
        hooks.hook(metric, "result", functools.partial(_result, metric), layer="logs")
        for name in ("update_state", "reset_state"):
            hooks.hook(metric, name, functools.partial(_change, metric), layer="logs")


def _result(metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
    def result() -> Any:
        value, step = original(), current_step()
        if step is not None:
            leaves = enumerate(tree.flatten(value))
            step.results.update({id(leaf): (leaf, metric, part) for part, leaf in leaves if hasattr(leaf, "dtype")})
        return value

    return result


def _change(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """After its state has changed, what a metric returned before is not its result."""

    def change(*args: Any, **kwargs: Any) -> Any:
        step = current_step()
        if step is not None:
            step.results = {key: found for key, found in step.results.items() if found[1] is not metric}
        return original(*args, **kwargs)

    return change


def note(step: Step, trains: bool, logs: Any) -> None:
    """Remembers where the logs of a step of the model come from, within the step."""
    if not isinstance(logs, dict):
        return
    known = training.of(step.model).logs
    found = known[trains] = known.get(trains) or training.Logs()
    found.sources = tree.map_structure(lambda leaf: _Source(*step.results.get(id(leaf), (None, None, 0))[1:]), logs)
    if not all(source.is_metric for source in tree.flatten(found.sources)):
        found.rows.assign(step.rows)
