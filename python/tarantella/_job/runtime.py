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

from . import excepthook, log, rendezvous, report, timeline
from .environment import integer, is_worker, layout, number, unknown

if TYPE_CHECKING:
    from .._core import Context

# Seconds without a sign of life after which a rank counts as stuck; TNT_TIMEOUT overrides it.
DEFAULT_TIMEOUT = 300.0
# Seconds that a starter gets to end the job after a failure, so that its exit code is that of the failed rank.
STARTER_ENDS_JOB = 3.0
# Seconds between two log lines about a long wait.
WARN_EVERY = 60.0

_ALONE = (
    "this process was started by rank %d and is not a rank itself: models train here without other ranks; train in the "
    "script that tarantella starts"
)

_lock = threading.RLock()
_context: Context | None = None
_answering: threading.Event | None = None
_groups: weakref.WeakSet[Context] = weakref.WeakSet()
_kept: list[int] | None = None  # plans to release at the end of `plans_kept`
_ready = False
_has_code = False  # for the end by SIGTERM
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
            if integer("TNT_SIZE", 1) > 1:
                level = logging.DEBUG if is_worker() else logging.WARNING
                log.logger.log(level, _ALONE, place.child_of)
        elif (line := unknown()) is not None:
            log.logger.warning(line)
        if place.launched or place.size > 1:
            excepthook.install(abort, leave)
        if place.size > 1:
            with timeline.span("join the other ranks"):
                _context = _join()
            atexit.register(_exit)
            _answering = report.answer(_context)
        _ready = True


def _is_forked() -> bool:
    return os.getpid() != _process


def _join() -> Context:
    try:
        from .._core import Context, on_sigterm
    except ImportError as error:
        raise RuntimeError(
            f"several ranks ({layout().size}) need the compiled part of the package, but tarantella._core cannot be "
            f"loaded ({error}); install it: pip install ."
        ) from None
    place = layout()
    timeout = number("TNT_TIMEOUT", DEFAULT_TIMEOUT)
    stall_timeout = number("TNT_STALL_TIMEOUT", 0)
    if place.starter:
        on_sigterm(excepthook.PEER_LOST_WITHOUT_LAUNCHER)  # the starter may end this rank because another one failed
    job, first_host, transport = rendezvous.of(place, timeout)
    joined = Context(
        place.rank,
        place.size,
        place.local_rank,
        place.local_size,
        job,
        timeout,
        meet_timeout=math.inf if place.launched else timeout,
        warn_every=WARN_EVERY,
        stall_timeout=stall_timeout,
        nodes=",".join(map(str, place.nodes)),
        transport=transport,
        first_host=first_host,
    )
    if stall_timeout:
        report.show_all(joined)
    if place.starter:
        joined.end_with_job()
        on_sigterm(0)
    if len(place.nodes) > 1:
        rendezvous.check_versions(joined)
    return joined


def context() -> Context:
    """The context of a job with several ranks. Joins the job first if necessary (see `init`)."""
    init()
    if _is_forked():
        raise RuntimeError(
            "tarantella: a forked child of a rank takes no part in the job; exchange data in the rank itself"
        )
    if _context is None:
        raise RuntimeError(f"tarantella: {'the job has ended' if _closed else 'a job of one rank has no context'}")
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
    """Reports to the other ranks that this one ends with `code`: their calls raise PeerLostError with `reason`.

    Does not block. Does nothing if this rank has not joined.
    """
    if _is_forked():
        return
    _end_by_sigterm_with(code)
    for each in (_context, *_groups):  # the context of the job first: other ranks read the code there
        if each is not None:
            each.abort(reason, code)


def _end_by_sigterm_with(code: int) -> None:
    """Sets the exit code for SIGTERM, if another starter than the launcher may send it. Only the first call counts."""
    global _has_code
    if layout().starter and not _has_code:
        from .._core import on_sigterm

        _has_code = True
        on_sigterm(code)


def _exit() -> None:
    """Closes the context at exit. Until then a starter may still end this process because another rank failed."""
    _end_by_sigterm_with(excepthook.PEER_LOST_WITHOUT_LAUNCHER)
    close()


def leave() -> int:
    """Leaves a job that has lost another rank, for good. Returns the exit code for this process.

    Without the launcher this is the code of the rank that failed; if that is not known, waits until the starter may
    have ended the job.
    """
    if not layout().starter:
        close()
        return excepthook.PEER_LOST_EXIT_CODE
    known = 0 if _context is None else _context.exit_code
    code = known or excepthook.PEER_LOST_WITHOUT_LAUNCHER
    _end_by_sigterm_with(code)
    close()
    if not known:
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
    """Delays the release of plans, which garbage collection may cause at any time, to the end of the block."""
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
