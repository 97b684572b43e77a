"""The process's one context: made at the first use, closed before the interpreter goes."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import log, uncaught, variables, whereabouts
from .environment import integer, is_worker, layout, number

if TYPE_CHECKING:
    from .._core import Context

# Seconds without a sign of life after which a rank counts as stuck; TNT_TIMEOUT overrides it.
DEFAULT_TIMEOUT = 300.0
# Seconds between two lines about a long wait.
WARN_EVERY = 60.0

_lock = threading.RLock()
_context: Context | None = None
_answering: threading.Event | None = None
_groups: weakref.WeakSet[Context] = weakref.WeakSet()
_ready = False
_closed = False
_process = os.getpid()  # a forked child has a copy of all this, but no part in the job


def init() -> None:
    """Joins the job. Optional (the first use does it too), idempotent and safe in any thread.

    Blocks until all ranks have joined; with one rank it returns at once, and in processes that a rank has started.
    Raises tarantella.PeerLostError if one ended without joining, tarantella.TimeoutError if one did not come within
    TNT_TIMEOUT. Under the launcher `tarantella` there is no limit, since it knows which ranks live.
    """
    global _context, _answering, _ready
    place = layout()
    if place.size > 1 and _is_forked():  # the lock, too, may be a copy that nobody gives back
        return
    with _lock:
        if _ready:
            return
        log.configure()
        if place.child_of is not None:
            _say_alone(place.child_of)
        elif (unknown := variables.unknown()) is not None:
            log.logger.warning(unknown)
        if place.launched:
            uncaught.install(abort, close)
        if place.size > 1:
            _context = _join()
            atexit.register(close)
            _answering = whereabouts.answer(_context)
        _ready = True


def _is_forked() -> bool:
    return os.getpid() != _process


def _say_alone(rank: int) -> None:
    if integer("TNT_SIZE", 1) > 1:
        log.logger.log(
            logging.DEBUG if is_worker() else logging.WARNING,
            "rank %d has started this process, which is one process by itself and no rank: what it trains, it trains "
            "alone; train in the script that tarantella starts",
            rank,
        )


def _join() -> Context:
    try:
        from .._core import Context
    except ImportError as error:
        raise RuntimeError(
            f"{layout().size} ranks need the built package, and tarantella._core cannot be loaded ({error}); "
            "install it with: pip install ."
        ) from None
    place = layout()
    timeout = number("TNT_TIMEOUT", DEFAULT_TIMEOUT)
    return Context(
        place.rank,
        place.size,
        place.local_rank,
        place.local_size,
        place.job,
        timeout,
        meet_timeout=math.inf if place.launched else timeout,
        warn_every=WARN_EVERY,
    )


def context() -> Context:
    """The context of a job with several ranks; joins it if need be (see `init`)."""
    init()
    if _is_forked():
        raise RuntimeError(
            "tarantella: a forked child of a rank takes no part in the job; exchange data in the rank itself"
        )
    if _context is None:
        message = "the job is over" if _closed else "one rank alone has no context"
        raise RuntimeError(f"tarantella: {message}")
    return _context


def group(ranks: Sequence[int]) -> Context | None:
    """A context of some ranks, None where this rank is not among them. Collective.

    It is closed when it is not used any more, at the latest with the job's; closing is not collective.
    """
    made = context().group(list(ranks))
    if made is not None:
        _groups.add(made)
    return made


def check() -> None:
    """Raises the error that ended this job's communication, if there is one. Does not block."""
    if _context is not None:
        _context.check()


def abort(reason: str) -> None:
    """Tells the other ranks that this one fails: their calls raise PeerLostError with its number and `reason`. Does not
    block; nothing where this rank has not joined."""
    if os.getpid() != _process:
        return
    for each in (*_groups, _context):
        if each is not None:
            each.abort(reason)


def release(plan: int) -> None:
    """Ends a plan of the core that is not needed any more. Not collective; nothing if the job is over."""
    if _context is not None and not _is_forked():
        _context.release(plan)


def close() -> None:
    """Leaves the job for good. Idempotent; a forked child leaves its parent's context alone.

    Calls of other threads end with tarantella.PeerLostError.
    """
    global _context, _closed
    if _is_forked():
        return
    with _lock:
        for each in list(_groups):
            each.close()
        if _context is not None:
            _context.close()
        if _answering is not None:
            _answering.wait(10)
        _context, _closed = None, True


def get_rank() -> int:
    """This process's rank, from 0 to `get_size() - 1`. Never blocks."""
    return layout().rank


def get_size() -> int:
    """The number of ranks in the job; 1 without a launcher. Never blocks."""
    return layout().size


def get_local_rank() -> int:
    """This process's rank among those of its machine. Never blocks."""
    return layout().local_rank


def get_master_rank() -> int:
    """The rank that writes files and prints: 0."""
    return 0


def is_master_rank() -> bool:
    """Whether this process is the master rank. Never blocks."""
    return layout().rank == get_master_rank()
