"""Tries a model out on a batch and its halves: how added losses combine, and which layers look across rows.

It is one more trace, made outside of any step, and variables are as before afterwards.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from ..._backend import backend
from .. import hooks, private
from . import gather
from .batch_dependent import as_in_inference

# Numbers of a row that are compared.
_SAMPLED = 1024
# Relative to the largest value: numbers of rows differ in rounding, on GPUs to ten bits.
_SAME, _SAME_LOSS = 1e-3, 1e-4
_SAME_OF = {"float16": 0.03, "bfloat16": 0.1}
# How many times nearer a random loss must be to one than to the other of a mean and a sum.
_CLEARLY = 3
# A loss whose two values differ by more than this part of the tolerance is random: the same numbers give one sum,
# except for its order on a GPU.
_REPEATED = 0.01


class LossReduction(enum.Enum):
    """How a loss combines over the rows of a batch."""

    MEAN, SUM, NEITHER, UNKNOWN = "mean", "sum", "neither", "unknown"


class LossValues(NamedTuple):
    """A loss for some rows of a batch, and for two parts of them."""

    whole: float
    again: float  # with other random numbers
    parts: tuple[float, float]
    rows: tuple[int, int]  # of the parts
    tolerance: float = _SAME_LOSS  # relative to the largest

    def distances(self) -> tuple[float, float]:
        """How far `whole` is from the mean over the rows of the parts, and from their sum."""
        (a, b), (first, second) = self.parts, self.rows
        return abs(self.whole - (first * a + second * b) / (first + second)), abs(self.whole - a - b)

    def reduction(self) -> LossReduction:
        """UNKNOWN if all are zero or one is not finite; for random ones the clearly nearer of mean and sum."""
        values = (self.whole, self.again, *self.parts)
        largest, (from_mean, from_sum) = max(map(abs, values)), self.distances()
        if not math.isfinite(sum(values)) or largest == 0:
            return LossReduction.UNKNOWN
        least = self.tolerance * largest
        if abs(self.whole - self.again) > _REPEATED * least:
            near, far = sorted((from_mean, from_sum))
            if far < _CLEARLY * near:
                return LossReduction.UNKNOWN
            return LossReduction.MEAN if near == from_mean else LossReduction.SUM
        if from_mean <= least:
            return LossReduction.MEAN
        return LossReduction.SUM if from_sum <= least else LossReduction.NEITHER


class Rows(NamedTuple):
    """Some rows of a batch."""

    start: int
    stop: int
    total: int  # of the batch


class Findings(NamedTuple):
    """The results of a trial. Layers are numbered as in `private.every_layer`."""

    added: dict[tuple[int, int], LossValues]  # by layer, and by the order of what it adds in a call of the model
    # Layers that look across rows: the change of the output, relative to its largest value.
    batch_dependent: dict[int, float]
    random: set[int]  # layers whose output differs from call to call


class _Signature(NamedTuple):
    """A call of a layer in a trace: which tensors of its arguments and result have the rows first."""

    layer: int
    by_rows: tuple[list[bool], list[bool]]


class Trial:
    """A model as one more trace, which is called on batches of one type."""

    def __init__(self, model: Any, x: Any, trains: bool, candidates: Iterable[int], off: Iterable[int]) -> None:
        """Compares the outputs of layers that are `candidates`. Those that are `off` run in inference mode.

        `x` are inputs of the type of the batches. Raises what the model raises. A model that cannot be traced and is
        run eagerly runs eagerly here, too.
        """
        self._model, self._trains, self._candidates, self._off = model, trains, set(candidates), set(off)
        every = private.every_layer(model)
        with _as_before(every):
            try:
                self._run = backend.sandboxed(self._record, x)
            except Exception:
                if not getattr(model, "run_eagerly", False):
                    raise
                variables = [*model.variables, *model.metrics_variables, *backend.variables_outside(every)]
                self._run = backend.sandboxed(self._record, variables=variables)

    def measure(self, x: Any, rows: int) -> Findings:
        """Calls the model on `rows` rows of inputs, and on their halves; a single row is taken twice.

        What the model gathers from all ranks is the same on the halves as on the whole, as it is on two ranks.
        """
        x, total = (x, rows) if rows > 1 else (backend.rows(x, [(0, 1), (0, 1)], 1), 2)
        half, every = total // 2, Rows(0, total, total)
        halves = [Rows(0, half, total), Rows(half, total, total)]
        with _as_before(private.every_layer(self._model)):
            whole, again = self._run(x, draws_on=True, rows="record"), self._run(x)
            parts = [self._run(backend.rows(x, [(each.start, each.stop)], total), rows="replay") for each in halves]
        tolerance = max(_SAME_OF.get(layer.compute_dtype, _SAME) for layer in private.every_layer(self._model))
        of_loss = tolerance if tolerance > _SAME else _SAME_LOSS
        values = zip(*(result["added"].tolist() for result in (whole, again, *parts)), strict=True)
        added = {
            key: LossValues(w, g, (a, b), (half, total - half), of_loss)
            for key, (w, g, a, b) in zip(self._added, values, strict=True)
        }
        batch_dependent: dict[int, float] = {}
        draws: set[int] = set()
        calls = zip(self._calls, *(result["calls"] for result in (whole, again, *parts)), strict=True)
        for call, first, second, *others in calls:
            if _change(call, first, second, every, tolerance):
                draws.add(call.layer)
            elif rows > 1:
                changes = [_change(call, first, *each, tolerance) for each in zip(others, halves, strict=True)]
                batch_dependent[call.layer] = max(*changes, batch_dependent.get(call.layer, 0.0))
        batch_dependent = {layer: change for layer, change in batch_dependent.items() if change}
        inner = _innermost(self._model, {*batch_dependent, *draws})
        return Findings(added, {i: batch_dependent[i] for i in inner & {*batch_dependent}}, inner & draws)

    def results(self, x: Any) -> list[tuple[Any, list[Any], list[Any]]]:
        """The layer of each call, and samples of its arguments and of its result."""
        every = private.every_layer(self._model)
        with _as_before(every):
            made = self._run(x)["calls"]
        return [
            (every[call.layer], *([values for _, values in side] for side in sides))
            for call, sides in zip(self._calls, made, strict=True)
        ]

    def _record(self, x: Any) -> dict[str, Any]:
        """Calls the model; returns the losses that layers add, and the arguments and results of their calls."""
        self._graph = backend.current_trace()
        self._rows = next((each.shape[0] for each in tree.flatten(x) if each is not None and len(each.shape)), None)
        self._calls: list[_Signature] = []
        self._values: list[Any] = []  # of each call
        self._added: list[tuple[int, int]] = []  # by layer, and by the order of what it adds
        self._losses: list[Any] = []
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i, layer in enumerate(private.every_layer(self._model)):
                stack.enter_context(hooks.hooking(layer, "add_loss", functools.partial(self._add, i), "trial"))
                if i in self._off:
                    stack.enter_context(hooks.hooking(layer, "call", as_in_inference, "inference"))
                if i in self._candidates:
                    stack.enter_context(hooks.hooking(layer, "call", functools.partial(self._call, i), "trial"))
            self._model(x, training=self._trains)
        return {"added": ops.stack([ops.zeros((), "float64"), *self._losses])[1:], "calls": self._values}

    def _add(self, layer: int, original: Callable[..., Any]) -> Callable[..., Any]:
        def add_loss(loss: Any) -> None:
            for each in tree.flatten(loss) if self._is_outside_of_functions() else ():
                self._added.append((layer, sum(other == layer for other, _ in self._added)))
                self._losses.append(ops.sum(ops.cast(each, "float64")))

        return add_loss

    def _call(self, layer: int, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if self._is_outside_of_functions():
                sides = [_numbers(side) for side in ((args, kwargs), output)]
                taken, returned = ([t.shape[0] == self._rows for t in each] for each in sides)
                self._calls.append(_Signature(layer, (taken, returned)))
                self._values.append([[_sample(t, t.shape[0] == self._rows) for t in each] for each in sides])
            return output

        return call

    def _is_outside_of_functions(self) -> bool:
        """The trace cannot return tensors of inner functions."""
        return bool(backend.current_trace() is self._graph)


def _change(signature: _Signature, whole: Any, part: Any, rows: Rows, tolerance: float) -> float:
    """The distance between a layer's result for some rows alone and these rows of its result for all.

    0.0 within the tolerance, and where it takes other values: then what comes before it has changed.
    """
    taken, returned = (
        max((_difference(*each, rows) for each in zip(*sides, strict=True)), default=0.0)
        for sides in zip(signature.by_rows, whole, part, strict=True)
    )
    return returned if taken <= tolerance < returned else 0.0


def _difference(by_rows: bool, whole: Any, part: Any, rows: Rows) -> float:
    """The largest difference, relative to the largest value of the whole."""
    (shape, values), (of_part, others) = whole, part
    total, count = rows.total, rows.stop - rows.start
    axes = [i for i, (a, b) in enumerate(zip(shape, of_part, strict=True)) if a != b]
    if len(axes) > 1 and all(shape[i] * count == of_part[i] * total for i in axes):
        return math.inf  # numbers for pairs of rows
    if by_rows and (shape[0], of_part[0]) == (total, count):
        values = values[rows.start : rows.stop]
    if values.shape != others.shape:
        return 0.0  # nothing can be told
    values, others = (each.astype(np.float64) for each in (values, others))
    largest = np.abs(values).max(initial=0)
    return float(np.abs(values - others).max(initial=0) / largest) if largest else 0.0


def _numbers(structure: Any) -> list[Any]:
    return [leaf for leaf in tree.flatten(structure) if ops.is_tensor(leaf) and not backend.why_not_gathered(leaf)]


def _sample(tensor: Any, by_rows: bool) -> tuple[Any, Any]:
    """The shape, and some of the numbers, of each row or of all."""
    shape = ops.convert_to_tensor(ops.shape(tensor), "int32")
    flat = ops.reshape(tensor, (ops.shape(tensor)[0] if by_rows else 1, -1))
    return shape, flat[:, :: ops.maximum(1, ops.shape(flat)[1] // _SAMPLED)]


def _innermost(model: Any, found: set[int]) -> set[int]:
    layers = {i: layer for i, layer in enumerate(private.every_layer(model)) if i in found}
    ids = {id(layer) for layer in layers.values()}
    inner = {i: private.every_layer(layer, include_self=False) for i, layer in layers.items()}
    return {i for i, below in inner.items() if ids.isdisjoint(map(id, below))}


@contextlib.contextmanager
def _as_before(every: list[Any]) -> Iterator[None]:
    """Afterwards the attributes of layers, and the generators of Python and NumPy, are as before."""
    of_python, of_numpy, token = random.getstate(), np.random.get_state(), gather.in_trial.set(True)
    attributes = [(vars(layer), dict(vars(layer))) for layer in every]
    values = [(value, _kind(value)) for _, each in attributes for value in each.values()]
    kept = [(value, kind, kind(value)) for value, kind in values if kind is not None]
    try:
        yield
    finally:
        gather.in_trial.reset(token)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        for current, before in attributes:
            for name in current.keys() - before.keys():
                del current[name]
            current.update((name, value) for name, value in before.items() if current.get(name) is not value)
        for value, kind, content in kept:
            kind.clear(value)
            (list.extend if kind is list else kind.update)(value, content)


def _kind(value: Any) -> Any:
    """list, dict or set for these and for Keras's subclasses of them; None for other types."""
    kind = next((kind for kind in (list, dict, set) if issubclass(type(value), kind)), None)
    return kind if type(value).__module__.startswith(("builtins", "keras.")) else None
