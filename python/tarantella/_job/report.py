"""Reports of a rank to its launcher, over an inherited pipe. The format is in src/launch/output/reports.h."""

from __future__ import annotations

import os
import select
import stat
import struct
import threading

from .environment import layout

# Kinds of records. The core sends 4 and 5.
MORE, FAILED, LOST, NOTE = range(4)
PROGRESS = 6  # a snapshot or an epoch was completed

_HEAD = struct.Struct("=iiii")
_PIECE = select.PIPE_BUF - _HEAD.size
_LONGEST = 32 * 1024
_process = os.getpid()
_sending = threading.Lock()


def _open() -> int:
    """The descriptor of the pipe; -1 if the number belongs to another file in this process."""
    number, _, inode = os.environ.get("TNT_REPORT", "").partition(":")
    try:
        descriptor = int(number)
        status = os.fstat(descriptor)
        if not stat.S_ISFIFO(status.st_mode) or status.st_ino != int(inode):
            return -1
        os.set_inheritable(descriptor, False)
    except (OSError, ValueError):
        return -1
    return descriptor


_descriptor = _open()


def send(kind: int, text: str, code: int = 0, held_by: str = "") -> bool:
    """Sends a record to the launcher. Thread-safe; blocks only while the launcher does not read.

    Returns False without a launcher, in a forked child, and if another thread has been sending for 5 seconds.
    """
    if _descriptor < 0 or os.getpid() != _process:
        return False
    if len(text) > _LONGEST:
        text = text[: _LONGEST // 2] + "\n…\n" + text[-_LONGEST // 2 :]
    data = (text.replace("\0", "?") + (f"\0{held_by}" if held_by else "")).encode("utf-8", "replace")
    rank = layout().rank
    if not _sending.acquire(timeout=5):  # the pieces of two texts must not interleave
        return False
    try:
        while len(data) > _PIECE:
            os.write(_descriptor, _HEAD.pack(rank, MORE, 0, _PIECE) + data[:_PIECE])
            data = data[_PIECE:]
        os.write(_descriptor, _HEAD.pack(rank, kind, code, len(data)) + data)
    except OSError:  # the launcher has gone
        return False
    finally:
        _sending.release()
    return True
