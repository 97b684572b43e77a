"""Running a command of this package so that a signal ends what it has started and removes its files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable


def run(main: Callable[[], int]) -> int:
    """Calls main and returns its exit code. On a signal main is unwound, and this process ends by the same signal."""
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
