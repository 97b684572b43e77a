"""The hook of an optimizer: gradients are summed over the ranks before it sees them.

So unscaling, accumulation, clipping and moving averages work on the gradients of the global batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..._backend import backend
from .. import hooks, private, training
from . import updates
from .step import Step, current_step

# Their updates compute with gradients and assign what they computed, never a gradient itself.
_PLAIN = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lamb")


def keeps_no_gradient(optimizer: Any, variables: list[Any]) -> bool:
    """Whether the optimizer's update keeps no gradient, so that it may borrow memory for them."""
    kinds = [getattr(keras.optimizers, name) for name in _PLAIN]
    return (
        type(optimizer) in kinds  # a subclass may do anything
        and not optimizer.gradient_accumulation_steps
        and not any(getattr(variable, "overwrite_with_gradient", False) for variable in variables)
    )


def install(optimizer: Any) -> None:
    """Hooks one outermost optimizer. Idempotent: models may share it."""
    hooks.hook(optimizer, "scale_loss", lambda original: _scale_loss(optimizer, original))
    hooks.hook(optimizer, "apply", lambda original: _apply(optimizer, original))
    for each in [optimizer, *private.optimizers_in(vars(optimizer).values())]:
        hooks.hook(each, "assign_add", functools.partial(_add_repeated_rows_first, optimizer))
        hooks.hook(each, "assign_sub", functools.partial(_add_repeated_rows_first, optimizer))
        updates.install(each, optimizer)


def _add_repeated_rows_first(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Otherwise threads would add repeated rows in any order, and variables would differ between ranks by rounding."""

    def assign(variable: Any, value: Any) -> Any:
        distributed = current_step() is not None or training.loop_of(optimizer) is not None
        return original(variable, backend.without_repeats(value) if distributed else value)

    return assign


def _scale_loss(optimizer: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def scale_loss(loss: Any) -> Any:
        step = current_step()
        if step is None:
            return original(loss)
        step.scaled.add(id(optimizer))
        return original(loss * step.weight(loss.dtype))

    return scale_loss


def _apply(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        step, loop = current_step(), training.loop_of(optimizer)
        if step is None and loop is None:
            return original(grads, trainable_variables)
        grads = list(grads)
        variables = list(private.variables_of(optimizer) if trainable_variables is None else trainable_variables)

        def update(reduced: list[Any]) -> Any:
            with updates.applying():
                return original(reduced, trainable_variables)

        if step is not None:
            return update(_of_global_batch(step, optimizer, grads, variables))
        assert loop is not None
        return loop(optimizer, grads, variables, update)

    return apply


def _of_global_batch(step: Step, optimizer: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
    grads = [backend.prepared(g, v, step.static_rows) for g, v in zip(grads, variables, strict=True)]
    grads = _weighed(step, optimizer, grads)
    return backend.allreduce(optimizer, grads, variables, keeps_no_gradient(optimizer, variables), empty=step.copied)


def _weighed(step: Step, optimizer: Any, grads: list[Any]) -> list[Any]:
    """This rank's part of the gradients of the global batch."""
    step.applied = True
    if id(optimizer) not in step.scaled:  # a user's own train_step that scales no loss
        grads = [scaled(g, step.weight) for g in grads]
    return grads if step.copied is None else [_no_slices_where(step.copied, g) for g in grads]


def scaled(gradient: Any, weight: Callable[[Any], Any]) -> Any:
    """The prepared gradient times `weight(dtype)`."""
    if gradient is None:
        return None
    if isinstance(gradient, list):
        return backend.changed(gradient, lambda values, indices: (values * weight(values.dtype), indices))
    return gradient * weight(gradient.dtype)


def _no_slices_where(condition: Any, gradient: Any) -> Any:
    """The prepared gradient; of a sparse one, no slices where the condition holds."""
    if not isinstance(gradient, list):
        return gradient

    def no_slices(values: Any, indices: Any) -> Any:
        kept = ops.where(condition, 0, ops.shape(indices)[0])
        return values[:kept], indices[:kept]

    return backend.changed(gradient, no_slices)
