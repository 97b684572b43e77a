"""How the losses of micro batches combine to that of the global batch.

A loss that is a mean over rows weighs by rows; one that is a sum over rows adds up. Where a single weight
cannot be exact, the user is told which loss it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from .. import _log
from . import hooks

_SUMS = ("sum", "none", None)


def _compiled(model: Any) -> list[Any]:
    flat = getattr(getattr(model, "_compile_loss", None), "_flat_losses", None) or []
    return [entry.loss for entry in flat if entry is not None and entry.loss is not None]


def additive(model: Any, y_pred: Any, sample_weight: Any) -> bool:
    """Whether the model's loss is a sum over rows rather than a mean. Called after the forward pass.

    Raises ValueError where sums and means are mixed.
    """
    losses = _compiled(model)
    sums = [loss for loss in losses if getattr(loss, "reduction", None) in _SUMS]
    if sums and (len(sums) < len(losses) or model.losses):
        raise ValueError(
            f"the loss {sums[0].name!r} with reduction={sums[0].reduction!r} is a sum over rows and cannot be "
            "mixed with means, regularizers or add_loss on several ranks yet; use reduction='sum_over_batch_size'"
        )
    if not sums:
        _warn(model, losses, y_pred, sample_weight)
    return bool(sums)


def _warn(model: Any, losses: list[Any], y_pred: Any, sample_weight: Any) -> None:
    inexact = "is averaged over ranks by rows, which differs from one process's result"
    for loss in losses:
        if loss.reduction == "mean_with_sample_weight" and sample_weight is not None:
            _log.warn_once(f"the loss {loss.name!r} with reduction='mean_with_sample_weight' {inexact}")
        if getattr(loss, "ignore_class", None) is not None:
            _log.warn_once(f"the loss {loss.name!r} with ignore_class={loss.ignore_class} {inexact}")
        if _couples_rows(loss):
            _log.warn_once(f"the loss {loss.name!r} depends on which rows share a batch, and {inexact}")
    if any(getattr(leaf, "_keras_mask", None) is not None for leaf in tree.flatten(y_pred)):
        _log.warn_once(f"a loss over masked outputs {inexact}")
    if any(len(loss.shape) > 0 for loss in model.losses):
        _log.warn_once(f"an add_loss of a vector {inexact}; add its mean over rows instead")


def _couples_rows(loss: Any) -> bool:
    axis = getattr(loss, "_fn_kwargs", {}).get("axis", -1)
    ratio = isinstance(loss, (keras.losses.Dice, keras.losses.Tversky)) and (axis is None or 0 in np.atleast_1d(axis))
    return (
        ratio
        or isinstance(loss, keras.losses.Circle)
        or (isinstance(loss, keras.losses.CosineSimilarity) and axis == 0)
    )


def weighted_update(original: Callable[..., Any]) -> Callable[..., Any]:
    """The hook of a loss tracker's update: states of all ranks then add up to one process's state."""

    def update_state(value: Any, sample_weight: Any = None) -> Any:
        step = hooks.current()
        if step is None:
            return original(value, sample_weight=sample_weight)
        value = ops.convert_to_tensor(value)
        if step.additive and len(value.shape) == 0:
            # One process weighs the global sum by the global rows; a rank has its part of both.
            rows = ops.maximum(step.share(value.dtype), 1e-30)
            value = value / rows
        # Keras leaves the weight out where the batch dimension is unknown: every global batch counts one.
        weight = step.share(value.dtype) if sample_weight is None else sample_weight
        return original(value, sample_weight=weight)

    return update_state
