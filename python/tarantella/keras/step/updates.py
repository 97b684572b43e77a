"""The hook of `update_step` of an optimizer: an update that passes over memory once, where the backend has one.

Keras composes an update of operations that each pass over the gradient or a variable: of large networks it is a large
part of a step. Where a trial shows that the numbers are the same, a rank uses one operation in their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ..._backend import backend
from .. import hooks, private, training
from .step import current_step

# The options that an update depends on. A subclass may do anything.
_OPTIONS: dict[type, tuple[str, ...]] = {
    keras.optimizers.SGD: ("momentum", "nesterov"),
    keras.optimizers.Adam: ("beta_1", "beta_2", "epsilon", "amsgrad"),
    keras.optimizers.AdamW: ("beta_1", "beta_2", "epsilon", "amsgrad"),
}
_RATE = 0.01
_GRADIENTS = np.array([[1.0, -2e-3, 1e-7, 0.0], [0.5, 1e-3, 2e-7, 3.0]], "float32")
_SAME = 5e-5  # relative: TensorFlow's second moment of Adam is off by up to 2e-5


def install(optimizer: Any, outermost: Any) -> None:
    """Hooks an optimizer, which may live inside the outermost one. Idempotent."""
    if type(optimizer) in _OPTIONS:
        hooks.hook(optimizer, "update_step", functools.partial(_update_step, optimizer, outermost))


def _update_step(optimizer: Any, outermost: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        distributed = current_step() is not None or training.loop_of(outermost) is not None
        if not (distributed and _is_proven(optimizer) and _updated(optimizer, gradient, variable, learning_rate)):
            original(gradient, variable, learning_rate)

    return update_step


def _updated(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> bool:
    """Updates a variable, and what the optimizer keeps for it, in one pass. Does nothing and is False if it cannot."""
    slots = [slot.value for slot in private.slots_of(optimizer, variable)]
    if not backend.can_update(gradient, [variable, *slots]):
        return False
    if isinstance(optimizer, keras.optimizers.SGD):
        return backend.update_sgd(
            variable, gradient, learning_rate, slots, float(optimizer.momentum), bool(optimizer.nesterov)
        )
    betas = (optimizer.beta_1, optimizer.beta_2)
    return backend.update_adam(
        variable, gradient, learning_rate, slots, optimizer.iterations + 1, betas, optimizer.epsilon
    )


def _is_proven(optimizer: Any) -> bool:
    kind: Any = type(optimizer)
    options = tuple((name, getattr(optimizer, name)) for name in _OPTIONS[kind])
    return all(isinstance(value, (float, int)) for _, value in options) and _agrees(kind, options)


@functools.cache
def _agrees(kind: Any, options: tuple[tuple[str, float], ...]) -> bool:
    """Whether both ways to update give the same numbers for made-up gradients. Milliseconds; no rank waits."""
    try:
        with backend.quick_kernels():
            return bool(backend.apart(functools.partial(_trial, kind, dict(options))))
    except Exception:  # a later Keras may name otherwise what its optimizers keep
        return False


def _trial(kind: Any, options: dict[str, float]) -> bool:
    with keras.device("cpu:0"):
        # From 0 on, the numbers are as large as their updates.
        variables = [keras.Variable(np.zeros_like(_GRADIENTS[0]), dtype="float32", name="made_up") for _ in range(2)]
        plain, ours = (kind(_RATE, **options) for _ in variables)
        for optimizer, variable in zip((plain, ours), variables, strict=True):
            optimizer.build([variable])
        for gradient in map(keras.ops.convert_to_tensor, _GRADIENTS):
            plain.update_step(gradient, variables[0].value, plain.learning_rate)
            if not _updated(ours, gradient, variables[1].value, ours.learning_rate):
                return False
            for optimizer in (plain, ours):
                optimizer.iterations.assign_add(1)
        pairs = zip([variables[0], *plain.variables], [variables[1], *ours.variables], strict=True)
        arrays = ([keras.ops.convert_to_numpy(each) for each in pair] for pair in pairs)
        return all(np.allclose(one, other, _SAME, 0) for one, other in arrays)
