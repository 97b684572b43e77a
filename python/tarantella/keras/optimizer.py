"""The hook of an optimizer: gradients are summed over the ranks before it sees them.

So unscaling, accumulation, clipping and moving averages work on the gradients of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from .._backend import tensorflow as backend
from . import hooks

# Their updates compute with gradients and assign what they computed, never a gradient itself.
_PLAIN = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lamb")


def _keeps_no_gradient(optimizer: Any, variables: list[Any]) -> bool:
    kinds = [getattr(keras.optimizers, name) for name in _PLAIN]
    return (
        type(optimizer) in kinds  # a subclass may do anything
        and not optimizer.gradient_accumulation_steps
        and not any(getattr(variable, "overwrite_with_gradient", False) for variable in variables)
    )


def outermost(model: Any) -> list[Any]:
    """The optimizers that the model itself calls, without those that live inside another one."""
    candidates = [getattr(model, "optimizer", None), *vars(model).values()]
    found: list[Any] = []
    for candidate in candidates:
        if isinstance(candidate, keras.optimizers.Optimizer) and all(candidate is not f for f in found):
            found.append(candidate)
    inner = [value for each in found for value in _children(each)]
    return [each for each in found if all(each is not child for child in inner)]


def _children(optimizer: Any) -> list[Any]:
    values: list[Any] = []
    for value in vars(optimizer).values():
        values.extend(value if isinstance(value, (list, tuple)) else [value])
    return [value for value in values if isinstance(value, keras.optimizers.Optimizer)]


def install(optimizer: Any) -> None:
    """Hooks one outermost optimizer. Idempotent: models may share it."""
    hooks.hook(optimizer, "scale_loss", lambda original: _scale_loss(optimizer, original))
    hooks.hook(optimizer, "apply", lambda original: _apply(optimizer, original))


def _scale_loss(optimizer: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def scale_loss(loss: Any) -> Any:
        step = hooks.current()
        if step is None:
            return original(loss)
        step.scaled.add(id(optimizer))
        return original(loss * step.weight(loss.dtype))

    return scale_loss


def _apply(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        step = hooks.current()
        if step is None:
            return original(grads, trainable_variables)
        step.applied = True
        grads = list(grads)
        variables = list(optimizer._trainable_variables if trainable_variables is None else trainable_variables)
        if id(optimizer) not in step.scaled:  # a user's own train_step that scales no loss
            grads = [None if g is None else g * step.weight(g.dtype) for g in grads]
        if step.copied is not None:
            grads = [backend.zero_where(step.copied, g) for g in grads]
        borrow = _keeps_no_gradient(optimizer, variables)
        return original(backend.allreduce(optimizer, grads, variables, borrow), trainable_variables)

    return apply
