"""Gradients are summed over the ranks where they are taken: what comes after sees those of the global batch.

A rank's gradients start from its weight in the batch (see `Step.weight`), so nothing is multiplied. What an optimizer
gets afterwards is done already, unless no tape has summed it: `jacobian`, `tf.gradients`, gradients by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from ..._backend import backend
from ..._backend.gradients import Gradients, key
from ..._job.environment import flag
from .. import hooks, private, training
from .step import Step, current_step

# Their updates compute with gradients and assign what they computed, never a gradient itself.
_PLAIN = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lamb")


def install() -> None:
    """Hooks what takes gradients in this process, which acts within distributed steps only. Idempotent."""
    for owner, name, make in backend.gradient_hooks(_of_the_step):
        hooks.hook(owner, name, make)


def _of_the_step() -> Gradients | None:
    step = current_step()
    return None if step is None else of(step)


def of(step: Step) -> Gradients:
    """What a step does with its gradients."""
    if step.gradients is None:
        step.gradients = backend.step_gradients(step, _TrainedModel(step))
    found: Gradients = step.gradients
    return found


@contextlib.contextmanager
def local_gradients() -> Iterator[None]:
    """Within it, tapes give this rank's own gradients, without a weight, in a `train_step` on several ranks.

    For gradients of single rows, as for clipping each of them. Their mean over this rank's rows can be given to the
    optimizer, which multiplies it by this rank's share of the batch and sums over the ranks. Elsewhere it does nothing.
    """
    found = _of_the_step()
    with contextlib.nullcontext() if found is None else found.local():
        yield


def keeps_no_gradient(optimizer: Any, variables: Sequence[Any]) -> bool:
    """Whether the optimizer's update keeps no gradient, so that these may alias memory of the plan."""
    kinds = [getattr(keras.optimizers, name) for name in _PLAIN]
    return (
        type(optimizer) in kinds  # a subclass may do anything
        and not optimizer.gradient_accumulation_steps
        and not any(getattr(variable, "overwrite_with_gradient", False) for variable in variables)
    )


def are_checked(optimizer: Any) -> bool:
    """Whether a gradient that is not finite ends the job (TNT_CHECK_GRADIENTS): not where a loss scale answers it."""
    return flag("TNT_CHECK_GRADIENTS") and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


class _TrainedModel:
    """See `_backend.gradients.TrainedModel`."""

    def __init__(self, step: Step) -> None:
        self._model, self.state = step.model, training.of(step.model)
        self._optimizer = getattr(step.model, "optimizer", None)
        self.checks_gradients = are_checked(self._optimizer)

    def variables(self) -> dict[int, Any]:
        found = list(self._model.variables)
        for optimizer in private.optimizers(self._model):
            found += private.variables_of(optimizer) if optimizer.built else []
        found += backend.variables_outside(private.every_layer(self._model))
        return {key(v): v for v in reversed(found)}  # Keras's object, which has a path, before the framework's

    def optimizer_counts(self) -> list[Any]:
        return [each.iterations for each in private.optimizers(self._model)]

    def alias_owner(self, variables: Sequence[Any]) -> Any:
        """The next step overwrites the sums: what uses them must be Keras's code, and the update must keep none."""
        keeps_none = self._optimizer is not None and keeps_no_gradient(self._optimizer, variables)
        is_keras_own = keeps_none and hooks.are_keras_own(self._optimizer, "apply", "apply_gradients")
        return self._optimizer if is_keras_own else None
