"""What `keras/` and all backends share in a step: its interfaces, keys of variables, plans of the core."""

from __future__ import annotations

import concurrent.futures
import contextlib
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import keras

from .._job import runtime
from .._job.environment import integer

# An owner, the name of its method, and what makes the hook of this method.
Hook = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
# Keras's step: `keras_step(data, rollback=None)` runs on data and returns its logs or outputs. `rollback`: a Rollback.
KerasStep = Callable[..., Any]
RunStep = Callable[[str, Any, KerasStep], Any]


class Rollback(NamedTuple):
    """Undoes what a step assigns where a condition, a scalar bool, holds: there this rank has no rows of its own."""

    condition: Any
    variables: Sequence[Any]  # that get back their earlier values
    # Restored only if the step assigns them values from this rank's rows; values from sums over ranks stay. Eagerly
    # this is unknown, so all are restored.
    if_local: Sequence[Any]
    exempt: Callable[[], Sequence[Any]]  # called after the step: variables of both that stay


class Step(Protocol):
    """What a backend asks of the step whose gradients it sums."""

    is_keras_own: bool  # whether the step itself is Keras's
    is_eager: bool  # whether it runs at once, and is not traced
    is_sum: bool  # whether the ranks' losses add up; they are means otherwise
    static_rows: tuple[int, ...]  # the numbers of rows of the parts of its batch, as far as they are known
    trace_cache_key: object  # the same for steps that can share the functions that are traced in them

    @property
    def is_empty(self) -> Any:
        """Whether this rank has no rows, a scalar bool; None where that cannot happen."""

    @property
    def step_number(self) -> Any:
        """Which training step this is, a scalar of int64; None where ranks need not compare it."""

    def fraction(self, dtype: Any) -> Any:
        """The rows of this rank divided by those of all, a scalar."""

    def weight(self, dtype: Any) -> Any:
        """What the gradient of this rank's loss is multiplied by before the sum, a scalar."""

    def call_index(self, owner: Any) -> int:
        """How often this was called for `owner` before, in this step."""


class TrainedModel(Protocol):
    """What a backend asks of the model that a step trains."""

    checks_gradients: bool  # whether a gradient that is not finite ends the job
    state: Any  # what is kept of its gradients from step to step, a `ModelState` of `keras/model_state.py`

    def variables(self) -> dict[int, Any]:
        """Those whose gradients are summed, by `key`: the model's, its optimizers', the framework's own in layers."""

    def trainable_variables(self) -> list[Any]:
        """Those by which Keras's own steps take gradients, in their order."""

    def optimizer_counts(self) -> list[Any]:
        """The variables that count the updates of its optimizers."""

    def zero_copy_optimizer(self, variables: Sequence[Any]) -> Any:
        """The optimizer that applies gradients as Keras does and keeps none, None if there is none."""


class Gradients(Protocol):
    """The gradients of one step, made by `Backend.step_gradients`."""

    def local(self) -> AbstractContextManager[None]:
        """Meanwhile nothing is summed."""

    def to_apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """What an optimizer is to apply: the sums over the ranks, taken here where no tape has. Collective."""

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Sums gradients that no tape has summed, each rank's times its weight. Collective.

        Raises ValueError for gradients that are summed.
        """

    def end(self) -> None:
        """At the end of the step: finds ranks that have left out a gradient or an update alone. Collective.

        Raises MismatchError there.
        """


def key(source: Any) -> int:
    """What tells variables apart, Keras's or the framework's inside."""
    return id(source.value) if isinstance(source, keras.Variable) else id(source)


def known_rows(batch: Any) -> tuple[int, ...]:
    """The numbers of rows of a batch's parts that a trace knows, sorted."""
    found = set()
    for leaf in keras.tree.flatten(batch):
        with contextlib.suppress(ValueError):  # of a part of unknown rank
            found |= {leaf.shape[0]} if len(getattr(leaf, "shape", ())) else set()
    return tuple(sorted(found - {None}))


def in_fresh_thread(function: Callable[[], Any]) -> Any:
    """Runs `function` eagerly, outside of any trace and any call of a layer, and returns or raises what it does.

    Frameworks know for each thread what is traced in it, and Keras which layer is called.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


# KB (1024 bytes) of a bucket of gradients. TNT_FUSION_THRESHOLD overrides it; 0: one bucket for each gradient.
DEFAULT_FUSION_THRESHOLD = 1024

# By owner: an optimizer's plans for the sets of variables that it was applied to, those of a loss or a layer for
# what it sums by the way. What was made of the numbers in the core.
_plans: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def core_plan(
    owner: Any,
    key: Any,
    what: str,
    tensors: list[tuple[str, str, tuple[int, ...]]],
    context: Any,
    step_check: int = 0,
    make: Callable[[int], Any] = lambda number: number,
) -> Any:
    """What `make` makes of the core's plan for tensors of these names, types and shapes, by default its number.

    Collective at the first call for a `key`; later traces get the same. It lives as long as `owner`, so that models
    made in a loop do not pile up memory. `step_check` is a `tnt_step_check` of `tarantella.h`.
    """
    known = _plans.setdefault(owner, {})
    if key not in known:
        threshold = integer("TNT_FUSION_THRESHOLD", DEFAULT_FUSION_THRESHOLD) * 1024
        number = context.plan(what, tensors, threshold, step_check)
        weakref.finalize(owner, runtime.release, number).atexit = False
        known[key] = make(number)
    return known[key]
