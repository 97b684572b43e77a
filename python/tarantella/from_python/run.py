"""`tarantella.run`: checks its arguments, sends the call, runs the job, and collects the results."""

from __future__ import annotations

import operator
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._job.environment import flag, layout
from . import job, outcome, payload

_MOST_RANKS = 4096  # as the launcher's

# With any of these variables, a batch system gives the hosts of its job, so that ranks may run on other machines.
_BATCH = {"SLURM_JOB_ID", "PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"}


def run(
    function: Callable[..., Any],
    n: int = 4,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    hosts: Sequence[str] | str | os.PathLike[str] | None = None,
) -> list[Any]:
    """Calls `function(*args, **kwargs)` on `n` ranks, and returns their results.

    Starts the launcher, as `tarantella -n 4 -- script.py` does: each rank is a new process that inherits only the
    environment, the working folder and `sys.path`. So it works in a notebook that already uses TensorFlow. The
    function, which may be defined in a notebook, its arguments and its results are copied by cloudpickle. The output of
    rank 0 appears here while it runs. Blocks until all ranks have ended; an interrupt ends them.

    Args:
        function: The function that each rank calls. It gets copies of the variables that it uses.
        n: The number of ranks, from 1 to 4096. Default: 4, on any number of cores.
        args: Arguments of the function.
        kwargs: Keyword arguments of the function.
        hosts: The hosts of the ranks: names, as in `["node1:4", "node2:4"]` (or without slots), or the path of a
            hostfile. They must share the current folder. Default: those of the batch job, or else this machine.

    Returns:
        The results of rank 0, 1, …, n - 1. After `sys.exit(0)` in the function the result is None.

    Raises:
        TypeError: An argument has the wrong type, or cannot be pickled.
        ValueError: An argument has a wrong value, or the launcher refuses it, such as more ranks than slots.
        MemoryError: The function and its arguments do not fit into memory `n` times.
        RuntimeError: This process is a rank itself; or ranks ended with an exit code or by a signal, not an exception.
        KeyboardInterrupt: The call was interrupted; the ranks have ended.
        Exception: The exception of the function on the rank that failed first, caused by the traceback of that rank.

    Example:
        >>> import tarantella as tnt
        >>> tnt.run(lambda x: x + 1, n=2, args=[3])  # doctest: +SKIP
        [4, 4]
    """
    if layout().size > 1 or flag("TNT_LAUNCHER"):
        raise RuntimeError(
            "tarantella.run starts a job, but this process is a rank of a job, or was started by one: call it outside "
            "of the function or script that the ranks run"
        )
    ranks = _count(n)
    call = _call(function, args, kwargs)
    with _folder(hosts) as name:
        folder = Path(name)
        options, machines = _hosts(hosts, folder)
        payload.write(folder, call, ranks, -(-ranks // machines))
        code, line = job.run(["-n", str(ranks), *options], folder)
        if code != 0:
            raise outcome.failure(folder, code, line)
        return outcome.results(folder, ranks)


def _count(n: Any) -> int:
    try:
        ranks = operator.index(n)
    except TypeError:
        ranks = None
    if ranks is None or isinstance(n, bool):
        raise TypeError(f"n, the number of ranks, must be a whole number (got {n!r})")
    if not 1 <= ranks <= _MOST_RANKS:
        raise ValueError(f"n, the number of ranks, must be from 1 to {_MOST_RANKS} (got {n!r})")
    return ranks


def _call(function: Any, args: Any, kwargs: Any) -> payload.Call:
    if not callable(function):
        raise TypeError(f"the first argument must be a function, which each rank calls (got {type(function).__name__})")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"args must be a tuple or list of the function's arguments (got {type(args).__name__})")
    if kwargs is None:
        kwargs = {}
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(f"kwargs must be a dict of the function's arguments by name (got {type(kwargs).__name__})")
    return function, tuple(args), dict(kwargs)


def _folder(hosts: Any) -> tempfile.TemporaryDirectory[str]:
    """Creates a folder that only this user can read, in the current folder if other machines must see it."""
    if hosts is None and _BATCH.isdisjoint(os.environ):
        return tempfile.TemporaryDirectory(prefix="tarantella-run-", ignore_cleanup_errors=True)
    try:
        return tempfile.TemporaryDirectory(prefix=".tarantella-run-", dir=os.getcwd(), ignore_cleanup_errors=True)
    except OSError as error:
        raise RuntimeError(
            f"tarantella.run cannot write to the current folder, which the hosts must share: {error}"
        ) from None


def _hosts(hosts: Any, folder: Path) -> tuple[list[str], int]:
    """The launcher's option for the hosts, and their number, or 1 if it is not known."""
    if hosts is None:
        return [], 1
    if isinstance(hosts, (str, os.PathLike)):
        return [f"--hostfile={os.fspath(hosts)}"], 1
    lines = []
    for each in hosts:
        found = re.fullmatch(r"([^\s:]+)(?::(\d+))?", each) if isinstance(each, str) else None
        if found is None:
            raise ValueError(
                f"hosts must be names such as 'node1' or 'node1:4', or the path of a hostfile (got {each!r})"
            )
        lines.append(f"{found[1]} slots={found[2]}\n" if found[2] else f"{found[1]}\n")
    if not lines:
        raise ValueError("hosts is empty; leave it out to run on this machine")
    file = folder / "hosts"
    file.write_text("".join(lines), encoding="utf-8")
    return [f"--hostfile={file}"], len(lines)
