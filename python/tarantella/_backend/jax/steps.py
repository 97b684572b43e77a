"""The steps of Keras's JAX trainer: their hooks, what is asked between them, and what is not there yet."""

from __future__ import annotations

import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import keras

from ..steps import Hook, RunStep, Undo


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

        def call(data: Any, undo: Undo | None = None) -> Any:
            logs, changed = original(state, data)
            after.append(changed if undo is None else _undone(model, undo, state, changed))
            return logs

        token = _trace.set(None if model.run_eagerly else TracedStep())
        try:
            return run(kind, batch, call), after[-1]
        finally:
            _trace.reset(token)

    return step


def _undone(model: Any, undo: Undo, before: Any, after: Any) -> Any:
    """The state after a step, where the condition holds that before it."""
    places = {id(v) for v in (*undo.variables, *undo.if_local)} - {id(v) for v in undo.exempt()}
    of_optimizer: list[Any] = [[]] if len(after) == 4 else []  # in a step that trains
    parts = [model.trainable_variables, model.non_trainable_variables, *of_optimizer, model.metrics_variables]
    return tuple(
        [
            jax.numpy.where(undo.condition, old, new) if i < len(part) and id(part[i]) in places else new
            for i, (old, new) in enumerate(zip(olds, news, strict=True))
        ]
        for part, olds, news in zip(parts, before, after, strict=True)
    )


def with_iterator(function: Callable[..., Any], begin: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda state, iterator: function(state, begin(iterator))


def run_step(model: Any, kind: str, batch: Any) -> Any:
    _missing()


def sync(model: Any) -> None:
    model.jax_state_sync()
    jax.block_until_ready([v.value for v in model.variables])


def current_trace() -> Any:
    return _trace.get()


def strategy_of(model: Any) -> str:
    distribution = keras.distribution.distribution()
    return "" if distribution is None else type(distribution).__name__


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


def _missing() -> NoReturn:
    raise NotImplementedError("this runs on Keras's tensorflow backend only so far: set KERAS_BACKEND=tensorflow")


def trace(step: Callable[[Any], Any], spec: Any, rows: Any = ...) -> None:
    raise NotImplementedError("the model is not built: give it an Input, or call it on one batch before on every rank")


def stand_in(tensor: Any, rows: int | None) -> Any:
    _missing()


def comes_from_inputs(tensor: Any, but: Sequence[Any]) -> bool:
    _missing()


def is_used(tensor: Any) -> bool:
    _missing()


def rows(data: Any, ranges: Sequence[tuple[int, int]], total: int) -> Any:
    _missing()


def sandboxed(function: Callable[[Any], Any], data: Any = None, variables: Any = None) -> Any:
    _missing()


def gradients(loss: Callable[[], Any], variables: Sequence[Any]) -> list[Any]:
    _missing()
