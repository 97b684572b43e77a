"""Where snapshots are kept: in memory of each host's launcher, or in a file. They are written in another thread.

A snapshot is an .npz file: arrays by name, and under `_TEXT` a JSON text, which has the names of the arrays, too. Its
checksums tell a whole one from one whose writer was killed.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import _exchange
from ..._job import log, report, runtime
from ..callbacks import Snapshot, placement

_TEXT = "snapshot.json"
_NAME = "snapshot.npz"
_FORMAT = 2
# In memory, a whole one ends with the mark and its number: src/launch/ranks/snapshot_memory.h
_MARK, _NUMBER = b"TNTSNAP1", 8


class Content(NamedTuple):
    """The content of a snapshot."""

    text: dict[str, Any]  # as JSON has it
    arrays: Mapping[str, NDArray[Any]]


class Memory:
    """Two files in memory, which the ranks of a host inherit from the launcher. The older one is overwritten."""

    def __init__(self, paths: list[str]) -> None:
        self._paths, self._next = paths, 0
        self.is_written_here = runtime.get_local_rank() == 0  # one rank of each host writes

    @classmethod
    def inherited(cls) -> Memory | None:
        """The files that the launcher has made, None without a launcher."""
        paths = [f"/proc/self/fd/{each}" for each in os.environ.get("TNT_SNAPSHOT_FDS", "").split(",") if each]
        are_ours = [os.path.lexists(path) and "tarantella-snapshot" in os.readlink(path) for path in paths]
        return cls(paths) if paths and all(are_ours) else None

    def __str__(self) -> str:
        return "the launcher's memory"

    def write(self, content: Content) -> None:
        """Replaces the older of the two."""
        with open(self._paths[self._next], "wb") as file:
            _write(file, content)
            file.write(_MARK + int(content.text["sequence"]).to_bytes(_NUMBER, "little"))
        self._next = 1 - self._next

    def read(self) -> bytes | None:
        """The newer of those that are whole, None without one. The other is overwritten next."""
        found = [Path(path).read_bytes() for path in self._paths]
        numbers = [_number_at_end(raw) for raw in found]
        newest = int(numbers[1] > numbers[0])
        self._next = 1 - newest
        return None if numbers[newest] == 0 else found[newest]


class Folder:
    """A file in a folder, replaced as a whole."""

    def __init__(self, folder: str) -> None:
        self._folder, self._path = folder, os.path.join(folder, _NAME)
        self.is_written_here = runtime.is_master_rank()

    def __str__(self) -> str:
        return f"the folder {self._folder!r}"

    def write(self, content: Content) -> None:
        """Replaces the file. Raises OSError if that fails; then the earlier one is still there."""
        part = f"{self._path}.part"
        try:
            with open(part, "wb") as file:
                _write(file, content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(part)
            raise

    def read(self) -> bytes | None:
        """The bytes of the file, None without one. Makes the folder. Raises ValueError for no snapshot, and OSError."""
        os.makedirs(self._folder, exist_ok=True)
        if not os.access(self._folder, os.W_OK):
            raise PermissionError("it cannot be written")
        if not os.path.exists(self._path):
            return None
        raw = Path(self._path).read_bytes()
        parse(raw)
        return raw


def store_of(snapshot: Snapshot) -> Any:
    """Where a fit keeps its snapshots; None, with a WARNING, where there is no such place. Collective."""
    if snapshot.folder is not None:
        placement.check_shared(snapshot.folder, "Snapshot")
        return Folder(snapshot.folder)
    memory = Memory.inherited()
    if memory is None:
        log.warn_once("Snapshot saves nothing: pass folder=…, or start with tarantella --max-restarts")
    return memory


class Snapshots:
    """The snapshots of this process: their store, and the one that was found there at the start."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.found = _from_master(store)
        self.sequence = 0 if self.found is None else self.found.text["sequence"]
        self.completed: dict[str, Any] = {} if self.found is None else self.found.text["completed"]  # by number
        self.numbers = itertools.count()  # of the fits in the script: another attempt begins the same ones
        self._thread = ThreadPoolExecutor(1, "tarantella-snapshot")
        self._writing: Future[None] | None = None

    @classmethod
    def of(cls, store: Any) -> Snapshots:
        """Those in this store: the same object for each fit. Collective. Raises ValueError as `_from_master`."""
        if str(store) not in _by_store:
            _by_store[str(store)] = cls(store)
        return _by_store[str(store)]

    def write(self, content: Content) -> None:
        """Writes a snapshot in another thread, after the one before, on the ranks that do."""
        self.wait()
        self.sequence += 1
        if self.store.is_written_here:
            content.text["sequence"] = self.sequence
            self._writing = self._thread.submit(_write_to, self.store, content)

    def wait(self) -> bool:
        """Blocks until the latest snapshot is written. Returns False, with a WARNING, if that failed."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        except OSError as error:
            log.warn_once(
                f"Snapshot: cannot write to {self.store}, so a restart would resume from an earlier snapshot: {error}"
            )
            return False
        return True


def _write_to(store: Any, content: Content) -> None:
    store.write(content)
    report.send(report.PROGRESS, "")


_by_store: dict[str, Snapshots] = {}


def _from_master(store: Any) -> Content | None:
    """The snapshot that the master reads, on all ranks. Collective. Raises ValueError on all if it is not whole."""
    raw, error = None, ""
    if runtime.is_master_rank():
        try:
            raw = store.read()
        except (OSError, ValueError) as unreadable:
            error = f"Snapshot: {store} cannot be used: {unreadable}"
    error = _exchange.gather_bytes(error.encode())[0].decode()
    if error:
        raise ValueError(error)
    found = _exchange.gather_bytes(raw or b"")[0]  # the other ranks have none
    return parse(found) if found else None


def parse(raw: bytes) -> Content:
    """The content of a whole snapshot. Raises ValueError for other bytes."""
    with contextlib.suppress(OSError, EOFError, KeyError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error):
        with zipfile.ZipFile(io.BytesIO(raw)) as parts:
            is_intact = parts.testzip() is None
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if is_intact}
        text = json.loads(arrays.pop(_TEXT).tobytes())
        if text["format"] == _FORMAT and text["arrays"] == sorted(arrays):
            return Content(text, arrays)
    raise ValueError("it is not a whole snapshot of this version; remove it to train from the beginning")


def _write(file: Any, content: Content) -> None:
    whole = json.dumps({**content.text, "format": _FORMAT, "arrays": sorted(content.arrays)})
    arrays: dict[str, Any] = {_TEXT: np.frombuffer(whole.encode(), np.uint8), **content.arrays}
    np.savez(file, **arrays)


def _number_at_end(raw: bytes) -> int:
    """The number of the snapshot in these bytes of memory, 0 if it is not whole."""
    mark, number = raw[-_NUMBER - len(_MARK) : -_NUMBER], raw[-_NUMBER:]
    return int.from_bytes(number, "little") if mark == _MARK else 0
