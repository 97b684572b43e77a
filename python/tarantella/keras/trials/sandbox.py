"""Calls a model on synthetic rows before training: only if needed, for a limited time, and without side effects."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import layers, tree

from ..._backend import backend
from .. import hooks, private

# In eager mode, a step of a recurrent layer takes milliseconds.
_STEPS = 100
_SECONDS = 5.0

# Layers whose arguments decide how they treat rows.
_TOLD = (layers.Lambda, layers.EinsumDense, layers.TFSMLayer)


class TooLongError(BaseException):
    """The model takes too long in eager mode. Not an Exception, which code of users or Keras may catch."""


def is_rowwise(model: Any) -> bool:
    """Whether a model consists only of Keras's layers, and none of them has an argument that names the axis of rows.

    BatchNormalization counts as rowwise. False if it cannot be known without a call.
    """
    parts = private.every_layer(model)
    return all(_keeps_rows_apart(part) for each in parts for part in (each, *getattr(each, "operations", ())))


def _keeps_rows_apart(part: Any) -> bool:
    if not isinstance(part, keras.Layer) or isinstance(part, _TOLD) or not is_of_keras(type(part)):
        return False
    if isinstance(part, keras.Model):  # user-defined losses and metrics are not part of its call
        return is_of_keras(part.call)
    axes = tree.flatten([getattr(part, name, 1) for name in ("axis", "axes")])
    return all(isinstance(axis, int) and (axis > 0 or axis == -1) for axis in axes) and all(
        is_of_keras(value) for value in vars(part).values() if callable(value)
    )


def is_of_keras(value: Any) -> bool:
    """Whether a class or function comes from Keras itself."""
    return str(getattr(value, "__module__", "")).startswith("keras.")


@contextlib.contextmanager
def limited(model: Any) -> Iterator[None]:
    """Makes layers raise TooLongError if they would process a long sequence, or are called after five seconds."""
    end = time.monotonic() + _SECONDS

    def checked(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if time.monotonic() > end:
                raise TooLongError(f"it takes more than {_SECONDS:.0f} s")
            return original(*args, **kwargs)

        return call

    def short(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            sequences = args[0] if args else kwargs["sequences"]
            if sequences.shape[1] > _STEPS:
                raise TooLongError(f"a recurrent layer goes through more than {_STEPS} steps")
            return original(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for layer in private.every_layer(model):
            make = short if isinstance(layer, layers.RNN) else checked
            stack.enter_context(hooks.hooking(layer, "call", make, "limited"))
        yield


@contextlib.contextmanager
def without_trace(model: Any) -> Iterator[None]:
    """Restores random generators and TensorFlow's variables in layers afterwards; keeps no graph."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with backend.functions_eager(), backend.state_kept(private.every_layer(model)):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
