"""Ends a rank whose job has failed, where no launcher of ours does: a program that computes on would not notice."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core import Context

# Seconds that a rank has to end by itself, or to do what it does on SIGTERM, as under the launcher.
PATIENCE = 5.0


class Ending:
    """Looks at the job once a second, on a thread of its own, until `stop`."""

    def __init__(self, context: Context, rank: int) -> None:
        self._rank = rank
        self._contexts = [context]
        self._over = threading.Event()
        self._has_looked = threading.Event()
        _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """From here on the context is free."""
        self._over.set()
        self._has_looked.wait(10)

    def _watch(self) -> None:
        failure = self._failure()
        self._has_looked.set()
        if failure is None or self._over.wait(PATIENCE):
            return
        print(
            f"tarantella: rank {self._rank} is ended, since its job has failed: {failure}", file=sys.stderr, flush=True
        )
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
        os._exit(128 + signal.SIGTERM)

    def _failure(self) -> str | None:
        """Waits for it; None if `stop` was called before."""
        context, failure = self._contexts.pop(), None
        while failure is None and not self._over.wait(1):
            failure = context.failure()
        return failure
