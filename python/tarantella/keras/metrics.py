"""Global results of metrics: the states of all ranks are summed, never their results averaged."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from keras import tree

from .. import _log, _runtime
from ..data.shares import MicroBatch, PaddedMicroBatch
from . import checks, hooks, sync


class Phase(enum.Enum):
    """What a distributed call of the model does now."""

    NONE = enum.auto()
    FIT = enum.auto()
    EVALUATE = enum.auto()


_phase = Phase.NONE


@contextlib.contextmanager
def phase(new: Phase) -> Iterator[None]:
    """Marks the calls in which all ranks ask for results together."""
    global _phase
    old, _phase = _phase, new
    try:
        yield
    finally:
        _phase = old


def loss_trackers(model: Any) -> list[Any]:
    """The model's running means of the loss, in total and for each output."""
    total = getattr(model, "_loss_tracker", None)
    parts = getattr(getattr(model, "_compile_loss", None), "metrics", [])
    return [tracker for tracker in [total, *parts] if tracker is not None]


def install(model: Any) -> None:
    """Hooks the places where a Keras model asks for results. Idempotent."""
    hooks.hook(model, "get_metrics_result", lambda original: _get_metrics_result(model, original))
    hooks.hook(model, "_get_metrics_result_or_logs", lambda original: _result_or_logs(model, original))
    hooks.hook(model, "evaluate", _evaluate)


def _get_metrics_result(model: Any, original: Callable[[], Any]) -> Callable[[], Any]:
    def get_metrics_result() -> Any:
        # Within a step the results are those of this rank: an exchange a batch would cost too much.
        if _phase is Phase.NONE or hooks.current() is not None:
            return original()
        checks.same_data(model)
        if _phase is Phase.FIT:
            sync.average_statistics(model)
            checks.same_weights(model)
        with _global_state(model.metrics_variables):
            # A metric may return its very variable, which is this rank's again in a moment.
            return tree.map_structure(_number, original())

    return get_metrics_result


def _number(result: Any) -> Any:
    value = np.array(result)
    return float(value) if value.ndim == 0 else value


def _result_or_logs(model: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Results at the end of an epoch, or the last batch's logs where a user's own step returns no metrics."""

    def result_or_logs(logs: Any) -> Any:
        results = original(logs)
        if _phase is Phase.NONE or results is not logs or not logs:
            return results
        _log.warn_once(
            f"{', '.join(map(str, logs))} (logs of the model's own step, not its metrics): the last batch's values are "
            "averaged over the ranks, which differs from one process's; return self.get_metrics_result() instead"
        )
        values = {name: np.asarray(value, np.float64) for name, value in logs.items()}
        total = _runtime.context().allreduce(np.concatenate([v.ravel() for v in values.values()]), "logs")
        means = iter(np.split(total / _runtime.get_size(), np.cumsum([v.size for v in values.values()])[:-1]))
        return {name: _number(next(means).reshape(value.shape)) for name, value in values.items()}

    return result_or_logs


def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tells evaluations of our datasets from a callback that evaluates other data on its rank alone."""

    def evaluate(x: Any = None, *args: Any, **kwargs: Any) -> Any:
        distributed = isinstance(getattr(x, "element_spec", None), (MicroBatch, PaddedMicroBatch))
        with phase(Phase.EVALUATE if distributed else Phase.NONE):
            return original(x, *args, **kwargs)

    return evaluate


@contextlib.contextmanager
def _global_state(variables: list[Any]) -> Iterator[None]:
    """Within it, the variables hold their sums over the ranks. Collective."""
    local = [np.asarray(variable) for variable in variables]
    if not local:
        yield
        return
    flat = np.concatenate([value.astype(np.float64).ravel() for value in local])
    total = _runtime.context().allreduce(flat, "metrics")
    start = 0
    for variable, value in zip(variables, local, strict=True):
        part = total[start : start + value.size].reshape(value.shape)
        variable.assign(part.astype(value.dtype))
        start += value.size
    try:
        yield
    finally:
        for variable, value in zip(variables, local, strict=True):
            variable.assign(value)
