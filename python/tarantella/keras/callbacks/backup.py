"""The folder of a BackupAndRestore or Snapshot in a job that may start again on other hosts."""

from __future__ import annotations

import os
import socket

from ... import _exchange
from ..._job import shared_files
from ..._job.environment import integer, layout


def check_shared(folder: str, callback: str) -> None:
    """Raises ValueError on all ranks if a host does not share the folder, where the launcher may start the job again.

    After the loss of the master's host, another host would have to go on from it. Collective; blocks for up to
    `shared_files.SEEN_WITHIN` seconds.
    """
    place = layout()
    if len(place.nodes) == 1 or not integer("TNT_MAX_RESTARTS", 0) or "://" in folder:
        return
    probe = os.path.join(os.path.abspath(folder), f".tarantella-{place.job[:16]}")
    if place.rank == 0:
        os.makedirs(folder, exist_ok=True)
        with open(probe, "w"):
            pass
    _exchange.gather_bytes(b"")  # from here on it is there
    is_missing = place.local_rank == 0 and not shared_files.appears(probe)
    without = _exchange.gather_bytes(socket.gethostname().encode() if is_missing else b"")
    if place.rank == 0:
        os.remove(probe)
    hosts = ", ".join(sorted({each.decode() for each in without if each}))
    if hosts:
        raise ValueError(
            f"{callback}: the folder {folder!r} of rank 0 is not shared with {hosts}, so that a restart after "
            "the loss of a host could not go on from it (--max-restarts); use a folder that all hosts share"
        )
