"""The gradients of a step: tapes return, and optimizers get, those of the global batch.

In Keras's own step the sums alias the memory of the optimizer's plan. A user-defined step may keep or change a
gradient. So there sums are copied, calls for the same variables have plans of their own, and reductions carry the
number of the step. The ranks meet at its end, which finds a rank that alone has left out a gradient or an update.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from ..._job import log, runtime
from ..._job.log import abbreviated
from ..steps import Step, TrainedModel, key
from . import provenance, reduce, slices, steps
from .plans import zero_variable


class StepGradients:
    """See `_backend.steps.Gradients`."""

    def __init__(self, step: Step, model: TrainedModel) -> None:
        self.static_rows = step.static_rows
        self._step, self._model, self._state = step, model, model.state
        self._known: dict[int, Any] = {}
        self._local = 0
        self._summed: set[int] = set()  # variables, by key, whose gradients were summed in this step
        self._has_step_number = False  # whether any were summed with the number of the step
        self._made: dict[int, Any] = {}  # the sums of an eager step, by id

    # For the hooks of tapes.

    @property
    def trace_cache_key(self) -> object:
        return self._state.trace_cache_key, self._step.trace_cache_key, self._local > 0

    def note_call(self, variables: set[int]) -> None:
        self._summed |= variables

    def reduces(self, source: Any) -> bool:
        """Whether gradients by this source are summed: it is a variable of the model or of its optimizers."""
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

    def is_only_keras_gradient(self, differentiable: bool) -> bool:
        """Whether this is the one gradient that Keras's own step takes: no tape around it, nothing summed before."""
        return self._step.is_keras_own and not differentiable and not self._summed

    def weight(self) -> Any:
        """What the gradients of this rank's loss are multiplied by, as `Step.weight`; None where that is 1."""
        return None if self._step.is_sum else self._step.fraction("float64")

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        self._local += 1
        try:
            yield
        finally:
            self._local -= 1

    def sums(self, gradients: Sequence[Any], sources: Sequence[Any], differentiable: bool) -> list[Any]:
        """The sums over the ranks of gradients that have their weight; None stays None. Collective."""
        variables = [self._known[key(each)] for each in sources]
        if differentiable:
            sums = self._differentiable(gradients, variables)
        else:
            is_only = self.is_only_keras_gradient(differentiable=False)
            optimizer = self._model.zero_copy_optimizer(variables) if is_only else None
            sums = self._reduction(variables, self._step.is_empty, optimizer)(gradients, variables)
        self._note(variables, sums)
        return sums

    # For optimizers.

    def to_apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        found, summed = list(gradients), self._all_summed()
        unsummed, others, changed, unknown = list[int](), list[int](), list[int](), list[int]()
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if key(variable) not in summed:
                unsummed.append(i)
            elif (before := provenance.provenance_of(gradient)) is None:
                unknown += [] if id(gradient) in self._made else [i]
            elif before.own:
                (changed if before.sums else others).append(i)
            elif before.random:
                unknown.append(i)
        if others:
            log.warn_once(
                f"a tape has summed the gradients of {_names(variables, others)} over the ranks, and an optimizer gets "
                "others in the same step, of this rank's rows and not from a tape: they are summed too"
            )
        _warn_of_changed(variables, changed)
        own, apart = sorted([*unsummed, *others]), sorted([*changed, *unknown])
        may_be_sums = [i for i in own if self._may_be_sum(variables[i])]
        if may_be_sums:
            _, differ = self._masters(may_be_sums, gradients, variables)
            own = [i for i in own if i in differ or i not in may_be_sums]
        if own:
            _put(found, own, self._reduced(*_at(own, gradients, variables)))
        if apart:
            sums, differ = self._masters(apart, gradients, variables)
            _put(found, apart, sums)
            _warn_of_changed(variables, differ)
        return found

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        summed = self._all_summed()
        for gradient, variable in zip(gradients, variables, strict=True):
            if gradient is None or key(variable) not in summed:
                continue
            before = provenance.provenance_of(gradient)
            if before is None or before.sums:
                raise ValueError(
                    f"the gradient of {_name(variable)!r} is already summed over the ranks: tf.GradientTape does so "
                    "in a train_step; remove the call of tarantella.reduce_gradients"
                )
        sums = self._reduced(gradients, variables)
        self._note(variables, sums)
        return sums

    def end(self) -> None:
        """Does nothing where Keras's step has taken the only gradients."""
        loops = [] if tf.executing_eagerly() else provenance.loops_over_rows()
        if loops:
            raise NotImplementedError(
                f"a loop in train_step ({loops[0]}) takes gradients, and its number of iterations depends on this "
                "rank's rows; take them in `with tarantella.local_gradients():`, and pass their mean over these rows "
                "to the optimizer"
            )
        in_trace = provenance.summed_in_trace()
        self._state.note_summed(self._summed | in_trace)
        counts = self._model.optimizer_counts()
        if counts and (self._has_step_number or in_trace or not self._step.is_keras_own):
            number = 1 + sum(ops.cast(each, "int64") for each in counts)
            state = self._state
            reduce.check_step_end(state.end_owner, state.plan_owners, "the updates", number, state.step_metadata)

    def _reduction(
        self, variables: Sequence[Any], empty: Any, zero_copy_optimizer: Any = None
    ) -> Callable[..., list[Any]]:
        """`reduce.allreduce` for the gradients of some of the variables. It does not hold the step."""
        step_number = self._step.step_number if zero_copy_optimizer is None else None
        self._has_step_number |= step_number is not None
        return functools.partial(
            reduce.allreduce,
            self._owner(variables) if zero_copy_optimizer is None else zero_copy_optimizer,
            alias_outputs=zero_copy_optimizer is not None,
            rows=self.static_rows,
            empty=empty,
            step_number=step_number,
            check=self._model.checks_gradients,
        )

    def _differentiable(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Sums whose gradients are summed too. Sparse gradients become dense."""
        places = [i for i, each in enumerate(gradients) if each is not None]
        some = [variables[i] for i in places]
        forward, backward = (self._reduction(variables, self._step.is_empty) for _ in range(2))

        # TensorFlow keeps the function for ever: it must not hold the step, which holds the model.
        @tf.custom_gradient
        def total(*values: Any) -> Any:
            return forward(values, some), lambda *upstreams: backward(upstreams, some)

        sums = list(gradients)
        _put(sums, places, total(*(tf.convert_to_tensor(gradients[i]) for i in places)))
        return sums

    def _reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        own = [slices.scaled(g, self._weight_of(v)) for g, v in zip(gradients, variables, strict=True)]
        return self._reduction(variables, self._step.is_empty)(own, variables)

    def _weight_of(self, variable: Any) -> Callable[[Any], Any]:
        """The weight of a gradient that no tape has summed so far in the trace; a later branch of the step may do so.

        The gradient may also be a sum that an accumulator has kept, equal on all ranks. Weighted by fractions that add
        up to 1, its sum is itself. With `tnt_reduction = "sum"` it would count once a rank, so only the master's gets
        the weight 1, from the first step after the trace on.
        """
        if not self._step.is_sum or tf.executing_eagerly():
            return self._step.weight
        known = self._state.already_summed
        if key(variable) not in known:
            known[key(variable)] = zero_variable()
        weight = ops.where(known[key(variable)] > 0, float(runtime.is_master_rank()), 1.0)
        return lambda dtype: ops.cast(weight, dtype)

    def _masters(
        self, places: list[int], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> tuple[list[Any], list[int]]:
        """The master's gradients at these places, for all ranks, and eagerly the places where a rank has others."""
        own, of = _at(places, gradients, variables)
        sums = self._reduction(of, ops.convert_to_tensor(not runtime.is_master_rank()))(own, of)
        if not tf.executing_eagerly():
            return sums, []
        differ = [not _equal(*each) for each in zip(own, sums, strict=True)]
        counts = ops.convert_to_tensor(np.array(differ, "float64"))
        counts = np.asarray(reduce.sum_over_ranks(self._state.end_owner, "gradients that differ", counts))
        return sums, [places[i] for i in np.flatnonzero(counts)]

    def _owner(self, variables: Sequence[Any]) -> Any:
        """The owner of the plan. Each further call for the same variables in a trace has another one.

        In an eager step, ranks may trace functions in different steps, so each function has its own count.
        """
        trace = (steps.current_trace(),) if self._step.is_eager else ()
        return self._state.plan_owner(self._step.call_index((*trace, *(key(v) for v in variables))))

    def _note(self, variables: Sequence[Any], sums: Sequence[Any]) -> None:
        noted = {key(v) for v in variables}
        self._summed |= noted
        self._state.summed |= noted
        if tf.executing_eagerly():
            self._made.update((id(each), each) for each in sums if each is not None)
        elif self._has_step_number:
            provenance.note_summed(noted)

    def _all_summed(self) -> set[int]:
        """The variables whose gradients this step sums, also in functions that were traced earlier."""
        return self._summed | provenance.summed_in_trace()

    def _may_be_sum(self, variable: Any) -> bool:
        """Whether a gradient may be summed already: by a function that was traced before, or in an earlier step.

        Only where losses are sums. Elsewhere fractions add up to 1, so the sum of such sums is the same again.
        """
        return self._step.is_sum and tf.executing_eagerly() and key(variable) in self._state.summed


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _names(variables: Sequence[Any], places: Iterable[int]) -> str:
    return abbreviated([_name(variables[i]) for i in places])


def _warn_of_changed(variables: Sequence[Any], places: list[int]) -> None:
    if places:
        log.warn_once(
            f"between the tape and the optimizer, the gradients of {_names(variables, places)} are combined with "
            "values that differ between ranks, such as a rank's own loss: all ranks apply the master's gradients, "
            "which differs from one process"
        )


def _at(places: list[int], *each: Sequence[Any]) -> list[list[Any]]:
    return [[values[i] for i in places] for values in each]


def _put(found: list[Any], places: list[int], values: list[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        found[place] = value


def _equal(one: Any, other: Any) -> bool:
    a, b = (np.asarray(ops.convert_to_tensor(each)) for each in (one, other))
    return np.array_equal(a, b, equal_nan=True)
