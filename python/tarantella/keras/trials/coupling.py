"""Finds layers whose output for a row depends on other rows of the batch, by calling them on a part of the rows.

Each rank has its own rows, so such a layer gives other results on several ranks than on one process.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops, tree

from ..._backend import backend
from ..._job import log
from ..._job.log import listed
from .. import hooks, private, training
from . import sandbox

# Two batch sizes that are rarely the length of another axis; a layer must couple rows with both to be reported.
_ROWS, _FIRST = (5, 7), slice(2)
_UNKNOWN_LENGTH, _UNKNOWN_SIDE = 4, 32  # of a sequence, of an image
# Relative to the largest value: batch sizes differ in rounding, on GPUs to ten bits.
_SAME = 1e-3
_SAME_OF = {"float16": 0.03, "bfloat16": 0.1}


class Call(NamedTuple):
    """One call of a layer."""

    layer: Any
    function: Callable[..., Any]
    arguments: tuple[Any, Any]
    output: Any


def say(model: Any, inputs: Any) -> None:
    """Warns once, by name, about layers of a model that couple rows. Does nothing if the model cannot be tried out.

    Unless all layers are Keras's own, calls the model on five synthetic rows of the type `inputs` and on two of them:
    eagerly and in training mode, except random layers and BatchNormalization, which run in inference mode. Restores
    variables, random generators and user-defined tf.functions.
    """
    found = training.of(model)
    if found.tried_for_coupling:
        return
    found.tried_for_coupling = True
    try:
        names = [] if sandbox.is_rowwise(model) else _coupled(model, inputs)
    except sandbox.TooLongError as error:
        log.logger.info(f"the model is not checked for layers that couple rows: {error}")
        return
    except Exception:  # user code may raise anything on synthetic rows
        return
    if names:
        log.warn_once(
            f"{listed(names)}: the output for a row depends on which rows share a batch. Each rank has its own rows, "
            "so training differs from one process; to avoid this, compute each row (axis 0) by itself"
        )


def _coupled(model: Any, inputs: Any) -> list[str]:
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack.enter_context(sandbox.without_trace(model))
        stack.enter_context(sandbox.limited(model))
        for layer in private.every_layer(model):
            if switchable(layer) and (_draws(layer) or isinstance(layer, keras.layers.BatchNormalization)):
                stack.enter_context(hooks.hooking(layer, "call", as_in_inference))
        names = _coupled_of(model, inputs, _ROWS[0])
        again = _coupled_of(model, inputs, _ROWS[1]) if names else []
    return [name for name in names if name in again]


def _coupled_of(model: Any, inputs: Any, rows: int) -> list[str]:
    x = tree.map_structure(lambda spec: _made_up(spec, rows), inputs)
    tolerance = _tolerance(model)
    whole, part = (_call(model, each) for each in (x, cut(x, rows, _FIRST)))
    if not couples(whole, part, rows, _FIRST, tolerance):
        return []
    with keras.StatelessScope():
        found = suspects(recorded(model, x), rows, _FIRST, tolerance)
    return [title(layer) for layer, kind in found if kind == "coupled"]


def _call(model: Any, x: Any) -> Any:
    with keras.StatelessScope():
        return model(x, training=True)


def _made_up(spec: Any, rows: int) -> Any:
    if spec is None:
        return None
    rank = len(spec.shape)
    unknown = _UNKNOWN_SIDE if rank > 3 else _UNKNOWN_LENGTH
    shape = (rows, *(unknown if n is None else int(n) for n in spec.shape[1:]))
    random = np.random.default_rng(shape)
    if spec.dtype.name == "string":
        return ops.convert_to_tensor(random.integers(0, 2, shape).astype(str).astype(object))
    if spec.dtype.is_floating:
        # The level rises from row to row, so that a mean over the first rows is far from that over all.
        level = np.linspace(0.1, 1.0, rows).reshape(-1, *[1] * (rank - 1))
        values: Any = level * random.uniform(0.05, 0.95, shape)
    else:  # small word indices, but the full range of brightness
        values = random.integers(0, 256 if spec.dtype.name == "uint8" else 2, shape)
    return ops.cast(values, spec.dtype.name)


def _tolerance(model: Any) -> float:
    return max(_SAME_OF.get(layer.compute_dtype, _SAME) for layer in private.every_layer(model))


def _draws(layer: Any) -> bool:
    return any(isinstance(value, keras.random.SeedGenerator) for value in vars(layer).values())


def recorded(model: Any, x: Any) -> list[Call]:
    """Calls a model in training mode and returns the calls of its layers, in the order in which they end."""
    calls: list[Call] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(backend.functions_eager())
        for layer in private.every_layer(model):
            stack.enter_context(hooks.hooking(layer, "call", functools.partial(_record, layer, calls)))
        model(x, training=True)
    return calls


def _record(layer: Any, calls: list[Call], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        calls.append(Call(layer, original, (args, kwargs), output))
        return output

    return call


def suspects(calls: list[Call], rows: int, part: slice, tolerance: float) -> list[tuple[Any, str]]:
    """The innermost layers whose output changes when called again ("random") or on a part of the rows ("coupled")."""
    found: dict[int, tuple[Any, str]] = {}
    with backend.functions_eager():
        for call in calls:
            kind = _kind(call, rows, part, tolerance)
            if kind:
                found.setdefault(id(call.layer), (call.layer, kind))
    return [
        (layer, kind)
        for layer, kind in found.values()
        if not any(id(inner) in found for inner in private.every_layer(layer, include_self=False))
    ]


def _kind(call: Call, rows: int, part: slice, tolerance: float) -> str | None:
    args, kwargs = call.arguments
    again = numbers(call.function(*args, **kwargs))
    if any(_differ(a, b, tolerance) for a, b in zip(numbers(call.output), again, strict=True)):
        return "random"
    args, kwargs = cut((args, kwargs), rows, part)
    try:
        output = call.function(*args, **kwargs)
    except Exception:  # a layer for one batch size only: unknown
        return None
    return "coupled" if couples(call.output, output, rows, part, tolerance) else None


def cut(structure: Any, rows: int, part: slice) -> Any:
    """The rows `part` of every tensor that has `rows` rows."""
    return tree.map_structure(
        lambda leaf: leaf[part] if getattr(leaf, "shape", None) and leaf.shape[0] == rows else leaf, structure
    )


def couples(whole: Any, output: Any, rows: int, part: slice, tolerance: float) -> bool:
    """Whether `output`, for the rows `part` alone, differs from these rows of `whole`, the output for all rows.

    This is also true if several axes have the length of the batch: these are numbers for pairs of rows.
    """
    taken = len(range(rows)[part])
    for a, b in zip(numbers(whole), numbers(output), strict=True):
        axes = [axis for axis in range(a.ndim) if a.ndim == b.ndim and a.shape[axis] != b.shape[axis]]
        if len(axes) > 1 and all(a.shape[axis] * taken == b.shape[axis] * rows for axis in axes):
            return True
        if _differ(a[part] if axes == [0] and len(a) == rows else a, b, tolerance):
            return True
    return False


def _differ(one: Any, other: Any, tolerance: float) -> bool:
    """Whether arrays of the same shape differ by more than `tolerance` times their largest value."""
    return one.shape == other.shape and bool(
        np.abs(one - other).max(initial=0) > tolerance * np.abs(one).max(initial=0)
    )


def numbers(structure: Any) -> list[Any]:
    """The numeric leaves of a structure, in float64."""
    leaves = [np.asarray(leaf) for leaf in tree.flatten(structure) if hasattr(leaf, "shape")]
    return [leaf.astype(np.float64) for leaf in leaves if leaf.dtype.kind in "fiub" or leaf.dtype.name == "bfloat16"]


def title(layer: Any) -> str:
    """The layer's class and name."""
    return f"{type(layer).__name__} {layer.name!r}"


def switchable(layer: Any) -> bool:
    """Whether a layer has an inference mode."""
    return "training" in inspect.signature(layer.call).parameters


def as_in_inference(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a layer's `call` so that it runs in inference mode."""
    signature = inspect.signature(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["training"] = False
        return original(*given.args, **given.kwargs)

    return call
