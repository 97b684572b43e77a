"""How an error ends a rank: users see one line where the cause is theirs to mend, no traceback of ours."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

# The launcher reads from it that this rank fell only because another one did.
PEER_LOST_EXIT_CODE = 86

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMEWORKS = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("keras", "tensorflow"))
_previous = sys.excepthook


def install() -> None:
    """Puts our hook before the one that is set now. Idempotent."""
    global _previous
    if sys.excepthook is not _hook:
        _previous = sys.excepthook
        sys.excepthook = _hook


def one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str | None:
    """`script.py:12: ValueError: what is wrong`, or None where a traceback tells more."""
    from ._errors import Error

    frames = traceback.extract_tb(trace)
    inside = [_ours(frame.filename) for frame in frames]
    if not isinstance(error, Error) and not (inside and inside[-1]):
        return None
    user = (
        [frame for frame in frames[: inside.index(True)] if not _framework(frame.filename)] if any(inside) else frames
    )
    where = f"{os.path.basename(user[-1].filename)}:{user[-1].lineno}: " if user else ""
    name = f"tarantella.{kind.__name__}" if isinstance(error, Error) else kind.__name__
    return f"{where}{name}: {error}"


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    debugging = os.environ.get("TNT_LOG_LEVEL", "").upper() == "DEBUG"
    line = None if debugging else one_line(kind, error, trace)
    if line is None:
        _previous(kind, error, trace)
        return
    print(line, file=sys.stderr, flush=True)
    from ._errors import PeerLostError

    if isinstance(error, PeerLostError):
        # Threads of the framework may still wait for the lost rank: no orderly shutdown from here.
        from . import _runtime

        sys.stdout.flush()
        _runtime.close()
        os._exit(PEER_LOST_EXIT_CODE)


def _ours(path: str) -> bool:
    return os.path.abspath(path).startswith(_PACKAGE)


def _framework(path: str) -> bool:
    return any(part in path for part in _FRAMEWORKS)
