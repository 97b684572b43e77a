"""HDF5 files on a disk that may be full: HDF5 dies by SIGSEGV when it closes a file that it cannot write."""

from __future__ import annotations

import contextlib
import contextvars
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from . import hooks

# HDF5 reads again what it has written in blocks of up to 1 MiB, its metadata, but never a weight that is larger.
_MOST_READ_AGAIN = 2**20

_opened: contextvars.ContextVar[list[_Disk] | None] = contextvars.ContextVar("files of this save", default=None)


class _Disk(io.FileIO):
    """A file in which HDF5 can always write: from the first error on, in memory. `error` is that error."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "w+")
        self.path = path
        self.error: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []  # what the disk did not take, and where it begins

    def __repr__(self) -> str:  # becomes h5py's File.filename
        return self.path

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        left = view
        while left and self.error is None:
            with self._noting_errors():
                left = left[super().write(left) or 0 :]
        if left and len(view) <= _MOST_READ_AGAIN:
            self._kept.append((self.tell(), bytes(left)))
        return len(view)

    def readinto(self, into: Any) -> int:
        view, start = memoryview(into).cast("B"), self.tell()
        view[:] = os.pread(self.fileno(), len(view), start).ljust(len(view), b"\0")
        for place, data in self._kept:
            first, end = max(start, place), min(start + len(view), place + len(data))
            if first < end:
                view[first - start : end - start] = data[first - place : end - place]
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        if self.error is None:
            with self._noting_errors():
                super().truncate(size)
        return self.tell() if size is None else size

    def flush(self) -> None:
        pass

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = OSError(error.errno, error.strerror, self.path)


@contextlib.contextmanager
def raising_errors() -> Iterator[None]:
    """Inside this context, of this thread, files that h5py creates are on disk at its end, or it raises OSError."""
    import h5py

    hooks.hook(h5py.File, "__init__", _creating_on_disk)
    files: list[_Disk] = []
    before = _opened.set(files)
    failed = None
    try:
        yield
    except Exception as error:
        failed = error
    finally:
        _opened.reset(before)
    if failed is None:  # else a file may be open in HDF5
        for file in files:
            file.close()
    failed = next((file.error for file in files if file.error), failed)
    files.clear()  # the traceback would keep them, and their bytes on disk
    if failed is not None:
        raise failed


def _creating_on_disk(original: Callable[..., None]) -> Callable[..., None]:
    def create(file: Any, name: Any, mode: str = "r", *args: Any, **options: Any) -> None:
        files = _opened.get()
        if files is not None and mode == "w" and isinstance(name, (str, os.PathLike)):
            files.append(name := _Disk(os.fspath(name)))
        original(file, name, mode, *args, **options)

    return create
