"""BatchNormalization(synchronized=True): the moments are those of the global batch, gradients included."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..._backend import backend
from .. import hooks, private
from .step import current_step


def synchronized(model: Any) -> list[Any]:
    """The BatchNormalization layers that normalize by the global batch."""
    return [layer for layer in private.normalizations(model) if layer.synchronized]


def install(model: Any) -> None:
    """Hooks the moments of these layers. Idempotent."""
    for layer in synchronized(model):
        hooks.hook(layer, private.MOMENTS, functools.partial(_moments, layer))


def _moments(layer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def moments(inputs: Any, mask: Any = None) -> Any:
        step = current_step()
        if step is None:
            return original(inputs, mask)
        # For masked inputs, Keras divides by the count plus epsilon. Multiplying by the same gives back its sums.
        little = 0.0 if mask is None else keras.config.epsilon()
        local = original(inputs, mask)
        mean, variance = (ops.reshape(ops.cast(moment, "float64"), (-1,)) for moment in local)
        channels = int(mean.shape[0])
        size = ops.size(inputs) / channels if mask is None else ops.sum(ops.cast(mask, "float64"))
        count = ops.reshape(ops.cast(size, "float64"), (1,))
        total = mean * (count + little)
        squares = variance * (count + little) + 2 * mean * total - mean * mean * count
        parts = step.own(ops.concatenate([count, total, squares]))
        parts = backend.differentiable_sum(layer, f"moments {step.number(layer)} of {layer.name!r}", parts)
        count, total, squares = ops.split(parts, [1, 1 + channels])
        mean = total / (count + little)
        variance = (squares - 2 * mean * total + mean * mean * count) / (count + little)
        whole = (mean, ops.maximum(variance, 0.0))
        return tuple(ops.reshape(ops.cast(new, old.dtype), old.shape) for new, old in zip(whole, local, strict=True))

    return moments
