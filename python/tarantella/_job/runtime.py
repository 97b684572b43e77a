"""The only context of this process: created at first use, closed before the interpreter exits."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from . import env_vars, excepthook, log, rendezvous, stack_location, timeline
from .environment import integer, is_worker, layout, number

if TYPE_CHECKING:
    from .._core import Context

# Seconds without a sign of life after which a rank counts as stuck; TNT_TIMEOUT overrides it.
DEFAULT_TIMEOUT = 300.0
# Seconds in which a starter ends a job whose cause it has seen: then its exit code is that of the cause.
STARTER_ENDS_JOB = 3.0
# Seconds between two log lines about a long wait.
WARN_EVERY = 60.0

_lock = threading.RLock()
_context: Context | None = None
_answering: threading.Event | None = None
_groups: weakref.WeakSet[Context] = weakref.WeakSet()
_kept: list[int] | None = None  # plans to release, while none may be
_ready = False
_told = False  # the code with which SIGTERM ends this process
_closed = False
_process = os.getpid()  # a forked child has copies of these variables, but takes no part in the job


def init() -> None:
    """Joins the job. Optional (the first use does it too), idempotent and safe in any thread.

    Blocks until all ranks have joined. Returns at once with one rank, and in processes that a rank has started.
    Raises tarantella.PeerLostError if a rank ended without joining, tarantella.TimeoutError if a rank did not join
    within TNT_TIMEOUT. Under the launcher `tarantella` there is no limit, because it knows which ranks are alive.
    """
    global _context, _answering, _ready
    place = layout()
    if place.size > 1 and _is_forked():  # its copy of the lock may be held for ever
        return
    with _lock:
        if _ready:
            return
        log.configure()
        if place.child_of is not None:
            _say_alone(place.child_of)
        elif (unknown := env_vars.unknown()) is not None:
            log.logger.warning(unknown)
        if place.launched or place.size > 1:
            excepthook.install(abort, leave)
        if place.size > 1:
            with timeline.span("join the other ranks"):
                _context = _join()
            atexit.register(_exit)
            _answering = stack_location.answer(_context)
        _ready = True


def _is_forked() -> bool:
    return os.getpid() != _process


def _say_alone(rank: int) -> None:
    if integer("TNT_SIZE", 1) > 1:
        log.logger.log(
            logging.DEBUG if is_worker() else logging.WARNING,
            "rank %d has started this process, which is not a rank: it trains alone, as one process; train in the "
            "script that tarantella starts",
            rank,
        )


def _join() -> Context:
    try:
        from .._core import Context, on_sigterm
    except ImportError as error:
        raise RuntimeError(
            f"several ranks ({layout().size}) need the built package, but tarantella._core cannot be loaded ({error}); "
            "install it with: pip install ."
        ) from None
    place = layout()
    timeout = number("TNT_TIMEOUT", DEFAULT_TIMEOUT)
    stall_timeout = number("TNT_STALL_TIMEOUT", 0)
    if place.starter:
        on_sigterm(excepthook.PEER_LOST_WITHOUT_LAUNCHER)  # its signal may be the first news of a rank that has failed
    met = rendezvous.of(place, timeout)
    joined = Context(
        place.rank,
        place.size,
        place.local_rank,
        place.local_size,
        met.job,
        timeout,
        meet_timeout=math.inf if place.launched else timeout,
        warn_every=WARN_EVERY,
        stall_timeout=stall_timeout,
        nodes=",".join(map(str, place.nodes)),
        transport=met.transport,
        first_host=met.first_host,
    )
    if stall_timeout:
        stack_location.show_all(joined)
    if place.starter:
        joined.end_with_job()
        on_sigterm(0)
    if len(place.nodes) > 1:
        rendezvous.check_versions(joined, place.nodes)
    return joined


def context() -> Context:
    """The context of a job with several ranks. Joins the job first if necessary, see `init`."""
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
    """A context of the given ranks, None on a rank that is not among them. Collective.

    It is closed when its last reference is gone, or with the context of the job. Closing is not collective.
    """
    made = context().group(list(ranks))
    if made is not None:
        _groups.add(made)
    return made


def check() -> None:
    """Raises the error that ended this job's communication, if there is one. Does not block."""
    if _context is not None:
        _context.check()


def abort(reason: str, code: int) -> None:
    """Tells the other ranks that this one fails: their calls raise PeerLostError with its number and `reason`.

    It will end with the exit code `code`. Does not block. Does nothing if this rank has not joined.
    """
    if os.getpid() != _process:
        return
    _end_by_sigterm_with(code)
    for each in (_context, *_groups):  # who is told by a group looks for the code in the first
        if each is not None:
            each.abort(reason, code)


def _end_by_sigterm_with(code: int) -> None:
    """From here on; the first code counts. Under our launcher SIGTERM is its own."""
    global _told
    if layout().starter and not _told:
        from .._core import on_sigterm

        _told = True
        on_sigterm(code)


def _exit() -> None:
    """The program is over, but a starter may still end it since another rank has failed."""
    _end_by_sigterm_with(excepthook.PEER_LOST_WITHOUT_LAUNCHER)
    close()


def leave() -> int:
    """Leaves a job that has lost another rank, for good. Returns the exit code of this process.

    Without the launcher that is the code of the rank that failed; if it has told none, this waits until the starter may
    have ended the job.
    """
    if not layout().starter:
        close()
        return excepthook.PEER_LOST_EXIT_CODE
    told = 0 if _context is None else _context.exit_code
    code = told or excepthook.PEER_LOST_WITHOUT_LAUNCHER
    _end_by_sigterm_with(code)
    close()
    if not told:
        time.sleep(STARTER_ENDS_JOB)
    return code


def release(plan: int) -> None:
    """Ends a plan of the core. Not collective; does nothing if the job is over or the plan has ended."""
    if _kept is not None:
        _kept.append(plan)
    elif _context is not None and not _is_forked():
        with contextlib.suppress(ValueError):
            _context.release(plan)


@contextlib.contextmanager
def plans_kept() -> Iterator[None]:
    """Meanwhile plans are not released, whatever is collected as garbage, but after it."""
    global _kept
    _kept = []
    try:
        yield
    finally:
        kept, _kept = _kept, None
        for plan in kept:
            release(plan)


def close() -> None:
    """Leaves the job for good: calls of other threads end with tarantella.PeerLostError.

    Idempotent. Does nothing in a forked child.
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
    """This process's rank among the ranks of its machine. Never blocks."""
    return layout().local_rank


def restart_count() -> int:
    """How often this job was started again after a failure; 0 in its first attempt. Never blocks.

    The launcher counts (`--max-restarts`); without it torchrun, or Slurm where the job was requeued.
    """
    names = ("TNT_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return integer(next((name for name in names if name in os.environ), names[0]), 0)


def get_master_rank() -> int:
    """The rank that prints and writes files: 0."""
    return 0


def is_master_rank() -> bool:
    """Whether this process is the master rank. Never blocks."""
    return layout().rank == get_master_rank()
