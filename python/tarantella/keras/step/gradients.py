"""Gradients are summed over the ranks where they are taken: what comes after sees those of the global batch.

A rank's gradients start from its weight in the batch (see `Step.weight`), so nothing is multiplied. What an optimizer
gets afterwards is done already, unless no tape has summed it: `jacobian`, `tf.gradients`, gradients by hand.

In Keras's own step the sums alias the memory of the optimizer's plan, and cost what they must. In a user's step
anything may happen to a gradient: sums are copied, calls for the same variables have plans of their own, reductions
carry the number of the step, and the ranks meet at its end, which finds those that have left out a gradient or an
update alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..._backend import backend
from ..._job import log, runtime
from ..._job.environment import flag
from ..._job.log import listed
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
        step.gradients = Gradients(step)
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


def key(source: Any) -> int:
    """What tells variables apart, Keras's or the framework's inside."""
    return id(source.value) if isinstance(source, keras.Variable) else id(source)


class Gradients:
    """Those of one step: it exists while the step is traced, or while it runs eagerly."""

    def __init__(self, step: Step) -> None:
        self.static_rows = step.static_rows
        self._step, self._training = step, training.of(step.model)
        self._checks = are_checked(getattr(step.model, "optimizer", None))
        self._known: dict[int, Any] = {}
        self._local = 0
        self._summed: set[int] = set()  # variables, by key, whose gradients were summed in this step
        self._numbered = False  # whether any were summed with its number
        self._made: dict[int, Any] = {}  # the very sums, by id

    # What the backend's hooks ask.

    @property
    def traced_for(self) -> object:
        return self._training.traced_for, self._step.captured, self._local > 0

    def note_call(self, variables: set[int]) -> None:
        self._summed |= variables

    def takes(self, source: Any) -> bool:
        if self._local:
            return False
        if key(source) not in self._known and hasattr(source, "trainable"):
            self._known = _variables(self._step.model)  # again: an optimizer may have been built since
            if key(source) not in self._known and source.trainable:
                log.warn_once(
                    f"the variable {_name(source)!r} is neither the model's nor one of its optimizers': its gradient "
                    "is this rank's until an optimizer applies it; make it an attribute of the model or of a layer"
                )
        return key(source) in self._known

    def is_keras_own(self, differentiable: bool) -> bool:
        return self._step.is_keras_own and not differentiable and not self._summed

    def weight(self) -> Any:
        return None if self._step.is_sum else self._step.share("float64")

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        self._local += 1
        try:
            yield
        finally:
            self._local -= 1

    def sums(self, gradients: Sequence[Any], sources: Sequence[Any], differentiable: bool) -> list[Any]:
        variables = [self._known[key(each)] for each in sources]
        if differentiable:
            owners = self._owner(variables), self._owner(variables)
            more = self._step.empty, self._step.step_number, self._checks
            sums = backend.differentiable_allreduce(owners, gradients, variables, *more)
            self._numbered |= self._step.step_number is not None
        else:
            prepared = self._prepared(gradients, variables)
            sums = self._allreduce(prepared, variables, self._step.empty, self._alias_owner(variables))
        self._note(variables, sums)
        return sums

    def error_of_one_row(self) -> Exception:
        return NotImplementedError(
            "a tape in train_step takes the gradient of a single row of the batch, and several ranks would sum those "
            "of different rows; take gradients of single rows in `with tarantella.local_gradients():`, and give the "
            "optimizer their mean over this rank's rows, or use tf.GradientTape.jacobian"
        )

    # What optimizers ask.

    def applied(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """What an optimizer applies in the step: sums over the ranks, alike on all of them. Collective."""
        found, all_summed = list(gradients), self._all_summed()
        before = [None if each is None else backend.upstream_of(each) for each in gradients]
        given = [i for i, each in enumerate(gradients) if each is not None]
        summed = [i for i in given if key(variables[i]) in all_summed]
        own_rows = [i for i in summed if (known := before[i]) is not None and known.own]
        changed = [i for i in own_rows if (known := before[i]) is not None and known.sums]
        by_hand = [i for i in own_rows if i not in changed]
        if by_hand:
            log.warn_once(
                f"in one step, a tape has summed the gradients of {_names(variables, by_hand)} over the ranks, and an "
                "optimizer gets others by hand, of this rank's rows: they are summed, too"
            )
        if changed:
            _say_changed(_names(variables, changed))
        own = [i for i in given if i not in summed or i in by_hand]
        apart = [i for i in given if i not in own and not self._is_alike(gradients[i], before[i])]
        perhaps = [i for i in own if self._may_be_summed(variables[i])]
        if perhaps:
            _, differ = self._masters(*_at(perhaps, gradients, variables))
            alike = {i for place, i in enumerate(perhaps) if place not in differ}
            own = [i for i in own if i not in alike]
        if own:
            _put(found, own, self._reduced(*_at(own, gradients, variables)))
        if apart:
            sums, differ = self._masters(*_at(apart, gradients, variables))
            _put(found, apart, sums)
            if differ:
                _say_changed(_names(variables, [apart[place] for place in differ]))
        return found

    def reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The sums of gradients that no tape has summed, each rank's times its weight. Collective.

        Raises ValueError for gradients that are summed.
        """
        summed = self._all_summed()
        for gradient, variable in zip(gradients, variables, strict=True):
            before = None if gradient is None else backend.upstream_of(gradient)
            if gradient is not None and key(variable) in summed and (before is None or before.sums):
                raise ValueError(
                    f"the gradient of {_name(variable)!r} is summed over the ranks already: in a train_step "
                    "tf.GradientTape does it; leave out tarantella.reduce_gradients"
                )
        sums = self._reduced(gradients, variables)
        self._note(variables, sums)
        return sums

    # The end of the step.

    def end(self) -> None:
        """Finds ranks that have left out a gradient or an update alone. Collective when it runs.

        Not where Keras's step has taken the only gradients.
        """
        loops = [] if backend.is_eager() else backend.loops_over_rows()
        if loops:
            raise NotImplementedError(
                f"a loop in train_step ({loops[0]}) takes gradients, and its number of turns depends on this rank's "
                "rows; take them in `with tarantella.local_gradients():`, and give the optimizer their mean over these "
                "rows"
            )
        in_trace = backend.summed_in_trace()
        self._training.note_summed(self._summed | in_trace)
        counts = [each.iterations for each in private.optimizers(self._step.model)]
        if counts and (self._numbered or in_trace or not self._step.is_keras_own):
            number = 1 + sum(ops.cast(each, "int64") for each in counts)
            found = self._training
            backend.meet(found.end, found.reductions, "the updates", number, then=found.numbers)

    # How.

    def _prepared(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return [backend.prepared(g, v, self.static_rows) for g, v in zip(gradients, variables, strict=True)]

    def _allreduce(
        self, prepared: list[Any], variables: Sequence[Any], empty: Any, alias_owner: Any = None
    ) -> list[Any]:
        if empty is not None:
            prepared = [_no_slices_where(empty, each) for each in prepared]
        owner = self._owner(variables) if alias_owner is None else alias_owner
        alias_outputs, number = alias_owner is not None, self._step.step_number if alias_owner is None else None
        self._numbered |= number is not None
        return backend.allreduce(
            owner, prepared, list(variables), alias_outputs, contributes_zeros=empty, number=number, check=self._checks
        )

    def _reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        prepared = [
            scaled(g, self._weight_of(v)) for g, v in zip(self._prepared(gradients, variables), variables, strict=True)
        ]
        return self._allreduce(prepared, variables, self._step.empty)

    def _weight_of(self, variable: Any) -> Callable[[Any], Any]:
        """The weight of a gradient that no tape has summed, as far as is known: a branch of the step may do so yet.

        Such a sum, which an accumulator may have kept, is alike on all ranks, and so stays what it is where shares add
        up to 1. Where each rank's part counts one, the master's is taken in the steps that run after the trace.
        """
        if not self._step.is_sum or backend.is_eager():
            return self._step.weight
        known = self._training.known_as_summed.setdefault(key(variable), backend.counter())
        weight = ops.where(known > 0, float(runtime.is_master_rank()), 1.0)
        return lambda dtype: ops.cast(weight, dtype)

    def _masters(self, gradients: Sequence[Any], variables: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The master's gradients, for all ranks, and eagerly the places where a rank has others."""
        others = ops.convert_to_tensor(not runtime.is_master_rank())
        sums = self._allreduce(self._prepared(gradients, variables), variables, others)
        if not backend.is_eager():
            return sums, []
        differ = [not _equal(*each) for each in zip(gradients, sums, strict=True)]
        counts = ops.convert_to_tensor(np.array(differ, "float64"))
        counts = np.asarray(backend.sum_over_ranks(self._training.end, "gradients that differ", counts))
        return sums, np.flatnonzero(counts).tolist()

    def _alias_owner(self, variables: Sequence[Any]) -> Any:
        """The optimizer whose plan's memory the sums may alias, None where they must be copied.

        The next step overwrites that memory. So what lies between the tape and the update must be Keras's code, and the
        update must keep no gradient.
        """
        optimizer = getattr(self._step.model, "optimizer", None)
        aliases = (
            self.is_keras_own(differentiable=False)
            and optimizer is not None
            and keeps_no_gradient(optimizer, variables)
            and hooks.are_keras_own(optimizer, "apply", "apply_gradients")
        )
        return optimizer if aliases else None

    def _owner(self, variables: Sequence[Any]) -> Any:
        """What owns the plan: another one for each further call for the same variables in a trace.

        Around an eager step, ranks may trace functions in different steps: then each function counts for itself.
        """
        trace = (backend.graph(),) if self._step.is_eager else ()
        return self._training.reduction(self._step.number((*trace, *(key(v) for v in variables))))

    def _note(self, variables: Sequence[Any], sums: Sequence[Any]) -> None:
        noted = {key(v) for v in variables}
        self._summed |= noted
        self._training.summed |= noted
        if backend.is_eager():
            self._made.update((id(each), each) for each in sums if each is not None)
        elif self._numbered:
            backend.note_summed(noted)

    def _all_summed(self) -> set[int]:
        """The variables whose gradients this step sums: also in functions that an earlier trace has left."""
        return self._summed | backend.summed_in_trace()

    def _may_be_summed(self, variable: Any) -> bool:
        """Whether a gradient may be a sum that this step does not show: of a function, or kept from another step.

        Where shares add up to 1 the sum of such sums is the same again.
        """
        return self._step.is_sum and backend.is_eager() and key(variable) in self._training.summed

    def _is_alike(self, gradient: Any, before: Any) -> bool:
        """Whether it is certain that all ranks have the same."""
        return id(gradient) in self._made if before is None else not (before.own or before.random)


def _variables(model: Any) -> dict[int, Any]:
    """The variables whose gradients are summed: the model's, its optimizers', the framework's own in its layers."""
    found = list(model.variables)
    for optimizer in private.optimizers(model):
        found += private.variables_of(optimizer) if optimizer.built else []
    found += backend.variables_outside(private.every_layer(model))
    return {key(v): v for v in reversed(found)}  # Keras's object, which has a path, before the framework's


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _names(variables: Sequence[Any], places: Iterable[int]) -> str:
    return listed([_name(variables[i]) for i in places])


def _say_changed(names: str) -> None:
    log.warn_once(
        f"between the tape and the optimizer, the gradients of {names} get something that each rank has for itself, "
        "such as its own rows or loss: the master's gradients are applied on all ranks, which differs from one process"
    )


def _at(places: list[int], *each: Sequence[Any]) -> list[list[Any]]:
    return [[values[i] for i in places] for values in each]


def _put(found: list[Any], places: list[int], values: list[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        found[place] = value


def _equal(one: Any, other: Any) -> bool:
    a, b = (np.asarray(ops.convert_to_tensor(each)) for each in (one, other))
    return np.array_equal(a, b, equal_nan=True)


def scaled(gradient: Any, weight: Callable[[Any], Any]) -> Any:
    """The prepared gradient times `weight(dtype)`."""
    if gradient is None:
        return None
    if isinstance(gradient, list):
        return backend.changed(gradient, lambda values, indices: (values * weight(values.dtype), indices))
    return gradient * weight(gradient.dtype)


def _no_slices_where(condition: Any, gradient: Any) -> Any:
    """The prepared gradient; of a sparse one, no slices where the condition holds."""
    if not isinstance(gradient, list):
        return gradient

    def no_slices(values: Any, indices: Any) -> Any:
        kept = ops.where(condition, 0, ops.shape(indices)[0])
        return values[:kept], indices[:kept]

    return backend.changed(gradient, no_slices)
