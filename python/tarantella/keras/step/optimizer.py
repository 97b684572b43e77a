"""The hooks of an optimizer: it applies gradients of the global batch, alike on all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..._backend import backend
from .. import hooks, private, training
from . import gradients
from .step import current_step


def install(optimizer: Any) -> None:
    """Hooks one outermost optimizer. Idempotent: models may share it."""
    hooks.hook(optimizer, "apply", lambda original: _apply(optimizer, original))
    for each in [optimizer, *private.optimizers_in(vars(optimizer).values())]:
        hooks.hook(each, "assign_add", functools.partial(_add_repeated_rows_first, optimizer))
        hooks.hook(each, "assign_sub", functools.partial(_add_repeated_rows_first, optimizer))


def _add_repeated_rows_first(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Otherwise threads would add repeated rows in any order, and variables would differ between ranks by rounding."""

    def assign(variable: Any, value: Any) -> Any:
        distributed = current_step() is not None or training.loop_of(optimizer) is not None
        return original(variable, backend.without_repeats(value) if distributed else value)

    return assign


def _apply(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        step, loop = current_step(), training.loop_of(optimizer)
        if step is None and loop is None:
            return original(grads, trainable_variables)
        grads = list(grads)
        variables = list(private.variables_of(optimizer) if trainable_variables is None else trainable_variables)

        def update(reduced: list[Any]) -> Any:
            return original(reduced, trainable_variables)

        if step is not None:
            return update(gradients.of(step).applied(grads, variables))
        assert loop is not None
        return loop(optimizer, grads, variables, update)

    return apply
