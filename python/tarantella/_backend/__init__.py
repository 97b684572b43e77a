"""The backend: what only one framework can do, behind one Protocol.

`backend` is the one that keras.backend.backend() names, loaded when its first function is used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, cast

from .._job.groups import Group
from .gradients import Gradients, Upstream

# By the name of Keras's backend: the package that it needs.
_NEEDS = {"tensorflow": "tensorflow"}


class Sandboxed(Protocol):
    """A function whose runs change no variables."""

    def __call__(self, data: Any, draws_on: bool = False, rows: str = "pass") -> Any:
        """The results as arrays. Then the variables that it assigns are as before.

        With `draws_on` those of generators of random numbers stay: the next run draws others. `rows` says what
        `Backend.recorded_or_replayed` does in this run: "pass" returns each tensor, "record" does, too, and keeps it,
        and "replay" returns those that the last run with "record" has kept, in the order of its calls.
        """


class Backend(Protocol):
    """The functions of a backend, each a module-level function of its package.

    Tensors are the framework's, eager or of the step that is being traced; `owner` is an object that lives as long as
    what is reduced for it: an optimizer, a loss, a layer or a model. "Collective" functions must be called on all
    ranks in one order: eagerly they block, in a trace the first one for an owner does. Core errors pass through.
    """

    @property
    def step_errors(self) -> tuple[type[Exception], ...]:
        """The classes of the errors that a step raises for shapes that do not fit."""

    @property
    def end_of_data(self) -> tuple[type[Exception], ...]:
        """The classes of the errors that a function of steps raises where the data have ended."""

    @property
    def checkpoint_writers(self) -> Sequence[tuple[type, str, Callable[..., tuple[str, Callable[[], Any]]]]]:
        """Methods that write checkpoints: the class, the name, and a function of the call's arguments.

        It returns the path, or the folder, and what to call on a rank for which another one has written, if the method
        has returned something there: that brings the object up to date and returns the same.
        """

    # Sums over ranks, within a step.

    def allreduce(
        self,
        owner: Any,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        alias_outputs: bool,
        group: Group | None = None,
        contributes_zeros: Any = None,
        number: Any = None,
        check: bool = False,
    ) -> list[Any]:
        """The sum of each `prepared` gradient over the ranks of the group, by default all; None stays None. Collective.

        With `alias_outputs` the sums lie in memory that the next step overwrites: for consumers that keep nothing.
        A sparse gradient gets the slices that one process has for the global batch, whatever an optimizer does with
        repeated rows: those of rows from all ranks; those that do not come from rows (positions) summed.
        Where `contributes_zeros`, a scalar bool, is true, zeros stand in for this rank's dense gradients.
        `number`, a scalar of int64, is that of the training step: where ranks are in different ones, it raises
        MismatchError. With it the code around may run in loops, and twice in a step.
        With `check`, a gradient of this rank that is not finite ends the job.
        """

    def differentiable_allreduce(
        self,
        owners: tuple[Any, Any],
        gradients: Sequence[Any],
        variables: Sequence[Any],
        contributes_zeros: Any,
        number: Any,
        check: bool,
    ) -> list[Any]:
        """`allreduce` for the first owner, whose gradient is that for the second one. Sparse gradients become dense."""

    def meet(self, owner: Any, followed: Sequence[Any], what: str, number: Any, then: Any) -> None:
        """In a step: where ranks come here with different `number`s, a scalar of int64, not 0: MismatchError.

        Runs after all reductions with a number for the owners `followed`, and before what reads the variable `then`. A
        rank that waits here while another waits for its gradients ends the job with MismatchError, too. Collective.
        `what` names the numbers in errors.
        """

    def gradient_hooks(
        self, find: Callable[[], Gradients | None]
    ) -> list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
        """Where code takes gradients: an owner, the name of its method, and what makes the hook of this method.

        In a hook `find()` returns what the step that runs does with gradients, None outside of one.
        """

    def upstream_of(self, gradient: Any) -> Upstream | None:
        """What a gradient, dense or sparse, is computed from; None eagerly, where it cannot be told."""

    def note_summed(self, variables: set[int]) -> None:
        """In a trace: notes that code of it, or of a function that is traced within, has summed their gradients."""

    def summed_in_trace(self) -> set[int]:
        """What was noted in this trace, in what is around it and in the functions that they call; nothing eagerly."""

    def loops_over_rows(self) -> list[str]:
        """The names of loops of the trace that sum gradients, and have a number of turns that depends on the rows."""

    def variables_outside(self, layers: Sequence[Any]) -> list[Any]:
        """The framework's own variables that layers hold as attributes, in lists or in modules."""

    def is_eager(self) -> bool:
        """Whether operations run at once, and no trace is made."""

    def graph(self) -> Any:
        """What is traced: another object for each function. None eagerly."""

    def prepared(self, gradient: Any, variable: Any, rows: Sequence[int] | None = None) -> Any:
        """The gradient as `allreduce` takes it: a sparse one becomes a list of pieces.

        `rows` are the `static_rows` of the batch, by default those of what the traced function takes.
        """

    def changed(self, pieces: list[Any], change: Callable[[Any, Any], tuple[Any, Any]]) -> list[Any]:
        """A sparse gradient in pieces, with `change(values, indices)` in the place of those of each piece."""

    def without_repeats(self, value: Any) -> Any:
        """A sparse value with each row once, repeated rows added in a fixed order; any other value as it is."""

    def sum_over_ranks(self, owner: Any, what: str, values: Any) -> Any:
        """The sum over the ranks of a small float32 or float64 tensor of known shape. Collective.

        `what` tells an owner's sums apart.
        """

    def differentiable_sum(self, owner: Any, what: str, values: Any, context: Callable[[], Any] = ...) -> Any:
        """`sum_over_ranks` whose gradient is the sum of all ranks' gradients. Collective.

        `context` returns what carries it, by default that of the job, and is kept for ever.
        """

    def gather_rows(
        self, what: str, parts: Sequence[Any], share: Any, empty: Any, number: Any
    ) -> tuple[list[Any], list[Any]]:
        """How many rows of each part each rank has, and the rows of all ranks, in rank order. Collective.

        The parts are dense tensors. Where `empty`, a scalar bool or None, is true, this rank has none. The gradient is
        the sum of all ranks', which is collective, too, if `share` is None. Else all ranks compute the same of the
        rows, and weigh it by `share`, a scalar of float64: then the gradient is this rank's, divided by it. `number` is
        that of the training step, or None: where ranks are in different ones, MismatchError ends the job. `what` names
        the rows in errors.
        """

    def shows_logits(self, tensor: Any) -> bool:
        """Whether what `gather_rows` makes of a tensor shows Keras the logits that it is made of."""

    def why_not_gathered(self, part: Any) -> str:
        """Why `gather_rows` does not take this part, as the end of a sentence; "" if it does."""

    # Steps.

    def static_rows(self, batch: Any) -> tuple[int, ...]:
        """The numbers of rows of a batch's parts that are known in the trace, sorted."""

    def together(self, owner: Any, data: Any, rows: Any) -> AbstractContextManager[tuple[Any, Any, Any, Any]]:
        """For a step on a rank's own data: the data, their rows, the rows of all ranks, and 0; int64. Collective.

        The 0 is for the fingerprint of a batch, which nobody compares. Ends the epoch where no rank has rows. `owner`
        is the model.
        """

    def undo_where(
        self,
        condition: Any,
        variables: Sequence[Any],
        where_own: Sequence[Any],
        step: Callable[[], Any],
        kept: Callable[[], Sequence[Any]],
    ) -> Any:
        """Runs `step` and returns its result; where the condition holds, `variables` get back their earlier values.

        So do those of `where_own` to which the step may assign what is computed from this rank's rows, and not by sums
        over ranks. Eagerly, where it cannot be told, all of them do. What `kept` returns after the step does not.
        """

    def mark_batch(self, batch: Any, rows: Any) -> Any:
        """The batch, whose arrival the timeline shows: nothing that needs it runs before. `rows` is a scalar integer.

        Shows nothing under XLA.
        """

    def run_step(self, model: Any, kind: str, batch: Any) -> Any:
        """The result of Keras's function for steps of a kind ("train", "test", "predict") on one batch."""

    def trace(self, step: Callable[[Any], Any], spec: Any) -> None:
        """Creates the variables that `step` creates for its first batch, of the type `spec`, and runs nothing of it.

        Raises what the step raises.
        """

    def stand_in(self, tensor: Any, rows: int | None) -> Any:
        """In a trace: a tensor of the same type with so many rows, or an unknown number of them, and no values."""

    def comes_from_inputs(self, tensor: Any, but: Sequence[Any]) -> bool:
        """In a trace: whether a tensor is computed from what the trace takes, on another way than through `but`."""

    def is_used(self, tensor: Any) -> bool:
        """In a trace: whether anything is computed from the tensor."""

    def has_value(self, variable: Any) -> bool:
        """False for a variable that was made in a trace that failed."""

    def type_of(self, part: Any) -> Any:
        """The type of a tensor, dense or not, with any number of rows: axis 0 is None. A scalar has none."""

    def with_rows(self, spec: Any, rows: int | None) -> Any:
        """The type `spec` with this number of rows, None for any.

        As it is where it has no rows, no known rank, or is not dense.
        """

    def strategy_of(self, model: Any) -> str:
        """The name of the framework's own way to train a model on several devices that is set, "" where none is."""

    def why_not_compiled(self) -> str:
        """With what steps under jit_compile=True cannot reduce over the ranks; "" where they can."""

    # Numbers that are looked at between steps.

    def checksum(self, values: Sequence[Any]) -> int:
        """One number for the bits of these variables or host arrays, in their order: signed, of 64 bits.

        It fits into NumPy's int64. Reads at the speed of memory.
        """

    def checksums(self, values: Sequence[Any]) -> Any:
        """As `checksum`, a number for each of the values, in an array of NumPy's int64."""

    def checksum_of_rows(self, leaves: Sequence[Any]) -> Any:
        """A scalar of int64 for the rows of a batch, whatever their order. `leaves` are its parts, at least one.

        Numbers of the parts of a batch add up to that of the whole. A leaf of another length than the first counts by
        itself.
        """

    def counter(self, length: int | None = None) -> Any:
        """A new int64 variable with the value 0, part of no model, that steps may add to. May be made in a trace.

        With a `length` a vector of zeros.
        """

    def count_nan(self, values: Sequence[Any]) -> Any:
        """How many NaN the dense float tensors among the values hold, int64; None where none is a float tensor."""

    def look_once(
        self, owner: Any, values: Sequence[Any], sums: Sequence[Any], look: Callable[[Any, Any], None]
    ) -> None:
        """Calls `look` with the arrays of the largest dense value and of its sum, the first time that this runs."""

    # A first batch, and what is run in a sandbox.

    def look_ahead(self, iterator: Iterator[Any], count: int) -> tuple[Any, Iterator[Any]]:
        """Takes the next batch: this one, and an iterator of its type that gives it and what follows, at least `count`.

        It is None where there is none; missing components of it are None. Raises what the iterator raises.
        """

    def rows(self, data: Any, start: int, stop: int, total: int) -> Any:
        """These rows, of `total`, of all tensors of a structure, dense or not. Scalars have none, and stay."""

    def twice(self, data: Any) -> Any:
        """A structure of tensors with its rows twice, one after the other."""

    def sandboxed(self, function: Callable[[Any], Any], data: Any) -> Sandboxed:
        """`function` as a graph, made at once, for `data` and for structures like it with other numbers of rows.

        It takes a structure of tensors and returns one of dense tensors. Raises what it raises.
        """

    def sandboxed_eagerly(self, function: Callable[[Any], Any], variables: Sequence[Any]) -> Sandboxed:
        """`function`, run eagerly. `variables` are all that it may assign."""

    def recorded_or_replayed(self, tensor: Any) -> Any:
        """In a run of a `Sandboxed` what its `rows` say: the tensor, or the one that stood here in an earlier run.

        Outside of such a run, the tensor.
        """

    def apart(self, function: Callable[[], Any]) -> Any:
        """Runs `function` eagerly, outside of any trace and any call of a Keras layer."""

    def gradients(self, loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of the result of `loss`, None where it does not depend on a variable. Eager."""


@functools.lru_cache(maxsize=1)
def load() -> Backend:
    """The backend that keras.backend.backend() names.

    Raises NotImplementedError where there is none yet, ImportError where its framework is not installed.
    """
    import keras

    name = keras.backend.backend()
    if name not in _NEEDS:
        needed = " or ".join(_NEEDS)
        missing = [package for package in _NEEDS.values() if importlib.util.find_spec(package) is None]
        cure = f"install {missing[0]} (pip install 'tarantella[{missing[0]}]') and " if missing else ""
        raise NotImplementedError(
            f"several ranks need Keras's {needed} backend so far (got {name!r}); {cure}set KERAS_BACKEND={needed}"
        )
    return cast(Backend, importlib.import_module(f".{name}", __name__))


class _Chosen:
    """Looks each function up in the backend, so that importing this module loads no framework."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)


backend: Backend = cast(Backend, _Chosen())

if TYPE_CHECKING:
    from . import tensorflow

    _checked: Backend = tensorflow
