"""Handlers of signals run once if launcher and ranks get a signal at once, as from systemd or scancel -f."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

# The signals that the launcher forwards to each rank, except Ctrl-C, which a user may press twice.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Seconds in which the one signal comes by both ways; the launcher forwards at once.
_SAME = 1.0

_set: Any = signal.signal
_get: Any = signal.getsignal


class _Once:
    """Calls a handler unless the same signal came a moment ago."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self._last = -_SAME

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        now = time.monotonic()
        again, self._last = now - self._last < _SAME, now
        return None if again else self.handler(number, frame)


def install() -> None:
    """For handlers that are set, and those that will be."""
    signal.signal = _signal  # type: ignore[assignment]
    signal.getsignal = _getsignal  # type: ignore[assignment]
    if threading.current_thread() is threading.main_thread():
        for number in _FORWARDED:
            _signal(number, _get(number))


def _signal(number: Any, handler: Any) -> Any:
    if number in _FORWARDED and callable(handler) and not isinstance(handler, _Once):
        handler = _Once(handler)
    return _of_user(_set(number, handler))


def _getsignal(number: Any) -> Any:
    return _of_user(_get(number))


def _of_user(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Once) else handler
