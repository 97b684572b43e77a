"""The user's key: by it the ranks of a job that another program has started know one another, and no stranger does."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat

BYTES = 32


def named(job: str) -> str:
    """A name for the job that only processes of the same user can make: by the key of `path`, which is made once.

    Raises RuntimeError, with the cure, if the key cannot be read or made, or others can read it.
    """
    return hashlib.blake2s(job.encode(), key=_read(), digest_size=16).hexdigest()


def path() -> str:
    """The file of the key: TNT_KEY_FILE, else tarantella/key in the user's folder for settings."""
    chosen = os.environ.get("TNT_KEY_FILE", "").strip()
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return chosen or os.path.join(folder, "tarantella", "key")


def _read() -> bytes:
    file = path()
    cure = "set TNT_KEY_FILE to a file of yours that all machines of the job see, or whose copies they have"
    try:
        if not os.path.exists(file):
            _make(file)
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode):  # a FIFO would wait for its writer
            raise RuntimeError(f"the key of your jobs, {file!r}, is no regular file; {cure}")
        with open(file, "rb") as opened:
            key = opened.read(BYTES + 1)
    except OSError as error:
        raise RuntimeError(f"cannot read or make the key of your jobs: {error}; {cure}") from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RuntimeError(f"others may read the key of your jobs, {file!r}: chmod 600 it as its owner; or {cure}")
    if len(key) < 16:
        raise RuntimeError(f"the key of your jobs, {file!r}, has {len(key)} bytes, and needs 16 to {BYTES}; remove it")
    return key[:BYTES]


def _make(file: str) -> None:
    """Writes a key in one piece; another rank's stays, if it is the first."""
    folder = os.path.dirname(file) or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial = os.path.join(folder, f".key.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(BYTES))
            os.fsync(descriptor)
        if not os.path.exists(file):
            os.link(partial, file)
    except FileExistsError:
        pass
    finally:
        os.unlink(partial)
