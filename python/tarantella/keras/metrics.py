"""Global results of metrics: the states of all ranks are summed, never their results averaged."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import _runtime
from ..data.shares import MicroBatch, PaddedMicroBatch
from . import hooks, sync


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
    hooks.hook(model, "evaluate", _evaluate)


def _get_metrics_result(model: Any, original: Callable[[], Any]) -> Callable[[], Any]:
    def get_metrics_result() -> Any:
        # Within a step the results are those of this rank: an exchange a batch would cost too much.
        if _phase is Phase.NONE or hooks.current() is not None:
            return original()
        if _phase is Phase.FIT:
            sync.average_statistics(model)
        with _global_state(model.metrics_variables):
            return original()

    return get_metrics_result


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
