"""The JAX backend; `tarantella._backend.Backend` has the contracts of its functions.

So far it trains on arrays, on the CPU, with Keras's own steps. What it lacks raises NotImplementedError.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from .._exchange import short_name_of
from .._job import runtime
from .steps import Hook, Rollback, RunStep, Step, TrainedModel, core_plan

# Counters and weights are of 64 bits where JAX has them, and of 32 by default.
warnings.filterwarnings("ignore", "Explicitly requested dtype (int|float)64 requested", UserWarning)

steps_are_stateful = False  # what a traced step assigns and does not return is lost
checkpoint_writers = ()


class TracedStep:
    """A step while it is traced."""

    latest_call: Sequence[Any] = ()  # a result of its latest call of the core


# None where steps run eagerly, and outside of them.
_trace: contextvars.ContextVar[TracedStep | None] = contextvars.ContextVar("tarantella_jax_step", default=None)


def step_hooks(model: Any, run: RunStep) -> list[Hook]:
    return [
        (model, f"{kind}_step", functools.partial(_step, model, run, kind)) for kind in ("train", "test", "predict")
    ]


def _step(model: Any, run: RunStep, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def step(state: Any, batch: Any) -> Any:
        after: list[Any] = []

        def call(data: Any, rollback: Rollback | None = None) -> Any:
            logs, changed = original(state, data)
            after.append(changed if rollback is None else _rolled_back(model, rollback, state, changed))
            return logs

        token = _trace.set(None if model.run_eagerly else TracedStep())
        try:
            return run(kind, batch, call), after[-1]
        finally:
            _trace.reset(token)

    return step


def _rolled_back(model: Any, rollback: Rollback, before: Any, after: Any) -> Any:
    """The state after a step, where the condition holds that before it."""
    places = {id(v) for v in (*rollback.variables, *rollback.if_local)} - {id(v) for v in rollback.exempt()}
    of_optimizer: list[Any] = [[]] if len(after) == 4 else []  # in a step that trains
    parts = [model.trainable_variables, model.non_trainable_variables, *of_optimizer, model.metrics_variables]
    return tuple(
        [
            jax.numpy.where(rollback.condition, old, new) if i < len(part) and id(part[i]) in places else new
            for i, (old, new) in enumerate(zip(olds, news, strict=True))
        ]
        for part, olds, news in zip(parts, before, after, strict=True)
    )


def sync(model: Any) -> None:
    model.jax_state_sync()
    jax.block_until_ready([v.value for v in model.variables])


def current_trace() -> Any:
    return _trace.get()


def variables_outside(layers: Sequence[Any]) -> list[Any]:
    return []


def without_repeats(value: Any) -> Any:
    return value


def why_not_compiled() -> str:
    return ""


def why_not_gathered(part: Any) -> str:
    return "" if hasattr(part, "shape") and len(part.shape) else "has no axis of rows"


def peek(iterator: Iterator[Any], count: int) -> tuple[Any, Iterator[Any]]:
    first = next(iterator, None)
    return first, iter(()) if first is None else itertools.chain([first], iterator)


def recorded_or_replayed(tensor: Any) -> Any:
    return tensor


_LIBRARY = Path(__file__).parents[1] / "libtarantella_jax.so"
_CALL = "tarantella_allreduce"


@functools.cache
def _register() -> None:
    function = ctypes.CDLL(str(_LIBRARY)).tarantella_jax_allreduce
    jax.ffi.register_ffi_target(_CALL, jax.ffi.pycapsule(function), platform="cpu")


def _sums(plan: int, values: list[Any]) -> list[Any]:
    """One call for all of them, which takes a result of the call before, unread.

    XLA keeps no order between calls but that of their data, and two ranks could wait for each other.
    """
    _register()
    types, step = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in values], current_trace()
    before = [] if step is None else step.latest_call
    sums = list(jax.ffi.ffi_call(_CALL, types, has_side_effect=True)(*values, *before, plan=np.int64(plan)))
    if step is not None:
        step.latest_call = sums[-1:]
    return sums


class StepGradients:
    """See `_backend.steps.Gradients`."""

    def __init__(self, step: Step, model: TrainedModel) -> None:
        self._step, self._model = step, model
        self._is_local = self._has_summed = False

    @contextlib.contextmanager
    def local(self) -> Iterator[None]:
        before, self._is_local = self._is_local, True
        try:
            yield
        finally:
            self._is_local = before

    def taken(self, gradients: Any, sources: Any) -> Any:
        """The sums of what was taken by all trainable variables of the model; other gradients as they are."""
        flat, structure = jax.tree.flatten(gradients)
        variables = self._model.trainable_variables()
        if self._is_local or [each.shape for each in jax.tree.leaves(sources)] != [tuple(v.shape) for v in variables]:
            return gradients
        key = tuple((id(v), str(g.dtype)) for g, v in zip(flat, variables, strict=True))
        tensors = [(short_name_of(v), str(g.dtype), tuple(g.shape)) for g, v in zip(flat, variables, strict=True)]
        context = runtime.context()
        plan = core_plan(self._model.state.plan_owner(0), key, "the gradients", tensors, context)
        if self._model.checks_gradients:
            context.check_finite(plan)
        sums = _sums(plan, [self._weighted(each) for each in flat])
        self._has_summed = True
        return jax.tree.unflatten(structure, sums)

    def _weighted(self, gradient: Any) -> Any:
        weighted = gradient * self._step.weight(str(gradient.dtype))
        return weighted if self._step.is_empty is None else jax.numpy.where(self._step.is_empty, 0, weighted)

    def to_apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        if not self._has_summed:
            raise NotImplementedError(
                "an optimizer gets gradients that jax.value_and_grad has not taken by all trainable variables of the "
                "model; on several ranks this runs on Keras's tensorflow backend only so far"
            )
        return list(gradients)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        raise NotImplementedError("reduce_gradients in a train_step runs on Keras's tensorflow backend only so far")

    def end(self) -> None:
        """Only steps with code of users are compared."""


step_gradients = StepGradients


def gradient_hooks(find: Callable[[], StepGradients | None]) -> list[Hook]:
    return [(jax, "value_and_grad", functools.partial(_value_and_grad, find))]


def _value_and_grad(find: Callable[[], StepGradients | None], original: Callable[..., Any]) -> Callable[..., Any]:
    def value_and_grad(fun: Callable[..., Any], argnums: Any = 0, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        function = original(fun, argnums, *args, **kwargs)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            value, gradients = function(*args, **kwargs)
            step = find()
            if step is None or not isinstance(argnums, int) or argnums >= len(args):
                return value, gradients
            return value, step.taken(gradients, args[argnums])

        return call

    return value_and_grad


def sum_over_ranks(
    owner: Any,
    what: str,
    values: Any,
    differentiable: bool = False,
    context: Callable[[], Any] = runtime.context,
) -> Any:
    if differentiable:
        raise NotImplementedError(f"{what}: sums with a gradient run on Keras's tensorflow backend only so far")
    if current_trace() is None:
        values = np.asarray(values)
        return context().allreduce(values.ravel(), what).reshape(values.shape)
    tensors = [(what, str(values.dtype), tuple(values.shape))]
    plan = core_plan(owner, (what, str(values.dtype)), what, tensors, context())
    return _sums(plan, [jax.lax.stop_gradient(values)])[0]


def trace(step: Callable[[Any], Any], spec: Any, rows: Any = ...) -> None:
    raise NotImplementedError("the model is not built: give it an Input, or call it on one batch before on every rank")


def gather_rows(what: str, parts: Any, fraction: Any, empty: Any, step_number: Any) -> tuple[list[Any], list[Any]]:
    raise NotImplementedError(f"{what}: rows of all ranks are gathered on Keras's tensorflow backend only so far")


def _missing(what: str) -> Callable[..., NoReturn]:
    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{what} on Keras's tensorflow backend only so far: set KERAS_BACKEND=tensorflow")

    return missing


allreduce = _missing("user-defined training loops run")
comes_from_inputs = gradients = is_used = rows = run_step = sandboxed = stand_in = _missing("this runs")
