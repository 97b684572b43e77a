"""How an error ends a rank: its user reads where and why, once; its launcher and the other ranks learn of it at once.

Python ends a process only after its threads and children have ended. A rank that fails does not keep the others
waiting for that: `sys.excepthook`, and `sys.exit` with a code other than 0, tell them as soon as the script is over.
"""

from __future__ import annotations

import _sitebuiltins
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from . import _report, _tracebacks
from ._environment import flag, layout

# The launcher reads from it that this rank fell only because another one did.
PEER_LOST_EXIT_CODE = 86

_previous = sys.excepthook
_previous_of_threads = threading.excepthook
_sys_exit = sys.exit
_process = os.getpid()
_code: Any = vars(SystemExit)["code"]


def install() -> None:
    """Puts our hooks before those that are set now. Idempotent."""
    global _previous, _previous_of_threads
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


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    lost = _tracebacks.is_consequence(error)
    text = _tracebacks.text_of(kind, error, trace)
    if trace is not None and _still_runs(trace):  # somebody prints an error that ends nothing
        _print(kind, error, trace, text)
    elif lost and layout().size > 1:
        # Shown by the launcher, unless it has the error of the rank that was lost.
        shown = flag("TNT_OUTPUT_ON_ALL_DEVICES") or flag("TNT_LOG_ON_ALL_DEVICES")
        if not _report.send(_report.LOST, text, PEER_LOST_EXIT_CODE) or shown:
            _print(kind, error, trace, text)
        _leave()
    else:
        _print(kind, error, trace, text)
        if layout().size > 1:
            tell(1, text, _tracebacks.summary(kind, error))


def tell(code: int, text: str, reason: str) -> None:
    """Tells the launcher, then the other ranks, that this rank is about to end with a code other than 0. Does not wait
    for them. `text` is what the user should read, `reason` one line for the other ranks."""
    from . import _runtime

    _report.send(_report.FAILED, text, code, _held_by())
    _runtime.abort(reason)


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None, text: str) -> None:
    if _previous is sys.__excepthook__:
        print(text, end="", file=sys.stderr, flush=True)
    else:  # the user's own way to show errors
        _previous(kind, error, trace)


def _leave() -> None:
    """Ends this process. Threads of the framework may still wait for the lost rank: no orderly shutdown from here."""
    from . import _runtime

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _runtime.close()
    os._exit(PEER_LOST_EXIT_CODE)


def _still_runs(trace: TracebackType) -> bool:
    """Whether the code that let the error pass last is under way: the interpreter calls its hook when it is not."""
    frame = sys._getframe()
    while frame is not None:
        if frame is trace.tb_frame:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _thread_hook(args: threading.ExceptHookArgs) -> None:
    _previous_of_threads(args)
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "?"
    said = _tracebacks.place(traceback.extract_tb(args.exc_traceback))
    said += _tracebacks.summary(args.exc_type, args.exc_value)
    _report.send(_report.NOTE, f"exception in thread {name!r}: {said}")


class _Exit(SystemExit):
    """A SystemExit whose `code` the interpreter reads, and nobody else does, when it ends the process."""

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
    """`leave`, which raises SystemExit, as one that is noticed where it ends this process with a code other than 0."""

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
    """The threads and child processes that Python would wait for."""
    main = threading.main_thread()
    held = [f"thread {each.name!r}" for each in threading.enumerate() if each is not main and not each.daemon]
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import active_children

        held += [f"process {each.name!r}" for each in active_children() if not each.daemon]
    return ", ".join(held[:3]) + (f" and {len(held) - 3} more" if len(held) > 3 else "")
