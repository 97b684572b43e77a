"""How the losses that layers add combine: those of add_loss and of activity regularizers.

Every loss is weighted by rows. This is right for means over rows, and for regularizers of weights, which do not depend
on rows. An added sum gets a further factor; `first_batch` has found out which are sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from ..._backend import backend
from .. import hooks, private, training
from . import first_batch, trial
from .step import Step, current_step


def install(model: Any) -> None:
    """Hooks `add_loss` and the regularizers of a model's layers. Idempotent."""
    for layer in private.every_layer(model):
        hooks.hook(layer, "add_loss", functools.partial(_add_loss, layer))
        hooks.hook(layer, private.REGULARIZATION_LOSSES, _regularizers)


def _regularizers(original: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    def regularization_losses() -> list[Any]:
        step = current_step()
        return original() if step is None else [step.weighed(each) for each in original()]

    return regularization_losses


def _add_loss(layer: Any, original: Callable[[Any], None]) -> Callable[[Any], None]:
    def add_loss(loss: Any) -> None:
        step = current_step()
        original(loss if step is None else [_scaled(step, layer, each) for each in tree.flatten(loss)])

    return add_loss


def _scaled(step: Step, layer: Any, loss: Any) -> Any:
    if private.is_of_keras(type(layer)) and isinstance(layer.activity_regularizer, trial.REGULARIZERS):
        return step.weighed(loss, 1.0 if _regularizes_sums() else None)
    known, number = training.of(step.model), step.number(layer)
    if not known.is_added_known(layer, step.trains, number):
        first_batch.say_unseen(step.model, layer, step.trains)
    # A variable, because it may turn out later than in the trace.
    is_sum = known.added_sum(layer, step.trains, number) > 0
    return step.weighed(loss, ops.where(is_sum, ops.ones((), "float64"), step.share("float64")))


@functools.cache
def _regularizes_sums() -> bool:
    """Whether activity regularizers add sums over rows, as up to Keras 3.5, or means."""

    def of_two_rows() -> float:
        layer = keras.layers.ActivityRegularization(l1=1.0)
        layer(np.ones((2, 1), "float32"))
        return float(layer.losses[0])

    return bool(backend.apart(of_two_rows) > 1.5)
