"""The Python stacks of all ranks, shown where ranks have waited for one another for longer than TNT_STALL_TIMEOUT."""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core import Context

_SIGNAL = signal.SIGRTMAX - 7  # nobody is known to use it


def show(context: Context) -> None:
    """Prepares it. faulthandler needs no lock of the interpreter, which a rank that is stuck may hold."""
    file = os.memfd_create("tarantella-stacks")
    faulthandler.register(_SIGNAL, file=file, all_threads=True)
    context.show_stacks(_SIGNAL, file)
