"""The distributed step that runs now: its rows, those of the global batch, and the factors of its loss terms."""

from __future__ import annotations

import collections
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from ..._backend import backend
from ..._backend.steps import Gradients, known_rows
from ...data.rows import MicroBatch, PaddedMicroBatch
from .. import private


class Step:
    """One step on one micro batch. It exists while the step is traced, or while it runs eagerly.

    The whole loss is multiplied by `weight`. A term that needs another factor is `rescaled` first.
    """

    def __init__(
        self,
        model: Any,
        batch: MicroBatch | PaddedMicroBatch,
        metadata_variable: Any = None,
        is_keras_own: bool = True,
        compares_step_number: bool = False,
        trains: bool = True,
    ) -> None:
        """`metadata_variable` is that in which the step stores its numbers, `ModelState.step_metadata`, or None.

        Functions that are traced once and run in later steps read them there. `is_keras_own`: whether the step itself
        is Keras's. `compares_step_number`: whether ranks compare its step number.
        """
        self.model, self.is_keras_own, self.trains = model, is_keras_own, trains
        self.is_eager, self._compares_step_number = backend.current_trace() is None, compares_step_number
        # Without `metadata_variable`, functions that are traced in this step capture its tensors: no other can use them
        self.trace_cache_key: object = metadata_variable is not None or object()
        self._rows, self._global_rows, self.fingerprint = (batch.metadata[i] for i in range(3))
        # Whether this rank's row is padding: a copy, because it has none. None where that cannot happen.
        self.padding = batch.is_padding if isinstance(batch, PaddedMicroBatch) else None
        self.static_rows = known_rows(batch.data)
        self.is_sum = tnt_reduction_of(model) == "sum"
        self.gradients: Gradients | None = None  # what is done with them, made when it is first asked for
        self.metadata_variable = metadata_variable
        if metadata_variable is not None:
            padding = ops.zeros((), bool) if self.padding is None else self.padding
            numbers = [self._rows, self._global_rows, padding, metadata_variable[3] + 1]
            metadata_variable.assign(ops.stack([ops.cast(each, "int64") for each in numbers]))
        # What metrics have returned in this step, by the id of the tensor: it, the metric, its place in the result.
        self.results: dict[int, tuple[Any, Any, int]] = {}
        self._calls: collections.Counter[Any] = collections.Counter()
        self._made: dict[Any, Any] = {}
        self.has_all_rows = False
        # By graph, the id of a part and how it is gathered: the part, how many rows each rank has, the rows.
        self._gathered: dict[Any, tuple[Any, Any, Any]] = {}

    @property
    def rows(self) -> Any:
        """Those of this rank."""
        return self._rows if self.metadata_variable is None else self._stored(0)

    @property
    def global_rows(self) -> Any:
        """Those of all ranks."""
        return self._global_rows if self.metadata_variable is None else self._stored(1)

    @property
    def is_empty(self) -> Any:
        """Whether this rank has no rows; None where that cannot happen."""
        return self.padding if self.metadata_variable is None else self._stored(2) > 0

    @property
    def step_number(self) -> Any:
        """Which step of the call this is, from 1 on; None where only Keras's code runs: it is not compared."""
        return self._stored(3) if self._compares_step_number else None

    def fraction(self, dtype: Any) -> Any:
        """The rows of this rank divided by the rows of the global batch."""
        return self._once(("fraction", str(dtype)), lambda: ratio(self.rows, self.global_rows, dtype))

    def _stored(self, index: int) -> Any:
        return self._once(index, lambda: self.metadata_variable[index])

    def _once(self, name: Any, make: Callable[[], Any]) -> Any:
        """The result of `make`, once in each graph of the step: user-defined functions have their own graphs."""
        key = backend.current_trace(), name
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def weight(self, dtype: Any) -> Any:
        """The factor of the whole loss: the fraction, or 1 if the user declares the loss a sum."""
        return ops.ones((), dtype) if self.is_sum else self.fraction(dtype)

    def rescaled(self, loss: Any, fraction: Any = None) -> Any:
        """A loss term that counts by `fraction` once the whole loss is multiplied by `weight`; by default, by rows."""
        if fraction is None and not self.is_sum:
            return loss
        fraction = self.fraction("float64") if fraction is None else fraction
        dtype = loss.dtype if keras.backend.is_float_dtype(loss.dtype) else keras.config.floatx()
        return ops.cast(loss, dtype) * ratio(fraction, self.weight("float64"), dtype)

    def sum_to_mean(self, value: Any) -> Any:
        """A sum over rows divided by `fraction`: whoever multiplies a mean by `fraction` gets the sum back."""
        return value * ratio(1.0, self.fraction("float64"), value.dtype)

    def gathered(self, what: str, parts: list[Any], replicated: bool) -> tuple[list[Any], list[Any]]:
        """As `Backend.gather_rows`, once for each part in each graph.

        `replicated`: every rank computes the same result from the rows, and counts it by its fraction.
        """
        keys = [(backend.current_trace(), id(part), replicated) for part in parts]
        new = {key: part for key, part in zip(keys, parts, strict=True) if key not in self._gathered}
        if new:
            fraction = self.fraction("float64") if replicated else None
            counts, whole = backend.gather_rows(what, list(new.values()), fraction, self.is_empty, self.step_number)
            for (key, part), *found in zip(new.items(), counts, whole, strict=True):
                self._gathered[key] = (part, *found)
        return [self._gathered[key][1] for key in keys], [self._gathered[key][2] for key in keys]

    @contextlib.contextmanager
    def on_all_rows(self) -> Iterator[None]:
        """Meanwhile the losses given to compile get the rows of all ranks."""
        self.has_all_rows = True
        try:
            yield
        finally:
            self.has_all_rows = False

    def zero_if_empty(self, values: Any) -> Any:
        """The dense values, or exact zeros (also in place of inf and nan) where this rank has no rows."""
        if self.padding is None:
            return values
        # Not ops.where: it would copy the values in every step for the rare batch that is too small.
        return ops.cond(self.padding, lambda: ops.zeros_like(values), lambda: values)

    def call_index(self, owner: Any) -> int:
        """How often this was called for `owner`, or an equal tuple, before: a layer may run several times in a step."""
        key = owner if isinstance(owner, tuple) else id(owner)
        self._calls[key] += 1
        return self._calls[key] - 1


def ratio(part: Any, whole: Any, dtype: Any) -> Any:
    """part / whole as `dtype`, 0 where `whole` is 0. Gradients take it for a constant."""
    quotient = ops.divide_no_nan(ops.cast(part, "float64"), ops.cast(whole, "float64"))
    return ops.stop_gradient(ops.cast(quotient, dtype))


def tnt_reduction_of(owner: Any) -> str | None:
    """The `tnt_reduction` of a model, loss, metric or function, or of the function that a loss or metric calls.

    Raises ValueError for an unknown value.
    """
    for each in (owner, private.function_of(owner)):
        reduction: str | None = getattr(each, "tnt_reduction", None)
        if reduction not in (None, "mean", "sum"):
            raise ValueError(f"tnt_reduction of {name_of(each)!r} must be 'mean' or 'sum' (got {reduction!r})")
        if reduction is not None:
            return reduction
    return None


def name_of(owner: Any) -> str:
    """The name of a model, loss or metric, or of a function."""
    return str(getattr(owner, "name", getattr(owner, "__name__", type(owner).__name__)))


_current: contextvars.ContextVar[Step | None] = contextvars.ContextVar("tarantella_step", default=None)


def current_step() -> Step | None:
    """The distributed step that runs now, if any."""
    return _current.get()


@contextlib.contextmanager
def running(step: Step) -> Iterator[Step]:
    token = _current.set(step)
    try:
        yield step
    finally:
        _current.reset(token)
        step.gradients = None  # a cycle would keep them until Python looks for cycles
