"""How losses combine: those given to compile, and those that layers add by add_loss and activity regularizers.

Every loss is weighted by rows, which is right for a mean over rows, and for regularizers of weights, which do not
depend on rows. A sum gets a further factor; `first_batch` has found out which added losses are sums. So does a mean
over what masks and sample weights leave, which takes one small reduction per step. User-defined losses, and those of
Keras that look at several rows, are computed on the global batch (see `gather`).

What a user-defined `compute_loss` or `train_step` computes is taken for a mean over rows. The attribute
`tnt_reduction = "sum"` of the model says that it is a sum; terms from compile, `add_loss` and regularizers stay
what they are. A `keras.metrics.Mean` that gets such a sum declares it in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from ..._backend import backend
from ..._backend.steps import in_fresh_thread
from ..._job import log
from .. import hooks, model_state, private
from . import batch_dependent, first_batch, gather
from .step import Step, current_step, ratio, tnt_reduction_of

_SUMS = ("sum", "none", None)


def install(model: Any) -> None:
    """Puts a `WeightedLoss` in the place of each of the losses that a model was compiled with. Idempotent."""
    compiled = private.compiled_losses(model)
    if compiled is not None:
        private.replace_losses(
            compiled, lambda loss: loss if loss is None or isinstance(loss, WeightedLoss) else WeightedLoss(loss)
        )
    for tracker in private.loss_trackers(model):
        hooks.hook(tracker, "update_state", _tracked_update)


class WeightedLoss:
    """A loss of a model, weighted by this rank's fraction. Outside a distributed step it is the loss itself."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is None or step.has_all_rows:
            return self.loss(y_true, y_pred, sample_weight)
        if batch_dependent.needs_all_rows(self.loss):
            result = self._on_all_rows(step, y_true, y_pred, sample_weight)
            if result is not None:
                return result
        with hooks.collecting(self.loss, "call") as values:  # before Keras reduces them
            result = self.loss(y_true, y_pred, sample_weight)
        fraction = self._fraction(step, y_pred, sample_weight, values[-1] if values else None)
        # The gradient of an unreduced loss is that of the sum over it, whose weight is 1.
        return step.rescaled(result, fraction) if len(result.shape) == 0 else result

    def _on_all_rows(self, step: Step, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
        """The loss of the global batch, which each rank counts by its fraction; None where rows are not gathered."""
        reduces = self.loss.reduction not in ("none", None)
        given = y_true, y_pred, sample_weight
        rows = gather.of_all_ranks(step, f"the loss {self.loss.name!r}", given, replicated=reduces)
        if rows is None:
            return None
        result = self.loss(*rows.structure)
        return step.rescaled(result, step.fraction("float64")) if len(result.shape) == 0 else rows.own(step, result)

    def _fraction(self, step: Step, y_pred: Any, sample_weight: Any, values: Any) -> Any:
        """The fraction by which this rank's loss counts; None means that of its rows."""
        if values is None or len(values.shape) == 0:  # reduced by a user-defined function
            if tnt_reduction_of(self.loss) == "sum":
                return 1.0
            if sample_weight is not None or _is_masked([y_pred, values]):
                log.warn_once(
                    f"the loss {self.loss.name!r} returns a scalar, to which sample weights and masks cannot be "
                    "applied as in one process; return one value per row"
                )
            return None
        if self.loss.reduction in _SUMS:
            return 1.0
        weighted = sample_weight is not None and self.loss.reduction == "mean_with_sample_weight"
        if weighted or _is_masked([y_pred, values]):
            part = step.zero_if_empty(_LossNormalizer(values)(y_pred, y_pred, sample_weight if weighted else None))
            what = f"divisor {step.call_index(self)} of the loss {self.loss.name!r}"
            whole = backend.sum_over_ranks(self, what, part)
            return ratio(part, whole, part.dtype)
        return None


def _is_masked(structure: Any) -> bool:
    return any(private.mask_of(leaf) is not None for leaf in tree.flatten(structure))


class _LossNormalizer(keras.losses.Loss):
    """What Keras divides a loss by: the sum of weights and masks, found by summing ones in place of the values."""

    def __init__(self, values: Any) -> None:
        super().__init__(reduction="sum", dtype="float64")
        self._values = values

    def call(self, y_true: Any, y_pred: Any) -> Any:
        ones = ops.ones_like(self._values, dtype="float64")
        mask = private.mask_of(self._values)
        if mask is not None:
            private.set_mask(ones, mask)
        return ones


def _tracked_update(original: Callable[..., Any]) -> Callable[..., Any]:
    """The hook of a loss tracker's update: states of all ranks then add up to one process's state."""

    def update_state(value: Any, sample_weight: Any = None) -> Any:
        step = current_step()
        if step is None:
            return original(value, sample_weight=sample_weight)
        value = ops.convert_to_tensor(value)
        if len(value.shape) > 0:  # an unreduced loss: a sum for the gradient, a mean for the tracker
            return original(value, sample_weight=sample_weight)
        if step.is_sum:
            value = step.sum_to_mean(value)
        # Keras leaves the weight out where the batch dimension is unknown: every global batch counts one.
        weight = step.fraction(value.dtype) if sample_weight is None else sample_weight
        if step.has_all_rows and sample_weight is not None:  # the rows of all ranks
            weight = weight * step.fraction(value.dtype)
        return original(value, sample_weight=weight)

    return update_state


def install_added(model: Any) -> None:
    """Hooks `add_loss` and the regularizers of a model's layers. Idempotent."""
    for layer in private.every_layer(model):
        hooks.hook(layer, "add_loss", functools.partial(_add_loss, layer))
        hooks.hook(layer, private.REGULARIZATION_LOSSES, _regularizers)


def _regularizers(original: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    def regularization_losses() -> list[Any]:
        step = current_step()
        return original() if step is None else [step.rescaled(each) for each in original()]

    return regularization_losses


def _add_loss(layer: Any, original: Callable[[Any], None]) -> Callable[[Any], None]:
    def add_loss(loss: Any) -> None:
        step = current_step()
        original(loss if step is None else [_scaled(step, layer, each) for each in tree.flatten(loss)])

    return add_loss


def _scaled(step: Step, layer: Any, loss: Any) -> Any:
    if private.is_of_keras(type(layer)) and isinstance(layer.activity_regularizer, batch_dependent.REGULARIZERS):
        return step.rescaled(loss, 1.0 if _regularizes_sums() else None)
    known, number = model_state.of(step.model), step.call_index(layer)
    if not known.is_added_known(layer, step.trains, number):
        first_batch.warn_of_unseen(step.model, layer, step.trains)
    # A variable, because it may turn out later than in the trace.
    is_sum = known.added_sum(layer, step.trains, number) > 0
    return step.rescaled(loss, ops.where(is_sum, ops.ones((), "float64"), step.fraction("float64")))


@functools.cache
def _regularizes_sums() -> bool:
    """Whether activity regularizers add sums over rows, as up to Keras 3.5, or means."""

    def of_two_rows() -> float:
        layer = keras.layers.ActivityRegularization(l1=1.0)
        layer(np.ones((2, 1), "float32"))
        return float(layer.losses[0])

    return bool(in_fresh_thread(of_two_rows) > 1.5)
