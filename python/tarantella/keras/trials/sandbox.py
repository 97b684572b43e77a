"""Calling a model on made-up rows beside training: not where it is needless, not for long, and without a trace."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import layers, tree

from ..._backend.tensorflow import traceless
from .. import hooks

# Eagerly a step of a recurrent layer takes milliseconds.
_STEPS = 100
_SECONDS = 5.0

# What is told by its arguments how to treat the rows.
_TOLD = (layers.Lambda, layers.EinsumDense, layers.TFSMLayer)


class TooLongError(BaseException):
    """The model takes too long to be called eagerly. No Exception, as code of users or Keras may handle these."""


def is_rowwise(model: Any) -> bool:
    """Whether a model consists of nothing but Keras's own layers, none of which is told an axis of the rows.

    BatchNormalization counts as one that keeps rows apart. False where it cannot be known without a call.
    """
    parts = model._flatten_layers()
    return all(_keeps_rows_apart(part) for each in parts for part in (each, *getattr(each, "operations", ())))


def _keeps_rows_apart(part: Any) -> bool:
    if not isinstance(part, keras.Layer) or isinstance(part, _TOLD) or not _is_of_keras(type(part)):
        return False
    if isinstance(part, keras.Model):  # with losses and metrics of the user, which are no part of its call
        return _is_of_keras(part.call)
    axes = tree.flatten([getattr(part, name, 1) for name in ("axis", "axes")])
    return all(isinstance(axis, int) and (axis > 0 or axis == -1) for axis in axes) and all(
        _is_of_keras(value) for value in vars(part).values() if callable(value)
    )


def _is_of_keras(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("keras.")


@contextlib.contextmanager
def limited(model: Any) -> Iterator[None]:
    """Meanwhile a layer raises TooLongError that would go through a long sequence, or is called after five seconds."""
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
        for layer in model._flatten_layers():
            make = short if isinstance(layer, layers.RNN) else checked
            stack.enter_context(hooks.hooking(layer, "call", make, "limited"))
        yield


@contextlib.contextmanager
def without_trace(model: Any) -> Iterator[None]:
    """Afterwards generators of random numbers and TensorFlow's variables in layers are as before; no graph is kept."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with traceless.functions_eager(), traceless.state_kept(model):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
