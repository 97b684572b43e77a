"""The gradients of steps and of user-defined loops, and the hooks of the optimizers that apply them.

Gradients are summed over the ranks where they are taken: what comes after sees those of the global batch. The backward
pass of a rank starts from its weight in the batch where it can; elsewhere its gradients are multiplied by it.
Gradients from a tape are already summed when an optimizer gets them. Others (`jacobian`, `tf.gradients`, by hand) are
summed then.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from ..._backend import backend
from ..._backend.steps import Gradients, key
from ..._job import log, runtime
from ..._job.environment import flag
from .. import hooks, model_state, private
from .step import Step, current_step

# Their updates compute with gradients and assign what they computed, never a gradient itself.
_PLAIN = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lamb")


def install() -> None:
    """Hooks the tapes of this process. They act within distributed steps only. Idempotent."""
    for owner, name, make in backend.gradient_hooks(_of_the_step):
        hooks.hook(owner, name, make)


def _of_the_step() -> Gradients | None:
    step = current_step()
    return None if step is None else of(step)


def of(step: Step) -> Gradients:
    """The gradients of a step, made at the first call."""
    if step.gradients is None:
        step.gradients = backend.step_gradients(step, _TrainedModel(step))
    return step.gradients


@contextlib.contextmanager
def local_gradients() -> Iterator[None]:
    """Within it, tapes give this rank's own gradients, without a weight, in a `train_step` on several ranks.

    For gradients of single rows, as for clipping each of them. Their mean over this rank's rows can be given to the
    optimizer, which multiplies it by this rank's fraction of the rows, and sums over the ranks. Elsewhere it does
    nothing.
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
    """See `_backend.steps.TrainedModel`."""

    def __init__(self, step: Step) -> None:
        self._model, self.state = step.model, model_state.of(step.model)
        self._optimizer = getattr(step.model, "optimizer", None)
        self.checks_gradients = are_checked(self._optimizer)

    def variables(self) -> dict[int, Any]:
        found = list(self._model.variables)
        for optimizer in private.optimizers(self._model):
            found += private.variables_of(optimizer) if optimizer.built else []
        found += backend.variables_outside(private.every_layer(self._model))
        return {key(v): v for v in reversed(found)}  # Keras's object, which has a path, before the framework's

    def trainable_variables(self) -> list[Any]:
        return list(self._model.trainable_variables)

    def optimizer_counts(self) -> list[Any]:
        return [each.iterations for each in private.optimizers(self._model)]

    def zero_copy_optimizer(self, variables: Sequence[Any]) -> Any:
        """The next step overwrites the sums, so the update must be Keras's and keep none of them."""
        keeps_none = self._optimizer is not None and keeps_no_gradient(self._optimizer, variables)
        is_keras_own = keeps_none and hooks.are_keras_own(self._optimizer, "apply", "apply_gradients")
        return self._optimizer if is_keras_own else None


def hook_optimizer(optimizer: Any) -> None:
    """Hooks one outermost optimizer. Idempotent: models may share it."""
    hooks.hook(optimizer, "apply", lambda original: _apply_hook(optimizer, original))
    for each in [optimizer, *private.optimizers_in(vars(optimizer).values())]:
        hooks.hook(each, "assign_add", functools.partial(_add_repeated_rows_first, optimizer))
        hooks.hook(each, "assign_sub", functools.partial(_add_repeated_rows_first, optimizer))


def _add_repeated_rows_first(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Otherwise threads would add repeated rows in any order, and variables would differ between ranks by rounding."""

    def assign(variable: Any, value: Any) -> Any:
        distributed = current_step() is not None or optimizer in model_state.loops
        return original(variable, backend.without_repeats(value) if distributed else value)

    return assign


def _apply_hook(optimizer: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        step, loop = current_step(), model_state.loops.get(optimizer)
        if step is None and loop is None:
            return original(grads, trainable_variables)
        grads = list(grads)
        variables = list(private.variables_of(optimizer) if trainable_variables is None else trainable_variables)

        def update(reduced: list[Any]) -> Any:
            return original(reduced, trainable_variables)

        if step is not None:
            return update(of(step).to_apply(grads, variables))
        assert loop is not None
        return loop(optimizer, grads, variables, update)

    return apply


def reduce_and_apply(weight: float, optimizer: Any, gradients: list[Any], variables: list[Any], apply: Any) -> Any:
    """Applies the sum of the gradients of all ranks, each rank's times `weight`: as `model_state.Loop`."""
    alias, check = keeps_no_gradient(optimizer, variables), are_checked(optimizer)
    reduced = backend.allreduce(
        optimizer, gradients, variables, weight, alias_outputs=alias, check=check, inspect=_warn_if_equal
    )
    return apply(reduced)


# By the id of the first variable; gone with it.
_owners: dict[int, model_state.PlanOwner] = {}


def owner_of(variable: Any) -> model_state.PlanOwner:
    """An owner that lives as long as a variable."""
    if id(variable) not in _owners:
        _owners[id(variable)] = model_state.PlanOwner()
        weakref.finalize(variable, functools.partial(_owners.pop, id(variable), None)).atexit = False
    return _owners[id(variable)]


def _warn_if_equal(own: Any, total: Any) -> None:
    """Warns once if all ranks have the same gradient of the largest variable: they train on the same rows."""
    size, scale = runtime.get_size(), np.abs(total).max(initial=0)
    if 0 < scale < np.inf and np.abs(size * own - total).max() <= 8 * np.finfo(own.dtype).eps * scale:
        log.warn_once(
            "the first gradients of all ranks are equal: every rank trains on the same rows, which is no faster "
            f"than one process, and under op='sum' {size} times its gradient; take this rank's rows: "
            "`for batch, share in tarantella.data.distribute(dataset)`"
        )
