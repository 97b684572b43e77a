"""The backend: what only one framework can do, behind one Protocol.

`backend` is the one that keras.backend.backend() names, loaded when its first function is used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from .._job import log
from .._job.groups import Group

if TYPE_CHECKING:
    from .steps import Gradients, Hook, RunStep, Step, TrainedModel

# The names of Keras's backends, and of the packages that they need.
_BACKENDS = ("tensorflow", "jax")


class Backend(Protocol):
    """The functions of a backend, each a module-level function of its package.

    Tensors are the framework's, eager or of the step that is being traced; `owner` is an object that lives as long as
    what is reduced for it: an optimizer, a loss, a layer or a model. "Collective" functions must be called on all
    ranks in one order: eagerly they block, in a trace the first one for an owner does. Core errors pass through.
    """

    @property
    def steps_are_stateful(self) -> bool:
        """Whether a step may assign variables that Keras's trainer does not know of."""

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
        weight: float = 1.0,
        alias_outputs: bool = False,
        group: Group | None = None,
        check: bool = False,
        inspect: Callable[[Any, Any], None] | None = None,
    ) -> list[Any]:
        """The sums over the ranks of a group, by default all, of each rank's gradients times `weight`. Collective.

        None stays None. A sparse gradient gets the slices that one process has for the global batch, whatever an
        optimizer does with repeated rows: those of rows from all ranks; those that do not come from rows (positions)
        summed. With `alias_outputs` the sums lie in memory that the next step overwrites: for consumers that keep
        nothing. With `check`, a gradient of this rank that is not finite ends the job. `inspect` is called with the
        arrays of this rank's largest dense gradient and of its sum, the first time that this runs for the owner.
        """

    def step_gradients(self, step: Step, model: TrainedModel) -> Gradients:
        """What a step does with its gradients. It must not outlive the step."""

    def gradient_hooks(self, find: Callable[[], Any]) -> list[Hook]:
        """The hooks of the functions that take gradients.

        In a hook `find()` returns the `step_gradients` of the step that runs, None outside of one.
        """

    def variables_outside(self, layers: Sequence[Any]) -> list[Any]:
        """The framework's own variables that layers hold as attributes, in lists or in modules."""

    def without_repeats(self, value: Any) -> Any:
        """A sparse value with each row once, repeated rows added in a fixed order; any other value as it is."""

    def sum_over_ranks(
        self,
        owner: Any,
        what: str,
        values: Any,
        differentiable: bool = False,
        context: Callable[[], Any] = ...,
    ) -> Any:
        """The sum over the ranks of a small float32 or float64 tensor of known shape. Collective.

        `what` tells an owner's sums apart. With `differentiable`, the gradient is the sum of all ranks' gradients, a
        collective, too; otherwise there is none. `context` returns what carries the sum, by default that of the job,
        and is kept for ever.
        """

    def gather_rows(
        self, what: str, parts: Sequence[Any], fraction: Any, empty: Any, step_number: Any
    ) -> tuple[list[Any], list[Any]]:
        """How many rows of each part each rank has, and the rows of all ranks, in rank order. Collective.

        The parts are dense tensors; masks and logits that Keras has attached to them travel along. Where `empty`, a
        scalar bool or None, is true, this rank has none. If `fraction` is None, the gradient is the sum of the ranks'
        gradients, a collective, too. With `fraction`, a scalar of float64, every rank computes the same result and
        weighs it by `fraction`; the gradient is then this rank's divided by it. Where `step_number`, a scalar
        of int64 or None, differs between ranks, MismatchError ends the job. `what` names the rows in errors.
        """

    def why_not_gathered(self, part: Any) -> str:
        """Why `gather_rows` does not take this part, as the end of a sentence; "" if it does."""

    # Steps.

    def step_hooks(self, model: Any, run: RunStep) -> list[Hook]:
        """Replaces the steps of a model, in the signatures of the backend's trainer.

        In the place of Keras's step `run(kind, batch, call)` runs, with a kind of "train", "test" or "predict". There
        `call(data)` runs Keras's step on data, and returns its logs or outputs.
        """

    def run_step(self, model: Any, kind: str, batch: Any) -> Any:
        """The result of Keras's function for steps of a kind on one batch."""

    def sync(self, model: Any) -> None:
        """Within a fit or an evaluation: brings the variables of the model up to date, and waits for its step."""

    def current_trace(self) -> Any:
        """What is traced: another object for each function. None where operations run at once."""

    def trace(self, step: Callable[[Any], Any], spec: Any, rows: Any = ...) -> None:
        """Creates the variables that `step` creates for its first batch, of the type `spec`, and runs nothing of it.

        With `rows`, a number or None for any, the dense parts of the batch have so many, whatever `spec` says. Raises
        what the step raises.
        """

    def stand_in(self, tensor: Any, rows: int | None) -> Any:
        """In a trace: a tensor of the same type with so many rows, or an unknown number of them, and no values."""

    def comes_from_inputs(self, tensor: Any, but: Sequence[Any]) -> bool:
        """In a trace: whether a tensor is computed from what the trace takes, on another way than through `but`."""

    def is_used(self, tensor: Any) -> bool:
        """In a trace: whether anything is computed from the tensor."""

    def why_not_compiled(self) -> str:
        """With what steps under jit_compile=True cannot reduce over the ranks; "" where they can."""

    # A first batch, and what is run in a sandbox.

    def peek(self, iterator: Iterator[Any], count: int) -> tuple[Any, Iterator[Any]]:
        """Takes the next batch: this one, and an iterator of its type that gives it and what follows, at least `count`.

        It is None where there is none; missing components of it are None. Raises what the iterator raises.
        """

    def rows(self, data: Any, ranges: Sequence[tuple[int, int]], total: int) -> Any:
        """The rows of these ranges, one after the other, of all tensors of a structure with `total` rows, dense or not.

        A range is the first row and the one after the last. Scalars have no rows, and stay.
        """

    def sandboxed(
        self, function: Callable[[Any], Any], data: Any = None, variables: Sequence[Any] | None = None
    ) -> Callable[..., Any]:
        """`function` as a graph, made at once, for `data` and for structures like it with other numbers of rows.

        It takes a structure of tensors and returns one of dense tensors. With `variables`, which are all that it may
        assign, it is run eagerly instead. Raises what it raises.

        A call `(data, draws_on=False, rows="pass")` gives the results as arrays. Then the variables that it assigns
        are as before. With `draws_on` those of generators of random numbers stay: the next run draws others. `rows`
        says what `recorded_or_replayed` does in this run: "pass" returns each tensor, "record" does, too, and keeps
        it, and "replay" returns those that the last run with "record" has kept, in the order of its calls.
        """

    def recorded_or_replayed(self, tensor: Any) -> Any:
        """In a run in a sandbox what its `rows` say, the tensor or the one that stood here before; else the tensor."""

    def gradients(self, loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of the result of `loss`, None where it does not depend on a variable. Eager."""


@functools.lru_cache(maxsize=1)
def load() -> Backend:
    """The backend that keras.backend.backend() names.

    Raises NotImplementedError where there is none yet, ImportError where its framework is not installed.
    """
    import keras

    name = keras.backend.backend()
    if name not in _BACKENDS:
        is_missing = importlib.util.find_spec("tensorflow") is None
        cure = "install tensorflow (pip install 'tarantella[tensorflow]') and " if is_missing else ""
        raise NotImplementedError(
            f"several ranks need Keras's tensorflow backend so far (got {name!r}); {cure}set KERAS_BACKEND=tensorflow"
        )
    if name == "jax":
        log.warn_once("Keras's jax backend is experimental on several ranks: not all that Keras does runs there yet")
    return cast(Backend, importlib.import_module(f".{name}", __name__))


class _Chosen:
    """Looks each function up in the backend, so that importing this module loads no framework."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)


backend: Backend = cast(Backend, _Chosen())


if TYPE_CHECKING:
    from . import jax, tensorflow

    _checked: list[Backend] = [tensorflow, jax]
