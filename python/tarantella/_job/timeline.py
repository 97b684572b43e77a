"""Records a timeline of this process (docs/timeline.md), if the user asks for it. Forked children record nothing."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from . import log
from .environment import layout

# Kinds of spans, as in tarantella.h.
CALL, PART, STEP = 1, 2, 3

_Function = TypeVar("_Function", bound=Callable[..., Any])
_core: Any = None  # the module, while the timeline is on
_OFF = contextlib.nullcontext()


def start() -> None:
    """Turns the timeline on if the launcher, or without it TNT_TIMELINE, asks for it. Called once, at import.

    The launcher writes the file of a job. Without it, this process writes the file when Python ends.
    """
    global _core
    file = os.environ.get("TNT_TIMELINE", "").strip()
    place = layout()
    if place.child_of is not None or (not file if not place.launched else "TNT_TIMELINE_FD" not in os.environ):
        return
    try:
        from .. import _core as core

        core.timeline_start(place.local_rank, place.local_size)
    except (ImportError, RuntimeError) as error:
        log.configure()
        log.logger.warning("no timeline is recorded: %s", error)
        return
    _core = core
    os.register_at_fork(after_in_child=_stop)
    if not place.launched:
        del os.environ["TNT_TIMELINE"]  # a child would overwrite the file
        name = os.path.abspath(file) + (f".rank{place.rank}" if place.rank else "")
        atexit.register(_write, name, place.rank)


def _stop() -> None:
    global _core
    _core = None


def _write(file: str, rank: int) -> None:
    if _core is None:
        return
    try:
        if lost := _core.timeline_write(file, rank):
            log.logger.warning("the timeline is full: %d later events are missing", lost)
    except RuntimeError as error:
        log.logger.warning("%s", error)


def is_on() -> bool:
    """Whether this process records a timeline. Never changes after the import, except in a forked child."""
    return _core is not None


def span(name: str, kind: int = PART) -> AbstractContextManager[None]:
    """Records a block of this thread. `name` is cut at 32 bytes. Blocks of a thread nest."""
    return _OFF if _core is None else _span(name, kind)


@contextlib.contextmanager
def _span(name: str, kind: int) -> Iterator[None]:
    number = _core.timeline_begin(kind, name) if _core is not None else None
    try:
        yield
    except GeneratorExit:  # collected unfinished, at any time: stays open
        number = None
        raise
    finally:
        if _core is not None and number is not None:
            _core.timeline_end(number)


def part(name: str, kind: int = PART) -> Callable[[_Function], _Function]:
    """Decorates a function so that its calls are recorded. Returns the function itself if the timeline is off."""
    return _span(name, kind) if _core is not None else lambda function: function


# The names of the errors by which a function of steps says that the data have ended; the second is TensorFlow's.
_END_OF_DATA = ("StopIteration", "OutOfRangeError")


def step(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function` so that each call is recorded as a step, except one that finds no more data."""
    core = _core

    def run(*args: Any) -> Any:
        number = core.timeline_begin(STEP, name)
        forget = False
        try:
            return function(*args)
        except Exception as error:
            forget = type(error).__name__ in _END_OF_DATA
            raise
        finally:
            core.timeline_end(number, forget)

    return run
