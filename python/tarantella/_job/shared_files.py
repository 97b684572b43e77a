"""Files that rank 0 writes and other machines read."""

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
    """Blocks until this machine sees the file that rank 0 has written to `path`, for at most `SEEN_WITHIN` seconds.

    Returns at once on the machine of rank 0, and for addresses such as `gs://…`. Logs a WARNING if the folder is not
    shared; later calls do not wait for it.
    """
    place = layout()
    if place.rank < place.nodes[0] or not isinstance(path, (str, os.PathLike)) or "://" in os.fspath(path):
        return
    target = os.path.abspath(os.fspath(path))
    folder = os.path.dirname(target)
    if folder in _not_shared:
        return
    if not appears(target):
        _not_shared.add(folder)
        log.warn_once(
            f"rank {place.rank} does not see {target!r}, which rank 0 has written on another machine; use a folder "
            "that all machines share"
        )


def appears(path: str) -> bool:
    """Whether this machine sees the file that another one has written. Blocks for at most `SEEN_WITHIN` seconds."""
    end = time.monotonic() + SEEN_WITHIN
    while not os.path.lexists(path):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path))  # asks the file server again
    return True
