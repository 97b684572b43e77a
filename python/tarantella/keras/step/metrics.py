"""User-defined metrics on the rows of all ranks, metrics of one number per batch, and the metrics that logs come from.

Such a number is taken for a mean over rows, and weighted by the rank's fraction of them. A `Sum` may get sums or means,
and which cannot be known: a WARNING says what is done. A log of a user-defined step is the result of a metric if it is
the very tensor that the metric's `result` has returned, under whatever name; this is noted while the step is traced.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from ..._job import log
from .. import hooks, model_state, private
from . import batch_dependent, gather
from .step import Step, current_step, tnt_reduction_of


def install(model: Any) -> None:
    """Hooks the updates of the metrics of a model that may get such numbers. Idempotent."""
    trackers = private.loss_trackers(model)
    for metric in private.metrics_of(model):
        if type(metric) is keras.metrics.Mean and all(metric is not each for each in trackers):
            hooks.hook(metric, "update_state", functools.partial(_scalars_by_fraction, metric))
        if type(metric) is keras.metrics.MeanMetricWrapper:
            hooks.hook(metric, "update_state", functools.partial(_means_by_fraction, metric))
        if type(metric) is keras.metrics.Sum:
            hooks.hook(metric, "update_state", functools.partial(_warn_of_scalars, metric))
    for metric in private.metrics_to_compile(model):  # around the others
        if batch_dependent.needs_all_rows(metric):
            hooks.hook(metric, "update_state", functools.partial(_on_all_rows, metric), "all rows")


def _on_all_rows(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For user-defined metrics given to compile: every rank keeps the state of the global batch."""

    def update_state(*args: Any, **kwargs: Any) -> Any:
        step = current_step()
        if step is None:
            return original(*args, **kwargs)
        needs = batch_dependent.needs_all_rows(metric)  # it may have been declared since
        rows = gather.of_all_ranks(step, f"the metric {metric.name!r}", (args, kwargs)) if needs else None
        if rows is None:
            model_state.of(step.model).global_metrics.pop(id(metric), None)
            return original(*args, **kwargs)
        model_state.of(step.model).global_metrics[id(metric)] = metric
        args, kwargs = rows.structure
        return hooks.original(metric, "update_state")(*args, **kwargs)

    return update_state


def _is_of_batch(step: Step, values: Any) -> bool:
    """Whether they are numbers of the batch, such as a scalar, or a list of it: as many, whatever its rows are."""
    shape = tuple(values.shape if hasattr(values, "shape") else ops.convert_to_tensor(values).shape)
    rows = step.static_rows
    return not shape or (shape[0] is not None and (not rows or (shape[0] == 1 and 1 not in rows)))


def _scalars_by_fraction(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a Mean: the mean over a rank's rows counts by the rank's fraction. A declared sum counts in full."""

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is not None and sample_weight is None and _is_of_batch(step, values):
            values = ops.convert_to_tensor(values)
            sample_weight = step.fraction(values.dtype)
            if tnt_reduction_of(metric) == "sum":
                values = step.sum_to_mean(values)
        return original(values, sample_weight=sample_weight)

    return update_state


def _means_by_fraction(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a user-defined function, which may return the mean over its rows instead of a value for each row."""

    def update_state(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is None or sample_weight is not None:
            return original(y_true, y_pred, sample_weight=sample_weight)
        before = [variable + 0 for variable in metric.variables]  # the value, not the variable
        with hooks.collecting(metric, private.FUNCTION) as values:
            result = original(y_true, y_pred)
        if _is_of_batch(step, values[-1]):
            for variable, old in zip(metric.variables, before, strict=True):
                variable.assign(old + (variable - old) * step.fraction(variable.dtype))
        return result

    return update_state


def _warn_of_scalars(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a Sum: warns that the numbers of the ranks are summed."""

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is not None and _is_of_batch(step, values):
            log.warn_once(
                f"{metric.name} (Sum) is updated with numbers of the batch, and those of the ranks are summed: this is "
                "right for a sum over rows, but counts a mean once per rank; update it with one value per row"
            )
        return original(values, sample_weight=sample_weight)

    return update_state


class _Source:
    """Where one log comes from."""

    def __init__(self, metric: Any = None, part: int = 0) -> None:
        """The leaf `part` of the result of `metric`; a number of the last batch if `metric` is None."""
        self.is_metric, self._part = metric is not None, part
        self._metric = None if metric is None else weakref.ref(metric)

    def result(self) -> Any:
        """The result that the metric has now, None for a number of the last batch."""
        metric = None if self._metric is None else self._metric()
        return None if metric is None else tree.flatten(metric.result())[self._part]


def note_sources(model: Any) -> None:
    """Hooks the methods of a model's metrics that return results or change states. Idempotent."""
    for metric in private.metrics_of(model):
        hooks.hook(metric, "result", functools.partial(_result, metric), tag="logs")
        for name in ("update_state", "reset_state"):
            hooks.hook(metric, name, functools.partial(_changed, metric), tag="logs")


def _result(metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
    def result() -> Any:
        value, step = original(), current_step()
        if step is not None:
            leaves = enumerate(tree.flatten(value))
            step.results.update({id(leaf): (leaf, metric, part) for part, leaf in leaves if hasattr(leaf, "dtype")})
        return value

    return result


def _changed(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Forgets the earlier results of a metric whose state changes."""

    def change(*args: Any, **kwargs: Any) -> Any:
        step = current_step()
        if step is not None:
            step.results = {key: found for key, found in step.results.items() if found[1] is not metric}
        return original(*args, **kwargs)

    return change


def note_logs(step: Step, trains: bool, logs: Any) -> None:
    """Remembers where the logs of a step of the model come from, within the step."""
    if not isinstance(logs, dict):
        return
    known = model_state.of(step.model).logs
    found = known[trains] = known.get(trains) or model_state.Logs()
    found.log_sources = tree.map_structure(lambda leaf: _Source(*step.results.get(id(leaf), (None, None, 0))[1:]), logs)
    if not all(source.is_metric for source in tree.flatten(found.log_sources)):
        found.rows.assign(step.rows)
