"""What a rank reports: errors, to the user and the launcher; what it runs, to ranks that wait for it.

Tracebacks for the user only count the frames of frameworks. Records go to the launcher over an inherited pipe; their
format is in src/launch/output/reports.h.
"""

from __future__ import annotations

import _thread
import faulthandler
import os
import re
import select
import signal
import stat
import struct
import sys
import sysconfig
import threading
import traceback
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from .environment import layout
from .log import abbreviated

if TYPE_CHECKING:
    from .._core import Context

# Kinds of records. The core sends 4 and 5.
MORE, FAILED, LOST, NOTE = range(4)
PROGRESS = 6  # a snapshot or an epoch was completed

_HEAD = struct.Struct("=iiii")
_PIECE = select.PIPE_BUF - _HEAD.size
_LONGEST = 32 * 1024
_process = os.getpid()
_sending = threading.Lock()

_SIGNAL = signal.SIGRTMAX - 7  # not used by any known program
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NAMES = ("keras", "tensorflow", "jax", "torch")
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
# The nodes that TensorFlow appends to the error of a generator.
_NODES = re.compile(r"\n\s*\[\[\{\{node [^\n]*PyFunc[^\n]*\n(?:\s*\[\[[^\n]*\n)*\Z")
# A frame of a traceback: its line and the lines below it that are indented further.
_FRAME = re.compile(r'^  File "([^"\n]+)", line \d+.*\n(?:    .*\n)*\n?', re.MULTILINE)
_LEFT_OUT = re.compile(r"(?:^\0.*\n)+", re.MULTILINE)  # frames, each replaced by its owner


def _open() -> int:
    """The descriptor of the pipe; -1 if the number belongs to another file in this process."""
    number, _, inode = os.environ.get("TNT_REPORT", "").partition(":")
    try:
        descriptor = int(number)
        status = os.fstat(descriptor)
        if not stat.S_ISFIFO(status.st_mode) or status.st_ino != int(inode):
            return -1
        os.set_inheritable(descriptor, False)
    except (OSError, ValueError):
        return -1
    return descriptor


_descriptor = _open()


def send(kind: int, text: str, code: int = 0, held_by: str = "") -> bool:
    """Sends a record to the launcher. Thread-safe; blocks only while the launcher does not read.

    Returns False without a launcher, in a forked child, and if another thread has been sending for 5 seconds.
    """
    if _descriptor < 0 or os.getpid() != _process:
        return False
    if len(text) > _LONGEST:
        text = text[: _LONGEST // 2] + "\n…\n" + text[-_LONGEST // 2 :]
    data = (text.replace("\0", "?") + (f"\0{held_by}" if held_by else "")).encode("utf-8", "replace")
    rank = layout().rank
    if not _sending.acquire(timeout=5):  # the pieces of two texts must not interleave
        return False
    try:
        while len(data) > _PIECE:
            os.write(_descriptor, _HEAD.pack(rank, MORE, 0, _PIECE) + data[:_PIECE])
            data = data[_PIECE:]
        os.write(_descriptor, _HEAD.pack(rank, kind, code, len(data)) + data)
    except OSError:  # the launcher has gone
        return False
    finally:
        _sending.release()
    return True


def text_of(error: BaseException, trace: TracebackType | None) -> str:
    """The text shown for an error that ends a rank: one line for errors of Tarantella's calls, else a traceback of
    the lines of user code. With TNT_LOG_LEVEL=DEBUG, Python's full traceback."""
    if os.environ.get("TNT_LOG_LEVEL", "").strip().upper() == "DEBUG":
        return "".join(traceback.format_exception(type(error), error, trace))
    line = one_line(error, trace)
    return shortened(error, trace) if line is None else f"{line}\n"


def one_line(error: BaseException, trace: TracebackType | None) -> str | None:
    """`script.py:12: ValueError: message`; None if the user needs the traceback."""
    from .errors import Error

    owners = [_owner(frame.filename) for frame in traceback.extract_tb(trace)]
    ours = owners[-1:] == ["tarantella"] and "" not in owners[owners.index("tarantella") :]
    ours = ours and not _FRAME.search(str(error))
    if not isinstance(error, Error) and not ours:  # also if Tarantella or a framework called user code
        return None
    return place(trace) + summary(error)


def place(trace: TracebackType | None) -> str:
    """`script.py:12: ` for the innermost line of user code; empty if there is none."""
    user = [frame for frame in traceback.extract_tb(trace) if _owner(frame.filename) == ""]
    return f"{os.path.basename(user[-1].filename)}:{user[-1].lineno}: " if user else ""


def summary(error: BaseException) -> str:
    """`ValueError: message`, followed by the notes of the error."""
    from .errors import Error

    name = f"tarantella.{type(error).__name__}" if isinstance(error, Error) else type(error).__name__
    text = "; ".join(filter(None, [str(error), *map(str, getattr(error, "__notes__", []))]))
    return f"{name}: {text}" if text else name


def is_consequence(error: BaseException | None) -> bool:
    """Whether the error, or one that it was raised from or during, is a PeerLostError: another rank failed first."""
    from .errors import PeerLostError

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PeerLostError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def shortened(error: BaseException, trace: TracebackType | None) -> str:
    """Python's traceback without the lines of frameworks, if it has lines of user code. Also shortens tracebacks inside
    the messages of TensorFlow."""
    text = "".join(traceback.format_exception(type(error), error, trace))
    if not any(_owner(frame[1]) == "" for frame in _FRAME.finditer(text)):
        return text
    marked = _FRAME.sub(lambda frame: f"\0{owner}\n" if (owner := _owner(frame[1])) else frame[0], text)
    return _NODES.sub("\n", _LEFT_OUT.sub(_left_out, marked))


def _left_out(frames: re.Match[str]) -> str:
    owners = frames[0].replace("\0", "").splitlines()
    return f"  [{len(owners)} frame{'s' if len(owners) > 1 else ''} of {abbreviated(sorted(set(owners)))}]\n"


def answer(context: Context) -> threading.Event:
    """Starts a thread that tells other ranks which line this rank runs, until `context` is closed.

    The returned event is set when the thread is done; wait for it after closing.
    """
    ended = threading.Event()
    asked = [context]

    def run() -> None:
        main = threading.main_thread().ident
        context = asked.pop()
        try:
            while context.await_location_query():
                context.report_location(current_line(sys._current_frames().get(main or 0)))
        finally:
            del context  # drop the reference before the event
            ended.set()

    # Not a threading.Thread: the interpreter joins those that are not daemons before it runs exit handlers, and only an
    # exit handler closes the context on which this thread blocks.
    _thread.start_new_thread(run, ())
    return ended


def show_all(context: Context) -> None:
    """Lets the core show the Python stacks of all ranks after a wait of TNT_STALL_TIMEOUT.

    faulthandler works without the lock of the interpreter, which a stuck rank may hold.
    """
    file = os.memfd_create("tarantella-stacks")
    faulthandler.register(_SIGNAL, file=file, all_threads=True)
    context.show_stacks(_SIGNAL, file)


def current_line(frame: FrameType | None) -> str:
    """`train.py:12`: the innermost line of user code on the stack, else the innermost line of all."""
    found = frame
    while frame is not None:
        if not frame.f_code.co_filename.startswith("<") and _owner(frame.f_code.co_filename) == "":
            found = frame
            break
        frame = frame.f_back
    return f"{_relative(found.f_code.co_filename)}:{found.f_lineno}" if found is not None else ""


def _relative(file: str) -> str:
    """The path relative to the script's folder if the file is in or below it, else the path as it is."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = os.path.dirname(os.path.abspath(script)) + os.sep if script else ""
    path = os.path.abspath(file)
    return path[len(folder) :] if folder and path.startswith(folder) else file


def _owner(path: str) -> str:
    """The framework or library that a file belongs to, or "" for user code."""
    path = os.path.abspath(path) if os.path.exists(path) else path
    if path.startswith(_PACKAGE):
        return "tarantella"
    for name in _NAMES:  # where they were imported from: in site-packages, dist-packages or a source tree
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and path.startswith(os.path.dirname(os.path.abspath(file)) + os.sep):
            return name
    if path.startswith(("<__autograph", "<frozen")) or "__autograph_generated_file" in path:
        return "tensorflow" if "autograph" in path else "python"
    for folder in ("site-packages", "dist-packages"):
        _, found, inside = path.partition(f"{os.sep}{folder}{os.sep}")
        if found:
            return inside.split(os.sep)[0].removesuffix(".py")
    return "python" if path.startswith(_LIBRARY) else ""
