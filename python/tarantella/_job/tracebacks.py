"""The text of an error: the lines of user code in full, those of frameworks counted."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from types import TracebackType

from .log import abbreviated

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NAMES = ("keras", "tensorflow", "jax", "torch")
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
# What TensorFlow writes behind the error of a generator: nodes of its own.
_NODES = re.compile(r"\n\s*\[\[\{\{node [^\n]*PyFunc[^\n]*\n(?:\s*\[\[[^\n]*\n)*\Z")
# A frame of a traceback: its line and the lines below it that are indented further.
_FRAME = re.compile(r'^  File "([^"\n]+)", line \d+.*\n(?:    .*\n)*\n?', re.MULTILINE)


def text_of(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """The text shown for an error that ends a rank: one line for errors of Tarantella's calls, else a traceback of
    the lines of user code. With TNT_LOG_LEVEL=DEBUG, Python's full traceback."""
    if os.environ.get("TNT_LOG_LEVEL", "").strip().upper() == "DEBUG":
        return "".join(traceback.format_exception(kind, error, trace))
    line = one_line(kind, error, trace)
    return shortened(kind, error, trace) if line is None else f"{line}\n"


def one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str | None:
    """`script.py:12: ValueError: message`, or None where a traceback tells more."""
    from .errors import Error

    owners = [_owner(frame.filename) for frame in traceback.extract_tb(trace)]
    ours = owners[-1:] == ["tarantella"] and "" not in owners[owners.index("tarantella") :]
    ours = ours and not _FRAME.search(str(error))
    if not isinstance(error, Error) and not ours:  # also if Tarantella or a framework called user code
        return None
    return place(traceback.extract_tb(trace)) + summary(kind, error)


def place(frames: traceback.StackSummary) -> str:
    """`script.py:12: ` for the innermost line of user code; empty if there is none."""
    user = [frame for frame in frames if _owner(frame.filename) == ""]
    return f"{os.path.basename(user[-1].filename)}:{user[-1].lineno}: " if user else ""


def summary(kind: type[BaseException], error: BaseException) -> str:
    """`ValueError: message`, followed by the notes of the error."""
    from .errors import Error

    name = f"tarantella.{kind.__name__}" if isinstance(error, Error) else kind.__name__
    said = "; ".join(filter(None, [str(error), *(str(note) for note in getattr(error, "__notes__", []))]))
    return f"{name}: {said}" if said else name


def is_consequence(error: BaseException | None) -> bool:
    """Whether this rank fails only because another one was lost: by that error, or while handling it."""
    from .errors import PeerLostError

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PeerLostError):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def shortened(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """Python's traceback without the lines of frameworks, if it has lines of user code. Also shortens tracebacks inside
    the messages of TensorFlow."""
    text = "".join(traceback.format_exception(kind, error, trace))
    if not any(_owner(frame[1]) == "" for frame in _FRAME.finditer(text)):
        return text
    pieces: list[str] = []
    others: list[str] = []
    end = 0
    for frame in _FRAME.finditer(text):
        owner = _owner(frame[1])
        if others and (owner == "" or frame.start() > end):
            pieces.append(_left_out(others))
            others = []
        pieces.append(text[end : frame.start()])
        if owner:
            others.append(owner)
        else:
            pieces.append(frame[0])
        end = frame.end()
    if others:
        pieces.append(_left_out(others))
    return "".join(pieces) + _NODES.sub("\n", text[end:])


def _left_out(owners: list[str]) -> str:
    return f"  [{len(owners)} frame{'s' if len(owners) > 1 else ''} of {abbreviated(sorted(set(owners)))}]\n"


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
