"""The means of all hooks: how one is put in place, and the distributed step that runs now."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from .._backend import tensorflow as backend
from ..data.shares import MicroBatch, PaddedMicroBatch


class Step:
    """One step on one micro batch, alive while it is traced (or run, eagerly).

    Every loss weighs by this rank's part of the rows; what needs another share gets a `factor` on top.
    """

    def __init__(self, model: Any, batch: MicroBatch | PaddedMicroBatch) -> None:
        self.model = model
        self.rows, self.global_rows, self.fingerprint = (batch.numbers[i] for i in range(3))
        # Whether this rank has no rows of its own, or None where that cannot happen.
        self.copied = batch.copied if isinstance(batch, PaddedMicroBatch) else None
        self.inputs = batch.data[0] if isinstance(batch.data, tuple) else batch.data
        self.scaled: set[int] = set()  # optimizers that have scaled the loss
        self.applied = False
        self._numbers: collections.Counter[int] = collections.Counter()

    def share(self, dtype: Any) -> Any:
        """This rank's part of the rows of the global batch. Gradients of losses so scaled are summed."""
        return backend.ratio(self.rows, self.global_rows, dtype)

    def factor(self, share: Any, dtype: Any) -> Any:
        """What turns the share by rows into another one; 0 where this rank has no rows."""
        return backend.ratio(share, self.share("float64"), dtype)

    def own(self, values: Any) -> Any:
        """The values, or zeros where this rank has no rows."""
        return values if self.copied is None else backend.zero_where(self.copied, values)

    def number(self, owner: Any) -> int:
        """How often this was called for `owner` before: a layer may run several times in a step."""
        self._numbers[id(owner)] += 1
        return self._numbers[id(owner)] - 1


_current: contextvars.ContextVar[Step | None] = contextvars.ContextVar("tarantella_step", default=None)


def current() -> Step | None:
    """The distributed step that runs now, if any."""
    return _current.get()


@contextlib.contextmanager
def running(step: Step) -> Iterator[Step]:
    token = _current.set(step)
    try:
        yield step
    finally:
        _current.reset(token)


def hooked(owner: Any, name: str) -> bool:
    """Whether this attribute of this very object is one of our hooks."""
    return hasattr(vars(owner).get(name), "_tarantella_original")


def original(owner: Any, name: str) -> Callable[..., Any]:
    """The method of this very object, without our hook."""
    method = getattr(owner, name)
    unhooked: Callable[..., Any] = getattr(method, "_tarantella_original", method)
    return unhooked


def hook(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Puts `make(original)` in the place of a method of this object, once. True if it was put now."""
    if hooked(owner, name):
        return False
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    replacement._tarantella_original = original  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True


@contextlib.contextmanager
def hooking(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """As `hook`, for a while."""
    before = vars(owner).get(name)
    fresh = hook(owner, name, make)
    try:
        yield
    finally:
        if fresh and before is not None:
            setattr(owner, name, before)
        elif fresh:
            delattr(owner, name)
