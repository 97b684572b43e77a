"""How an uncaught error ends a rank: the user sees it once; the launcher and the other ranks are told at once.

Python ends a process only after its threads and children have ended. The other ranks do not wait for that:
`sys.excepthook`, and `sys.exit` with a code other than 0, tell them as soon as the script is over. `_over`, which runs
before Python waits for threads, reports the errors that these two have missed.
"""

from __future__ import annotations

import _sitebuiltins
import _thread
import functools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from . import report, tracebacks
from .environment import flag, layout

# Tells the launcher that this rank failed only because another one did.
PEER_LOST_EXIT_CODE = 86
# The same for other starters: the least code, because srun ends with the greatest.
PEER_LOST_WITHOUT_LAUNCHER = 1
# Seconds that threads and children may run on after the script before a line says so.
SAY_HELD_AFTER = 6.0

_first = _previous = sys.excepthook
_showing = False  # an error is being shown by `_previous`
_told = False  # the others know that this rank ends with a code other than 0
_is_over = False
_arranged = False
_previous_of_threads = threading.excepthook
_sys_exit = sys.exit
_process = os.getpid()
_code: Any = vars(SystemExit)["code"]
_abort: Callable[[str, int], None]  # set by `install`
_leave_job: Callable[[], int]


def install(abort: Callable[[str, int], None], leave: Callable[[], int]) -> None:
    """Installs our hooks in front of the current ones. Idempotent.

    `abort` tells the other ranks that this one fails, why, and with which exit code; `leave` leaves a job that has lost
    another rank, and returns the exit code.
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
        sys.exit = _telling(sys.exit)
        _sitebuiltins.Quitter.__call__ = _telling(_sitebuiltins.Quitter.__call__)  # type: ignore[method-assign]
    register = getattr(threading, "_register_atexit", None)
    if not _arranged and register is not None:
        import concurrent.futures.thread  # noqa: F401 - registers such a function first; they run in reverse order

        register(_over)
        _arranged = True


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = tracebacks.text_of(kind, error, trace)
    if _showing or _still_runs():  # a program shows an error that does not end it
        _print(kind, error, trace, text)
    elif layout().size > 1 and tracebacks.is_consequence(error):
        # Shown by the launcher, unless it has the error of the rank that was lost.
        if not report.send(report.LOST, text, PEER_LOST_EXIT_CODE) or _stderr_is_shown():
            _print(kind, error, trace, text)
        _leave()
    else:
        _print(kind, error, trace, text)
        if layout().size > 1:
            tell(1, text, tracebacks.summary(kind, error))


def tell(code: int, text: str, reason: str) -> None:
    """Tells the launcher, then the other ranks, that this rank is about to end with a code other than 0. Does not wait
    for them. `text` is for the user, `reason` is one line for the other ranks."""
    global _told
    _told = True
    report.send(report.FAILED, text, code, _held_by())
    _abort(reason, code)


def tell_unshown(error: BaseException) -> None:
    """Tells the launcher and the other ranks of an uncaught error that this rank shows nobody: the starter of the job
    will. Does not return if this rank fails only because another one did."""
    if layout().size > 1 and tracebacks.is_consequence(error):
        report.send(report.LOST, "", PEER_LOST_EXIT_CODE)
        _leave()
    elif layout().size > 1:
        tell(1, "", tracebacks.summary(type(error), error))


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None, text: str) -> None:
    global _showing
    show = _first if _showing else _previous  # a hook that was set later may call ours in turn
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
    """Whether the program goes on after this error: if it ends, no frame of the script is left on the stack."""
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
    """Runs when the script has ended and Python is about to wait for threads: reports an error that another hook has
    shown. The code of a SystemExit that `sys.exit` did not raise is not known here."""
    global _is_over
    if os.getpid() != _process:
        return
    error = None if _told or _is_interactive() else _final_error()
    _is_over = True
    if error is None:
        if not _told and _held_by():
            _thread.start_new_thread(_say_held, ())
        return
    text = tracebacks.text_of(type(error), error, error.__traceback__)
    if not tracebacks.is_consequence(error):
        tell(1, text, tracebacks.summary(type(error), error))
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
        said = f"its script has ended, but it still runs {held}"
        if (
            not report.send(report.NOTE, said) or layout().rank == 0 or _stderr_is_shown()
        ):  # then the launcher is silent
            print(f"tarantella: rank {layout().rank}: {said}", file=sys.stderr, flush=True)


def _thread_hook(args: threading.ExceptHookArgs) -> None:
    _previous_of_threads(args)
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "?"
    said = tracebacks.place(traceback.extract_tb(args.exc_traceback))
    said += tracebacks.summary(args.exc_type, args.exc_value)
    report.send(report.NOTE, f"exception in thread {name!r}: {said}")


class _Exit(SystemExit):
    """A SystemExit that notices when the interpreter reads its `code` to end the process."""

    @property
    def code(self) -> Any:
        code = _code.__get__(self)
        if sys._getframe().f_back is None:  # no Python code is running any more
            number = code & 0xFF if isinstance(code, int) else 1
            text = "" if isinstance(code, int) else f"{code}\n"
            if number:
                tell(number, text, text.strip() or f"exit code {number}")
        return code

    @code.setter
    def code(self, value: Any) -> None:
        _code.__set__(self, value)


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def _telling(leave: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `leave`, which raises SystemExit, so that an end of this process with a code other than 0 is noticed."""

    @functools.wraps(leave)
    def exit_(*args: Any, **options: Any) -> Any:
        try:
            leave(*args, **options)
        except SystemExit as asked:
            code = asked.code
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
    return ", ".join(held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
