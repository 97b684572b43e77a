"""Saves the result or error of a rank, and loads it in the caller."""

from __future__ import annotations

import io
import os
import pickle
import re
from pathlib import Path
from typing import Any

from .._job import report
from .payload import Pickler

_HERE = os.path.dirname(os.path.abspath(__file__))


class RemoteTraceback(Exception):  # noqa: N818 - it is shown as the cause of an error
    """The traceback of a rank, as text: the cause of the error that `tarantella.run` raises."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


def save_result(folder: Path, rank: int, result: Any) -> None:
    """Saves the result. Raises TypeError if it cannot be pickled."""
    try:
        _write(folder / f"result-{rank}", result)
    except OSError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise TypeError(
            f"tarantella.run cannot return the result of rank {rank}, {type(result).__name__}: {reason}; "
            "return numbers, arrays, dicts of them, or a model"
        ) from None


def save_error(folder: Path, rank: int, error: BaseException) -> None:
    """Saves the error, or its text if it cannot be pickled, and its traceback from the user's function on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    # The summary comes first: it imports `errors`, by whose names the caller knows those of the core.
    summary, shown = report.summary(error), report.shortened(error, trace)
    _write(folder / f"error-{rank}", (_pickled(error), summary, shown))


def results(folder: Path, ranks: int) -> list[Any]:
    """The results of all ranks, in order. Raises RuntimeError if one is missing or cannot be loaded here."""
    return [_result(folder / f"result-{rank}", rank) for rank in range(ranks)]


def failure(folder: Path, code: int, line: str) -> BaseException:
    """The error of the rank that failed first, caused by its traceback; else one with the launcher's message.

    `code` and `line` are those of `job.run`.
    """
    rank = re.match(r"rank (\d+) \(pid ", line)
    file = folder / f"error-{rank[1]}" if rank else None
    if file is None or not file.exists():
        message = line or f"the launcher ended with exit code {code}"
        return ValueError(message) if code == 2 and rank is None else RuntimeError(message)
    pickled, summary, shown = pickle.loads(file.read_bytes())
    error: BaseException
    try:
        error = pickle.loads(pickled) if pickled else RuntimeError(summary)
    except Exception:  # its class cannot be imported here
        error = RuntimeError(summary)
    error.__cause__ = RemoteTraceback(f"{shown.rstrip()}\n\n{line}")
    return error


def _pickled(error: BaseException) -> bytes | None:
    """The pickled error; None if it cannot be pickled, or is not the same after loading."""
    for form in (error, _WithoutInit(error)):
        try:
            whole = io.BytesIO()
            Pickler(whole).dump(form)
            if str(pickle.loads(whole.getvalue())) == str(error):
                return whole.getvalue()
        except Exception:  # also of __init__, if it takes other arguments than those of the error
            continue
    return None


class _WithoutInit:
    """Unpickles as the error, with its class, args and attributes, but without calling the `__init__` of its class."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        kind, args, *state = _builtin(type(self._error)).__reduce__(self._error)
        return _without_init, (kind, args), *state


def _without_init(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    error = kind.__new__(kind, *args)
    _builtin(kind).__init__(error, *args)
    return error


def _builtin(kind: type[BaseException]) -> Any:
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")


def _result(file: Path, rank: int) -> Any:
    try:
        with open(file, "rb") as opened:
            return pickle.load(opened)
    except FileNotFoundError:
        raise RuntimeError(f"rank {rank} ended without a result (did it call os._exit?)") from None
    except Exception as error:
        raise RuntimeError(f"the result of rank {rank} cannot be loaded here: {report.summary(error)}") from error


def _write(file: Path, value: Any) -> None:
    """Writes a file atomically."""
    part = file.with_suffix(".part")
    with open(part, "wb") as opened:
        Pickler(opened).dump(value)
    os.replace(part, file)
