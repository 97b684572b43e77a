"""Signals: ranks handle a signal once that they get twice; commands of this package clean up when a signal ends them.

systemd and scancel -f, for example, send a signal to the launcher and to the ranks, and the launcher forwards it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

# The signals that the launcher forwards to each rank, except Ctrl-C, which a user may press twice.
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Seconds between both copies of a signal, at most; the launcher forwards at once.
_SAME = 1.0

_set: Any = signal.signal
_get: Any = signal.getsignal


class _Once:
    """Calls a handler unless the same signal has just arrived."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self._last = -_SAME

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        now = time.monotonic()
        again, self._last = now - self._last < _SAME, now
        return None if again else self.handler(number, frame)


def handle_once() -> None:
    """Makes current and later handlers of forwarded signals ignore the second copy of a signal."""
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


def run_until_signal(main: Callable[[], int]) -> int:
    """Calls `main` and returns its exit code. After a signal, unwinds `main` and ends this process by that signal."""

    stopped_by = 0

    def stop(number: int, _: object) -> None:
        nonlocal stopped_by
        stopped_by = number
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        return main()
    except KeyboardInterrupt:
        stopped_by = signal.SIGINT
        return 128 + stopped_by
    finally:
        if stopped_by:
            sys.stdout.flush()
            signal.signal(stopped_by, signal.SIG_DFL)
            os.kill(os.getpid(), stopped_by)
