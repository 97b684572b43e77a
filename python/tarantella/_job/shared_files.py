"""Files that the master writes and other machines read."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from . import log
from .environment import layout

SEEN_WITHIN = 10.0  # seconds; a file server may show a new file late

_not_shared: set[str] = set()


def await_file(path: Any) -> None:
    """Blocks until this machine sees what the master has written to `path`, for at most `SEEN_WITHIN` seconds.

    Returns at once on the master's machine, and for addresses such as `gs://…`. A WARNING names a folder that this
    machine does not share; it is not waited for again.
    """
    place = layout()
    if place.rank < place.nodes[0] or not isinstance(path, (str, os.PathLike)) or "://" in os.fspath(path):
        return
    target = os.path.abspath(os.fspath(path))
    folder = os.path.dirname(target)
    if folder in _not_shared:
        return
    end = time.monotonic() + SEEN_WITHIN
    while not os.path.lexists(target):
        if time.monotonic() > end:
            _not_shared.add(folder)
            log.warn_once(
                f"rank {place.rank} does not see {target!r}, which rank 0 has written on another machine; use a folder "
                "that all machines share"
            )
            return
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.listdir(folder)  # asks the file server again
