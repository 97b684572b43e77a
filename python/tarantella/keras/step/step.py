"""The distributed step that runs now: how many rows it has of how many, and what its loss terms are multiplied by."""

from __future__ import annotations

import collections
import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops, tree

from ..._backend import backend
from ...data.rows import MicroBatch, PaddedMicroBatch


class Step:
    """One step on one micro batch, alive while it is traced (or run, eagerly).

    The whole loss is multiplied by one `weight`; terms that need another share of their own are `weighed` before.
    """

    def __init__(self, model: Any, batch: MicroBatch | PaddedMicroBatch) -> None:
        self.model = model
        self.rows, self.global_rows, self.fingerprint = (batch.numbers[i] for i in range(3))
        # Whether this rank has no rows of its own, or None where that cannot happen.
        self.copied = batch.copied if isinstance(batch, PaddedMicroBatch) else None
        self.static_rows = backend.static_rows(batch.data)
        self.inputs = inputs_of(batch.data)
        self.labels = tree.flatten(batch.data[1:2]) if isinstance(batch.data, tuple) else []
        self.is_sum = declared_reduction(model) == "sum"
        self.scaled: set[int] = set()  # optimizers that have scaled the loss
        self.applied = False
        # What metrics have returned in this step, by the id of the tensor: it, the metric, its place in the result.
        self.results: dict[int, tuple[Any, Any, int]] = {}
        self._numbers: collections.Counter[int] = collections.Counter()

    def share(self, dtype: Any) -> Any:
        """This rank's part of the rows of the global batch."""
        return ratio(self.rows, self.global_rows, dtype)

    def weight(self, dtype: Any) -> Any:
        """That of the whole loss, before gradients are summed: the share, or 1 where the user declares it a sum."""
        return ops.ones((), dtype) if self.is_sum else self.share(dtype)

    def weighed(self, loss: Any, share: Any = None) -> Any:
        """A term which the weight of the whole turns into `share` times itself, or into the share by rows."""
        if share is None and not self.is_sum:
            return loss
        share = self.share("float64") if share is None else share
        dtype = loss.dtype if keras.backend.is_float_dtype(loss.dtype) else keras.config.floatx()
        return ops.cast(loss, dtype) * ratio(share, self.weight("float64"), dtype)

    def as_mean(self, value: Any) -> Any:
        """A sum over this rank's rows as what, times the share, is that sum again: as a mean over rows is counted."""
        return value * ratio(1.0, self.share("float64"), value.dtype)

    def own(self, values: Any) -> Any:
        """The values, or zeros where this rank has no rows."""
        return values if self.copied is None else zero_where(self.copied, values)

    def number(self, owner: Any) -> int:
        """How often this was called for `owner` before: a layer may run several times in a step."""
        self._numbers[id(owner)] += 1
        return self._numbers[id(owner)] - 1


def ratio(part: Any, whole: Any, dtype: Any) -> Any:
    """part / whole in the given type, 0 where the whole is; a constant to gradients."""
    quotient = ops.divide_no_nan(ops.cast(part, "float64"), ops.cast(whole, "float64"))
    return ops.stop_gradient(ops.cast(quotient, dtype))


def zero_where(condition: Any, values: Any) -> Any:
    """The dense values, or exact zeros (also in place of inf and nan) where the condition holds."""
    # Not ops.where: it would copy every gradient in every step for the rare batch that is too small.
    return ops.cond(condition, lambda: ops.zeros_like(values), lambda: values)


def inputs_of(data: Any) -> Any:
    """What a model takes of a batch of inputs, labels and sample weights, or of its type."""
    return data[0] if isinstance(data, tuple) else data


def declared_reduction(owner: Any) -> str | None:
    """The `tnt_reduction` that a user gave to a model or metric. Raises ValueError for an unknown value."""
    reduction: str | None = getattr(owner, "tnt_reduction", None)
    if reduction not in (None, "mean", "sum"):
        raise ValueError(f"tnt_reduction of {owner.name!r} must be 'mean' or 'sum' (got {reduction!r})")
    return reduction


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
