"""Sends the function, its arguments and the caller's surroundings to the ranks, which call it."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import pickle
import sys
import types
from collections import ChainMap
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import cloudpickle

from .. import _machine
from .._job.environment import prints_output

# The function, its arguments, and its keyword arguments.
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


def write(folder: Path, call: Call, ranks: int, ranks_here: int) -> None:
    """Writes the file for `run`.

    Raises TypeError if the call cannot be pickled, MemoryError if it does not fit `ranks_here` times into the memory of
    this machine, OSError if it cannot be written.
    """
    room = _room()
    with open(folder / "call", "wb") as file:
        pickle.dump(_surroundings(), file)
        counted = _Counted(file, room // ranks_here)
        try:
            Pickler(counted).dump(call)
        except OSError:
            raise
        except Exception as error:
            raise _refusal(call, error) from None
    if counted.size > counted.most:
        each = "1 rank needs" if ranks == 1 else f"each of {ranks} ranks needs"
        raise MemoryError(
            f"the function and its arguments take {_gib(counted.size)}, which {each}, but only {_gib(room)} of memory "
            "are free: load the data inside of the function, or use fewer ranks"
        )


def run(folder: Path) -> Any:
    """Calls the function as in the process of the caller. Returns its result."""
    with open(folder / "call", "rb") as file:
        sys.path[:], sys.argv[:], terminals, sources = pickle.load(file)
        linecache.cache.update({entry[3]: entry for entry in sources})
        for stream, is_terminal in zip((sys.stdout, sys.stderr), terminals, strict=True):
            if prints_output() and is_terminal and stream is not None:  # then programs redraw lines and use colours
                stream.isatty = lambda: True  # type: ignore[method-assign]
        function, args, kwargs = pickle.load(file)
    return function(*args, **kwargs)


def _reduced(code: types.CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _with_file, (make, arguments, code.co_filename)


def _with_file(make: Any, arguments: tuple[Any, ...], file: str) -> types.CodeType:
    code: types.CodeType = make(*arguments)
    return code.replace(co_filename=file)


class Pickler(cloudpickle.Pickler):
    """cloudpickle's pickler, except that code keeps the name of its file for tracebacks and AutoGraph."""

    dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: _reduced}, cloudpickle.Pickler.dispatch_table)


class _Counted:
    """Writes up to `most` bytes to a file, and counts all. Receives large arrays without copies."""

    def __init__(self, file: BinaryIO | None, most: int) -> None:
        self._file, self.most, self.size = file, most, 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size += size
        if self._file is not None and self.size <= self.most:
            self._file.write(data)
        return size


def _room() -> int:
    root = Path("/")
    limit = _machine.memory_limit(root)
    free = _machine.available_memory(root) or sys.maxsize
    return free if limit is None else min(free, limit)


def _surroundings() -> tuple[Any, ...]:
    """The state of the caller that its function may depend on: also the code that has no file, from linecache."""
    terminals = [stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr)]
    sources = [
        (each[0], None, [str(line) for line in each[2]], str(name))  # without a time, since there is no file
        for name, each in list(linecache.cache.items())
        if len(each) == 4 and not os.path.exists(name)
    ]
    return list(sys.path), list(sys.argv), terminals, sources


def _refusal(call: Call, error: Exception) -> TypeError:
    """The error for a call that cannot be pickled. Names the argument or variable."""
    function, args, kwargs = call
    parts = [(f"the function {getattr(function, '__qualname__', type(function).__name__)!r}", function)]
    parts += [(f"args[{number}]", value) for number, value in enumerate(args)]
    parts += [(f"kwargs[{each!r}]", value) for each, value in kwargs.items()]
    found = next(filter(None, (_culprit(*part, set()) for part in parts)), ("what the ranks need", error))
    reason = " ".join(str(found[1]).split()) or type(found[1]).__name__
    return TypeError(
        f"tarantella.run cannot send {found[0]} to the ranks: {reason}; create it inside of the function that they run"
    )


def _culprit(name: str, value: Any, seen: set[int]) -> tuple[str, Exception] | None:
    """The innermost variable in `value` that cannot be pickled, and the error; None if there is none."""
    try:
        Pickler(_Counted(None, 0)).dump(value)
    except Exception as error:
        function = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        if isinstance(function, types.FunctionType) and id(function) not in seen:
            seen.add(id(function))
            for each, inner in _variables(function).items():
                if found := _culprit(f"the variable {each!r} of {function.__qualname__!r}", inner, seen):
                    return found
        return name, error
    return None


def _variables(function: types.FunctionType) -> dict[str, Any]:
    """The global variables and those of outer functions that a function uses, functions inside of it included."""
    codes, names = [function.__code__], set()
    for code in codes:
        names |= set(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    found = {name: function.__globals__[name] for name in sorted(names & function.__globals__.keys())}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it has no value yet
            found[name] = cell.cell_contents
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
