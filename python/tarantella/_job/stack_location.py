"""Where this rank's program is, for ranks that wait: its line when they ask, all stacks after TNT_STALL_TIMEOUT."""

from __future__ import annotations

import _thread
import faulthandler
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core import Context

_SIGNAL = signal.SIGRTMAX - 7  # nobody is known to use it
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple(
    os.path.abspath(folder) + os.sep
    for folder in {_PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
)


def answer(context: Context) -> threading.Event:
    """Starts a thread that answers until `context` is closed. The returned event is set when the thread is done; wait
    for it after closing."""
    ended = threading.Event()
    asked = [context]

    def run() -> None:
        main = threading.main_thread().ident
        context = asked.pop()
        try:
            while context.await_location_query():
                context.report_location(place(sys._current_frames().get(main or 0)))
        finally:
            del context  # drop the reference before the event
            ended.set()

    # Not a threading.Thread: the interpreter joins those that are not daemons before it runs exit handlers, and only an
    # exit handler closes the context on which this thread blocks.
    _thread.start_new_thread(run, ())
    return ended


def show_all(context: Context) -> None:
    """Prepares the Python stacks of all ranks, shown where they have waited for longer than TNT_STALL_TIMEOUT.

    faulthandler needs no lock of the interpreter, which a rank that is stuck may hold.
    """
    file = os.memfd_create("tarantella-stacks")
    faulthandler.register(_SIGNAL, file=file, all_threads=True)
    context.show_stacks(_SIGNAL, file)


def place(frame: FrameType | None) -> str:
    """`train.py:12`: the innermost line of user code on the stack, else the innermost line of all."""
    stack = list(_outwards(frame))
    if not stack:
        return ""
    user = (each for each in stack if _is_users(each.f_code.co_filename))
    found = next(user, stack[0])
    return f"{_short(found.f_code.co_filename)}:{found.f_lineno}"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not os.path.abspath(file).startswith(_LIBRARIES)


def _short(file: str) -> str:
    """The path relative to the script's folder if the file is in or below it, else the path as it is."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = os.path.dirname(os.path.abspath(script)) + os.sep if script else ""
    path = os.path.abspath(file)
    return path[len(folder) :] if folder and path.startswith(folder) else file
