"""Ends a rank after an uncaught error: shows it once, and reports it to the launcher and the other ranks at once.

Python ends a process only after its threads and children have ended. To spare the other ranks that wait,
`sys.excepthook`, and `sys.exit` with a code other than 0, report the failure as soon as the script is over. `_over`,
which runs before Python waits for threads, reports the errors that these two have missed.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from . import report
from .environment import flag, layout
from .log import abbreviated

# The exit code of a rank that failed only because another one did.
PEER_LOST_EXIT_CODE = 86
# The same for other starters: the least code, because srun ends with the greatest.
PEER_LOST_WITHOUT_LAUNCHER = 1
# Seconds that threads and children may run on after the script before a message names them.
SAY_HELD_AFTER = 6.0

_first = _previous = sys.excepthook
_showing = False  # `_previous` is showing an error
_reported = False  # the other ranks know that this rank ends with a code other than 0
_is_over = False
_arranged = False
_previous_of_threads = threading.excepthook
_sys_exit = sys.exit
_process = os.getpid()
_code: Any = vars(SystemExit)["code"]
_abort: Callable[[str, int], None]  # set by `install`
_leave_job: Callable[[], int]


def install(abort: Callable[[str, int], None], leave: Callable[[], int]) -> None:
    """Installs hooks that call the current ones. Idempotent.

    `abort(reason, code)` reports to the other ranks that this one fails; `leave` leaves a job that has lost another
    rank, and returns the exit code.
    """
    global _previous, _previous_of_threads, _arranged, _abort, _leave_job
    _abort, _leave_job = abort, leave
    if sys.excepthook is not _hook:
        _previous = sys.excepthook
        sys.excepthook = _hook
    if layout().size == 1:
        return
    if threading.excepthook is not _thread_hook:
        _previous_of_threads = threading.excepthook
        threading.excepthook = _thread_hook
    if sys.exit is _sys_exit:
        sys.exit = _reporting(sys.exit)
        _sitebuiltins.Quitter.__call__ = _reporting(_sitebuiltins.Quitter.__call__)  # type: ignore[method-assign]
    if not _arranged:
        import concurrent.futures.thread  # noqa: F401 - must register first: the functions run in reverse order

        threading._register_atexit(_over)  # type: ignore[attr-defined]
        _arranged = True


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = report.text_of(error, trace)
    if _showing or _still_runs():  # a program shows an error that does not end it
        _print(kind, error, trace, text)
    elif layout().size > 1 and report.is_consequence(error):
        # Shown by the launcher, unless it has the error of the rank that was lost.
        if not report.send(report.LOST, text, PEER_LOST_EXIT_CODE) or _stderr_is_shown():
            _print(kind, error, trace, text)
        _leave()
    else:
        _print(kind, error, trace, text)
        if layout().size > 1:
            _report_failure(1, text, report.summary(error))


def _report_failure(code: int, text: str, reason: str) -> None:
    """Reports to the launcher, then to the other ranks, that this rank will end with `code`, which is not 0.

    Does not wait for them. `text` is for the user, `reason` is one line for the other ranks.
    """
    global _reported
    _reported = True
    report.send(report.FAILED, text, code, _held_by())
    _abort(reason, code)


def report_unshown(error: BaseException) -> None:
    """Reports an uncaught error that the starter of the job will show, not this rank.

    Does not return if this rank fails only because another one did.
    """
    if layout().size > 1 and report.is_consequence(error):
        report.send(report.LOST, "", PEER_LOST_EXIT_CODE)
        _leave()
    elif layout().size > 1:
        _report_failure(1, "", report.summary(error))


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None, text: str) -> None:
    global _showing
    show = _first if _showing else _previous  # a hook that was set later may call `_hook` in turn
    if show is sys.__excepthook__:
        print(text, end="", file=sys.stderr, flush=True)
        return
    before, _showing = _showing, True
    try:  # a user-defined hook
        show(kind, error, trace)
    finally:
        _showing = before


def _stderr_is_shown() -> bool:
    """Whether the stderr of ranks other than 0 is shown."""
    return flag("TNT_OUTPUT_ON_ALL_DEVICES") or flag("TNT_LOG_ON_ALL_DEVICES")


def _leave() -> None:
    """Ends this process without an orderly shutdown: threads of the framework may still wait for the lost rank."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(_leave_job())


def _still_runs() -> bool:
    """Whether the program continues after this error. When it ends, no frame of the script is left on the stack."""
    if _is_over or _is_interactive() or threading.get_ident() != threading.main_thread().ident:
        return True
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return _is_script(frame)


def _is_interactive() -> bool:
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _is_script(frame: FrameType) -> bool:
    """Whether it is the frame of the script, or the one in which `python -m` runs a module."""
    where = (frame.f_globals.get("__name__"), frame.f_code.co_name)
    return where in (("__main__", "<module>"), ("runpy", "_run_module_as_main"))


def _over() -> None:
    """Reports an error that another hook has shown. Runs when the script has ended, before Python waits for threads.

    The code of a SystemExit that `sys.exit` did not raise is not known here.
    """
    global _is_over
    if os.getpid() != _process:
        return
    error = None if _reported or _is_interactive() else _final_error()
    _is_over = True
    if error is None:
        if not _reported and _held_by():
            _thread.start_new_thread(_say_held, ())
        return
    text = report.text_of(error, error.__traceback__)
    if not report.is_consequence(error):
        _report_failure(1, text, report.summary(error))
    elif report.send(report.LOST, text, PEER_LOST_EXIT_CODE) or layout().starter:
        _leave()


def _final_error() -> BaseException | None:
    """The error that left the script uncaught. Errors that never passed the script's frame do not count."""
    error = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    trace = error.__traceback__ if isinstance(error, BaseException) else None
    return error if trace is not None and _is_script(trace.tb_frame) else None


def _say_held() -> None:
    time.sleep(SAY_HELD_AFTER)
    if held := _held_by():
        message = f"its script has ended, but it still runs {held}"
        is_shown_here = layout().rank == 0 or _stderr_is_shown()  # then the launcher does not show it
        if not report.send(report.NOTE, message) or is_shown_here:
            print(f"tarantella: rank {layout().rank}: {message}", file=sys.stderr, flush=True)


def _thread_hook(args: threading.ExceptHookArgs) -> None:
    _previous_of_threads(args)
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "?"
    text = report.place(args.exc_traceback) + report.summary(args.exc_value)
    report.send(report.NOTE, f"exception in thread {name!r}: {text}")


class _Exit(SystemExit):
    """A SystemExit that reports a failure when the interpreter reads its `code` to end the process."""

    @property
    def code(self) -> Any:
        code = _code.__get__(self)
        if sys._getframe().f_back is None:  # no Python code is running any more
            number = code & 0xFF if isinstance(code, int) else 1
            text = "" if isinstance(code, int) else f"{code}\n"
            if number:
                _report_failure(number, text, text.strip() or f"exit code {number}")
        return code

    @code.setter
    def code(self, value: Any) -> None:
        _code.__set__(self, value)


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def _reporting(leave: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `leave`, which raises SystemExit, so that an end of this process with a code other than 0 is reported."""

    @functools.wraps(leave)
    def exit_(*args: Any, **options: Any) -> Any:
        try:
            leave(*args, **options)
        except SystemExit as end:
            code = end.code
            here = os.getpid() == _process and threading.current_thread() is threading.main_thread()
            if not here or code is None or code == 0:
                raise
        raise _Exit(code)

    return exit_


def _held_by() -> str:
    """The threads and child processes that Python waits for before it exits."""
    main = threading.main_thread()
    held = [f"thread {each.name!r}" for each in threading.enumerate() if each is not main and not each.daemon]
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import active_children

        held += [f"process {each.name!r}" for each in active_children() if not each.daemon]
    return abbreviated(held)
