"""Sums over ranks: of the gradients of a step, where `jax.value_and_grad` returns them; and of values between steps."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..._exchange import short_name_of
from ..._job import runtime
from ..._job.groups import Group
from .. import plans
from ..steps import Hook, Step, TrainedModel
from .steps import current_trace

_LIBRARY = Path(__file__).parents[2] / "libtarantella_jax.so"
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


def allreduce(
    owner: Any,
    gradients: Sequence[Any],
    variables: Sequence[Any],
    weight: float = 1.0,
    alias_outputs: bool = False,
    group: Group | None = None,
    check: bool = False,
    inspect: Callable[[Any, Any], None] | None = None,
) -> list[Any]:
    raise NotImplementedError("user-defined training loops run on Keras's tensorflow backend only so far")


class StepGradients:
    """The gradients of one step: see `_backend.steps.Gradients`."""

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
        plan = plans.plan(self._model.state.plan_owner(0), key, "the gradients", tensors, context)
        if self._model.checks_gradients:
            context.check_finite(plan)
        sums = _sums(plan, [self._weighted(each) for each in flat])
        self._has_summed = True
        return jax.tree.unflatten(structure, sums)

    def _weighted(self, gradient: Any) -> Any:
        weighted = gradient * self._step.weight(str(gradient.dtype))
        return weighted if self._step.is_empty is None else jax.numpy.where(self._step.is_empty, 0, weighted)

    def applied(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        if not self._has_summed:
            raise NotImplementedError(
                "an optimizer gets gradients that jax.value_and_grad has not taken by all trainable variables of the "
                "model; on several ranks this runs on Keras's tensorflow backend only so far"
            )
        return list(gradients)

    def reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        raise NotImplementedError("reduce_gradients in a train_step runs on Keras's tensorflow backend only so far")

    def end(self) -> None:
        """Only steps with code of users are compared."""


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
    plan = plans.plan(owner, (what, str(values.dtype)), what, tensors, context())
    return _sums(plan, [jax.lax.stop_gradient(values)])[0]


def gather_rows(what: str, parts: Any, fraction: Any, empty: Any, number: Any) -> tuple[list[Any], list[Any]]:
    raise NotImplementedError(f"{what}: rows of all ranks are gathered on Keras's tensorflow backend only so far")
