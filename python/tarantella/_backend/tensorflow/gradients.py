"""The gradients of a step: tapes, and what gets their results, see those of the global batch.

In Keras's own step the sums alias the memory of the optimizer's plan, and cost what they must. In a user's step
anything may happen to a gradient: sums are copied, calls for the same variables have plans of their own, reductions
carry the number of the step, and the ranks meet at its end, which finds those that have left out a gradient or an
update alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from ..._job import log, runtime
from ..._job.groups import Group
from ..._job.log import abbreviated
from ..gradients import Step, TrainedModel, key
from . import reduce, slices, steps, upstream
from .variables import counter


def allreduce(
    owner: Any,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    weight: float = 1.0,
    alias_outputs: bool = False,
    group: Group | None = None,
    check: bool = False,
    look: Callable[[Any, Any], None] | None = None,
) -> list[Any]:
    own = _prepared(gradients, variables)
    own = own if weight == 1 else [_scaled(each, lambda _: weight) for each in own]
    sums = reduce.allreduce(owner, own, variables, alias_outputs, group, check=check)
    if look is not None:
        steps.look_once(owner, own, sums, look)
    return sums


class StepGradients:
    """Those of one step: it exists while the step is traced, or while it runs eagerly."""

    def __init__(self, step: Step, model: TrainedModel) -> None:
        self.static_rows = step.static_rows
        self._step, self._model, self._state = step, model, model.state
        self._known: dict[int, Any] = {}
        self._local = 0
        self._summed: set[int] = set()  # variables, by key, whose gradients were summed in this step
        self._numbered = False  # whether any were summed with its number
        self._made: dict[int, Any] = {}  # the very sums, by id

    # What the hooks of tapes ask.

    @property
    def traced_for(self) -> object:
        return self._state.traced_for, self._step.captured, self._local > 0

    def note_call(self, variables: set[int]) -> None:
        self._summed |= variables

    def takes(self, source: Any) -> bool:
        if self._local:
            return False
        if key(source) not in self._known and hasattr(source, "trainable"):
            self._known = self._model.variables()  # again: an optimizer may have been built since
            if key(source) not in self._known and source.trainable:
                log.warn_once(
                    f"the variable {_name(source)!r} is neither the model's nor one of its optimizers': its gradient "
                    "is this rank's until an optimizer applies it; make it an attribute of the model or of a layer"
                )
        return key(source) in self._known

    def is_keras_own(self, differentiable: bool) -> bool:
        return self._step.is_keras_own and not differentiable and not self._summed

    def weight(self) -> Any:
        return None if self._step.is_sum else self._step.fraction("float64")

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        self._local += 1
        try:
            yield
        finally:
            self._local -= 1

    def sums(self, gradients: Sequence[Any], sources: Sequence[Any], differentiable: bool) -> list[Any]:
        """The sums over the ranks of this rank's gradients, already multiplied; None stays None. Collective."""
        variables = [self._known[key(each)] for each in sources]
        if differentiable:
            sums = self._differentiable(gradients, variables)
        else:
            prepared = _prepared(gradients, variables, self.static_rows)
            alias_owner = self._model.alias_owner(variables) if self.is_keras_own(differentiable=False) else None
            sums = self._allreduce(prepared, variables, self._step.is_empty, alias_owner)
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
        before = [None if each is None else upstream.upstream_of(each) for each in gradients]
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
            before = None if gradient is None else upstream.upstream_of(gradient)
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
        loops = [] if tf.executing_eagerly() else upstream.loops_over_rows()
        if loops:
            raise NotImplementedError(
                f"a loop in train_step ({loops[0]}) takes gradients, and its number of turns depends on this rank's "
                "rows; take them in `with tarantella.local_gradients():`, and give the optimizer their mean over these "
                "rows"
            )
        in_trace = upstream.summed_in_trace()
        self._state.note_summed(self._summed | in_trace)
        counts = self._model.optimizer_counts()
        if counts and (self._numbered or in_trace or not self._step.is_keras_own):
            number = 1 + sum(ops.cast(each, "int64") for each in counts)
            state = self._state
            reduce.meet(state.end, state.reductions, "the updates", number, then=state.numbers)

    # How.

    def _allreduce(
        self, prepared: list[Any], variables: Sequence[Any], empty: Any, alias_owner: Any = None
    ) -> list[Any]:
        if empty is not None:
            prepared = [_no_slices_where(empty, each) for each in prepared]
        owner = self._owner(variables) if alias_owner is None else alias_owner
        number = self._step.step_number if alias_owner is None else None
        self._numbered |= number is not None
        check = self._model.checks_gradients
        return reduce.allreduce(owner, prepared, variables, alias_owner is not None, None, empty, number, check)

    def _differentiable(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Sums whose gradient is summed, too. Sparse gradients become dense."""
        places = [i for i, each in enumerate(gradients) if each is not None]
        some = [variables[i] for i in places]
        owners = self._owner(variables), self._owner(variables)
        empty, number, check = self._step.is_empty, self._step.step_number, self._model.checks_gradients
        self._numbered |= number is not None

        # TensorFlow keeps the function for ever: it must not hold the step, which holds the model.
        def allreduce(owner: Any, values: Sequence[Any]) -> list[Any]:
            return reduce.allreduce(owner, list(values), some, False, None, empty, number, check)

        @tf.custom_gradient
        def total(*values: Any) -> Any:
            return allreduce(owners[0], values), lambda *upstreams: allreduce(owners[1], upstreams)

        sums = list(gradients)
        _put(sums, places, total(*(tf.convert_to_tensor(gradients[i]) for i in places)))
        return sums

    def _reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        prepared = _prepared(gradients, variables, self.static_rows)
        own = [_scaled(g, self._weight_of(v)) for g, v in zip(prepared, variables, strict=True)]
        return self._allreduce(own, variables, self._step.is_empty)

    def _weight_of(self, variable: Any) -> Callable[[Any], Any]:
        """The weight of a gradient that no tape has summed, as far as is known: a branch of the step may do so yet.

        Such a sum, which an accumulator may have kept, is alike on all ranks, and so stays what it is where shares add
        up to 1. Where each rank's part counts one, the master's is taken in the steps that run after the trace.
        """
        if not self._step.is_sum or tf.executing_eagerly():
            return self._step.weight
        known = self._state.known_as_summed
        if key(variable) not in known:
            known[key(variable)] = counter()
        weight = ops.where(known[key(variable)] > 0, float(runtime.is_master_rank()), 1.0)
        return lambda dtype: ops.cast(weight, dtype)

    def _masters(self, gradients: Sequence[Any], variables: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The master's gradients, for all ranks, and eagerly the places where a rank has others."""
        others = ops.convert_to_tensor(not runtime.is_master_rank())
        sums = self._allreduce(_prepared(gradients, variables, self.static_rows), variables, others)
        if not tf.executing_eagerly():
            return sums, []
        differ = [not _equal(*each) for each in zip(gradients, sums, strict=True)]
        counts = ops.convert_to_tensor(np.array(differ, "float64"))
        counts = np.asarray(reduce.sum_over_ranks(self._state.end, "gradients that differ", counts))
        return sums, np.flatnonzero(counts).tolist()

    def _owner(self, variables: Sequence[Any]) -> Any:
        """What owns the plan: another one for each further call for the same variables in a trace.

        Around an eager step, ranks may trace functions in different steps: then each function counts for itself.
        """
        trace = (steps.current_trace(),) if self._step.is_eager else ()
        return self._state.reduction(self._step.call_index((*trace, *(key(v) for v in variables))))

    def _note(self, variables: Sequence[Any], sums: Sequence[Any]) -> None:
        noted = {key(v) for v in variables}
        self._summed |= noted
        self._state.summed |= noted
        if tf.executing_eagerly():
            self._made.update((id(each), each) for each in sums if each is not None)
        elif self._numbered:
            upstream.note_summed(noted)

    def _all_summed(self) -> set[int]:
        """The variables whose gradients this step sums: also in functions that an earlier trace has left."""
        return self._summed | upstream.summed_in_trace()

    def _may_be_summed(self, variable: Any) -> bool:
        """Whether a gradient may be a sum that this step does not show: of a function, or kept from another step.

        Where shares add up to 1 the sum of such sums is the same again.
        """
        return self._step.is_sum and tf.executing_eagerly() and key(variable) in self._state.summed

    def _is_alike(self, gradient: Any, before: Any) -> bool:
        """Whether it is certain that all ranks have the same."""
        return id(gradient) in self._made if before is None else not (before.own or before.random)


def _prepared(gradients: Sequence[Any], variables: Sequence[Any], rows: Sequence[int] | None = None) -> list[Any]:
    return [reduce.prepared(g, v, rows) for g, v in zip(gradients, variables, strict=True)]


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _names(variables: Sequence[Any], places: Iterable[int]) -> str:
    return abbreviated([_name(variables[i]) for i in places])


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


def _scaled(gradient: Any, weight: Callable[[Any], Any]) -> Any:
    """The prepared gradient times `weight(dtype)`."""
    if gradient is None:
        return None
    if isinstance(gradient, list):
        return slices.changed(gradient, lambda values, indices: (values * weight(values.dtype), indices))
    return gradient * weight(gradient.dtype)


def _no_slices_where(condition: Any, gradient: Any) -> Any:
    """The prepared gradient; of a sparse one, no slices where the condition holds."""
    if not isinstance(gradient, list):
        return gradient

    def no_slices(values: Any, indices: Any) -> Any:
        kept = ops.where(condition, 0, ops.shape(indices)[0])
        return values[:kept], indices[:kept]

    return slices.changed(gradient, no_slices)
