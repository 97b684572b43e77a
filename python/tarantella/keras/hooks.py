"""The means of all hooks: how one is put in place, and the distributed step that runs now."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from .._backend import tensorflow as backend
from ..data.shares import MicroBatch, PaddedMicroBatch


class Step:
    """One step on one micro batch, alive while it is traced (or run, eagerly)."""

    def __init__(self, batch: MicroBatch | PaddedMicroBatch) -> None:
        self.rows, self.global_rows = batch.rows, batch.global_rows
        # Whether this rank has no rows of its own, or None where that cannot happen.
        self.copied = batch.copied if isinstance(batch, PaddedMicroBatch) else None
        self.additive = False  # the loss is a sum over rows, see losses.py
        self.scaled: set[int] = set()  # optimizers that have scaled the loss
        self.applied = False

    def share(self, dtype: Any) -> Any:
        """This rank's part of the rows of the global batch."""
        return backend.ratio(self.rows, self.global_rows, dtype)

    def weight(self, dtype: Any) -> Any:
        """What this rank's loss weighs in the global loss. Gradients of weighted losses are summed.

        The one place that knows the rule; a weight for each term of the loss goes here too.
        """
        if self.additive:
            return backend.ratio(self.global_rows, self.global_rows, dtype)
        return self.share(dtype)


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


def hook(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Puts `make(original)` in the place of a method of this object, once. True if it was put now."""
    if hooked(owner, name):
        return False
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    replacement._tarantella_original = original  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True
