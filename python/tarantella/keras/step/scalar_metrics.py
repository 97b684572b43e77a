"""Metrics of the user's own, which get the rows of all ranks, and metrics that get one number per batch.

Such a number is taken for a mean over rows, and weighted by the rank's share of them. A `Sum` may get sums or means,
and which cannot be known: a WARNING says what is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from ..._job import log
from .. import hooks, private, training
from . import gathered
from .step import current_step, declared_reduction


def install(model: Any) -> None:
    """Hooks the updates of the metrics of a model that may get such numbers. Idempotent."""
    trackers = private.loss_trackers(model)
    for metric in private.metrics_of(model):
        if type(metric) is keras.metrics.Mean and all(metric is not each for each in trackers):
            hooks.hook(metric, "update_state", functools.partial(_scalars_by_share, metric))
        if type(metric) is keras.metrics.MeanMetricWrapper:
            hooks.hook(metric, "update_state", functools.partial(_means_by_share, metric))
        if type(metric) is keras.metrics.Sum:
            hooks.hook(metric, "update_state", functools.partial(_name_scalars, metric))
    for metric in private.metrics_to_compile(model):  # around the others
        if gathered.needs_all_rows(metric):
            hooks.hook(metric, "update_state", functools.partial(_on_all_rows, metric), "all rows")


def _on_all_rows(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For what the user gives to compile: every rank keeps the state of the global batch."""

    def update_state(*args: Any, **kwargs: Any) -> Any:
        step = current_step()
        if step is None:
            return original(*args, **kwargs)
        needs = gathered.needs_all_rows(metric)  # it may have been declared since
        rows = gathered.of_all_ranks(step, f"the metric {metric.name!r}", (args, kwargs)) if needs else None
        if rows is None:
            training.of(step.model).whole.pop(id(metric), None)
            return original(*args, **kwargs)
        training.of(step.model).whole[id(metric)] = metric
        args, kwargs = rows.structure
        return hooks.original(metric, "update_state")(*args, **kwargs)

    return update_state


def _is_scalar(values: Any) -> bool:
    return len(np.shape(values)) == 0


def _scalars_by_share(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a Mean: the mean over a rank's rows counts by the rank's share. A declared sum counts in full."""

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is not None and sample_weight is None and _is_scalar(values):
            values = ops.convert_to_tensor(values)
            sample_weight = step.share(values.dtype)
            if declared_reduction(metric) == "sum":
                values = step.as_mean(values)
        return original(values, sample_weight=sample_weight)

    return update_state


def _means_by_share(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a user-defined function, which may return the mean over its rows instead of a value for each row."""

    def update_state(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is None or sample_weight is not None:
            return original(y_true, y_pred, sample_weight=sample_weight)
        scalar = []

        def noting(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                values = function(*args, **kwargs)
                scalar.append(_is_scalar(values))
                return values

            return call

        before = [variable + 0 for variable in metric.variables]  # the value, not the variable
        with hooks.hooking(metric, private.FUNCTION, noting):
            result = original(y_true, y_pred)
        if scalar[-1]:
            for variable, old in zip(metric.variables, before, strict=True):
                variable.assign(old + (variable - old) * step.share(variable.dtype))
        return result

    return update_state


def _name_scalars(metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a Sum: warns that the numbers of the ranks are summed."""

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        if current_step() is not None and _is_scalar(values):
            log.warn_once(
                f"{metric.name} (Sum) gets one number for a batch, and the ranks' numbers are summed: right for a sum "
                "over rows, but a mean counts once for each rank; give it a value for each row"
            )
        return original(values, sample_weight=sample_weight)

    return update_state
