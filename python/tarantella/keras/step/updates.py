"""The hook of `update_step` of an optimizer: one operation of the backend in the place of those that Keras composes.

Each of Keras's passes over the gradient or a variable, and together they are a large part of a large network's step.
Ranks use the one operation where Keras's methods are untouched and a trial has shown that its numbers are the same.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from ..._backend import backend
from ..._job import runtime
from .. import hooks, private, training
from .step import current_step

# The options that an update depends on. A subclass may do anything.
_OPTIONS: dict[type, tuple[str, ...]] = {
    keras.optimizers.SGD: ("momentum", "nesterov"),
    keras.optimizers.Adam: ("beta_1", "beta_2", "epsilon", "amsgrad"),
    keras.optimizers.AdamW: ("beta_1", "beta_2", "epsilon", "amsgrad"),
}
_METHODS = ("update_step", "assign", "assign_add", "assign_sub")
_RATE = 0.01
_GRADIENTS = np.array([[1.0, -2e-3, 1e-7, 0.0], [0.5, 1e-3, 2e-7, 3.0]], "float32")
_SAME = 5e-5  # relative: TensorFlow's second moment of Adam is off by up to 2e-5
# What a Keras raises that has other names, or other arguments, than these. Ranks have the same one.
_OTHER_KERAS = (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError)


# What the updates of each optimizer in one call of `apply` have in common, by the id of the optimizer.
_shared: contextvars.ContextVar[dict[int, dict[Any, Any]] | None] = contextvars.ContextVar("shared", default=None)


@contextlib.contextmanager
def applying() -> Iterator[None]:
    """Within it, what all updates need is computed once. An optimizer makes one step within it."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def install(optimizer: Any, outermost: Any) -> None:
    """Hooks an optimizer, which may live inside the outermost one. Idempotent."""
    if type(optimizer) in _OPTIONS:
        hooks.hook(optimizer, "update_step", functools.partial(_update_step, optimizer, outermost))


def _update_step(optimizer: Any, outermost: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def update_step(*args: Any, **kwargs: Any) -> None:
        distributed = current_step() is not None or training.loop_of(outermost) is not None
        alike = distributed and runtime.get_size() > 1 and not kwargs and len(args) == 3
        if not (alike and update(optimizer, *args)):
            original(*args, **kwargs)

    return update_step


def update(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> bool:
    """Does what Keras's `update_step` would do, in one operation. Does nothing and returns False where it cannot."""
    kind: Any = type(optimizer)
    if not hooks.are_keras_own(optimizer, *_METHODS):
        return False
    options = tuple((name, getattr(optimizer, name)) for name in _OPTIONS[kind])
    numbers = all(isinstance(value, (float, int)) for _, value in options)
    return numbers and _agrees(kind, options) and _updated(optimizer, gradient, variable, learning_rate)


def _updated(optimizer: Any, gradient: Any, variable: Any, learning_rate: Any) -> bool:
    if getattr(optimizer, "amsgrad", False):  # TensorFlow's maximum of NaN and a number is the number
        return False
    kept = [slot.value for slot in private.slots_of(optimizer, variable)]
    if not backend.can_update(gradient, [variable, *kept], learning_rate):
        return False
    steps = _shared.get()
    shared: dict[Any, Any] = {} if steps is None else steps.setdefault(id(optimizer), {})
    if isinstance(optimizer, keras.optimizers.SGD):
        backend.update_sgd(variable, gradient, learning_rate, kept, optimizer.momentum, optimizer.nesterov, shared)
        return True
    betas = (optimizer.beta_1, optimizer.beta_2)
    return backend.update_adam(
        variable, gradient, learning_rate, kept, lambda: optimizer.iterations + 1, betas, optimizer.epsilon, shared
    )


@functools.cache
def _agrees(kind: Any, options: tuple[tuple[str, float], ...]) -> bool:
    """Whether both ways to update give the same numbers for made-up gradients. Milliseconds; no rank waits."""
    try:
        with backend.quick_kernels():
            return bool(backend.apart(functools.partial(_trial, kind, dict(options))))
    except _OTHER_KERAS:
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
