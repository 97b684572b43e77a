"""Stops training after the same step on all ranks: on a signal to any of them, or at a time limit."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._job import runtime

# What EX_TEMPFAIL of sysexits.h says: try again later. The launcher does not restart a job that ends with it.
EXIT_CODE = 75
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_PERIOD = 0.5  # seconds from one agreement of the ranks to the next


class Preemption:
    """Lets the ranks agree from time to time whether to stop; other steps cost a comparison."""

    def __init__(self, time_limit: float | None) -> None:
        self._signalled = False
        self._end = None if time_limit is None else time.monotonic() + time_limit
        self._agreed: tuple[int, float] | None = None  # the step and time of the latest agreement
        self._next = 0  # the step of the next one

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Until then, signals that would end this process only ask for it. A handler of the user's stays."""
        is_main = threading.current_thread() is threading.main_thread()
        free = [each for each in _SIGNALS if is_main and signal.getsignal(each) is signal.SIG_DFL]
        for each in free:
            signal.signal(each, self._note)
        try:
            yield
        finally:
            for each in free:
                signal.signal(each, signal.SIG_DFL)

    def _note(self, number: int, frame: Any) -> None:
        self._signalled = True

    def agree(self, step: int, is_last: bool = False) -> bool:
        """Whether to stop after `step` steps. Collective where it is due, after the same steps on all ranks.

        A time limit stops no process before its first step: what is queued again must get on.
        """
        if step < self._next and not is_last:
            return False
        now = time.monotonic()
        before, since = self._agreed or (step, now)
        is_over = self._end is not None and now >= self._end and self._agreed is not None
        local = np.array([self._signalled or is_over, (now - since) / max(1, step - before)])
        if runtime.get_size() > 1:
            local = runtime.context().allgather(local, "whether to stop").max(axis=0)
        is_first, self._agreed = self._agreed is None, (step, now)
        self._next = step + (1 if is_first else max(1, int(_PERIOD / max(local[1], 1e-6))))
        return bool(local[0])
