"""Settings from the environment: the rank of this process in its job, and the options of the user.

docs/environment.md has the table of the TNT_ variables.
"""

from __future__ import annotations

import _socket
import difflib
import functools
import hashlib
import os
import stat
import sys
from collections.abc import Callable

from . import launch_environment
from .launch_environment import Layout

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def integer(name: str, default: int, least: int = 0) -> int:
    """Reads a whole number from the environment. Raises ValueError with the name of the variable."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number (got {text!r})") from None
    if value < least:
        raise ValueError(f"{name} must be at least {least} (got {value})")
    return value


def number(name: str, default: float) -> float:
    """Reads a number from the environment. Raises ValueError with the name of the variable."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds (got {text!r})") from None
    if not value > 0:
        raise ValueError(f"{name} must be above 0 (got {text})")
    return value


def flag(name: str) -> bool:
    """Whether the variable is on: 1, true, yes or on, in any case. Raises ValueError with the name of the variable.

    0, false, no, off, an empty value and an unset variable are off.
    """
    text = os.environ.get(name, "").strip().lower()
    if text not in (*_ON, *_OFF):
        raise ValueError(f"{name} must be 1 or 0, or true, yes, on, false, no or off (got {text!r})")
    return text in _ON


def writable_file(name: str) -> str:
    """Reads the name of a file; "" without one. Raises ValueError with the name of the variable if it is not writable.

    Under the launcher, only the launcher checks the file.
    """
    text = os.environ.get(name, "").strip()
    if text and not flag("TNT_LAUNCHER") and not _can_write(text):
        raise ValueError(f"{name} must be a file in a folder that can be written (got {text!r})")
    return text


def _can_write(file: str) -> bool:
    """Whether a device, or a file that may be new, can be written."""
    if os.path.exists(file) and not os.path.isfile(file):
        return stat.S_ISCHR(os.stat(file).st_mode) and os.access(file, os.W_OK)
    return os.access(os.path.dirname(file) or ".", os.W_OK | os.X_OK)


def log_level(name: str) -> str:
    """Reads DEBUG, INFO, WARNING (the default) or ERROR. Raises ValueError with the name of the variable."""
    text = os.environ.get(name, "").strip()
    level = text.upper() or "WARNING"
    if level not in _LEVELS:
        raise ValueError(f"{name} must be DEBUG, INFO, WARNING or ERROR (got {text!r})")
    return level


# How each variable is read.
_READERS: dict[Callable[[str], object], tuple[str, ...]] = {
    log_level: ("TNT_LOG_LEVEL",),
    flag: (
        "TNT_LOG_ON_ALL_DEVICES",
        "TNT_OUTPUT_ON_ALL_DEVICES",
        "TNT_TENSORBOARD_ON_ALL_DEVICES",
        "TNT_CHECK_GRADIENTS",
        "TNT_LAUNCHER",
    ),
    functools.partial(integer, default=0): (
        "TNT_FUSION_THRESHOLD",
        "TNT_GATHER_LIMIT",
        "TNT_MAX_RESTARTS",
        "TNT_WEIGHT_CHECK_STEPS",
        "TNT_RANK",
        "TNT_LOCAL_RANK",
        "TNT_RESTART_COUNT",
    ),
    functools.partial(integer, default=1, least=1): ("TNT_SIZE", "TNT_LOCAL_SIZE"),
    functools.partial(number, default=1): ("TNT_TIMEOUT", "TNT_STALL_TIMEOUT", "TNT_START_TIMEOUT"),
    writable_file: ("TNT_TIMELINE",),
    os.environ.get: (  # any text
        *("TNT_LOG_DIR", "TNT_KEY_FILE", "TNT_SOCKET_IFNAME", "TNT_TRANSPORT", "TNT_MODELS_PATH", "TNT_DATASETS_PATH"),
        *("TNT_NODES", "TNT_JOB_ID", "TNT_RANK_PID", "TNT_REPORT", "TNT_RANK_STATUS_FD", "TNT_SNAPSHOT_FDS"),
        *("TNT_TIMELINE_FD", "TNT_VERIFY"),
    ),
}
VARIABLES = tuple(name for names in _READERS.values() for name in names)


def check() -> None:
    """Raises ValueError for a variable with a bad value, with its name and the allowed values."""
    for read, names in _READERS.items():
        for name in names:
            read(name)


def unknown() -> str | None:
    """One line that lists unknown TNT_ variables and the closest known names; None if there are none."""
    names = sorted(name for name in os.environ if name.startswith("TNT_") and name not in VARIABLES)
    if not names:
        return None
    near = {name: difflib.get_close_matches(name, VARIABLES, 1) for name in names}
    listed = [f"{name} (did you mean {near[name][0]}?)" if near[name] else name for name in names]
    return f"unknown environment variables: {', '.join(listed)}; docs/environment.md lists all"


@functools.lru_cache(maxsize=1)
def layout() -> Layout:
    """The layout that the environment describes, read once. Never blocks.

    Reads the TNT_ variables; without them, those of torchrun, mpirun or srun. Raises SystemExit if these have not
    numbered the ranks machine by machine. Every process that a rank starts inherits the variables, but is a job of one
    process. Forked children keep the layout of their parent.
    """
    if "TNT_RANK" not in os.environ and "TNT_SIZE" not in os.environ:
        found = launch_environment.place() or Layout()
        return found if found.size == 1 or _claims_rank(f"{found.rank}-{found.job}") else Layout(child_of=found.rank)
    size = integer("TNT_SIZE", 1, least=1)
    rank = integer("TNT_RANK", 0)
    if rank >= size:
        raise ValueError(f"TNT_RANK must be below TNT_SIZE ({size}) (got {rank})")
    job = os.environ.get("TNT_JOB_ID", "")
    if "TNT_RANK" in os.environ and not _claims_rank(f"{rank}-{job}"):
        return Layout(child_of=rank)
    return Layout(
        rank=rank,
        size=size,
        local_rank=integer("TNT_LOCAL_RANK", rank),
        local_size=integer("TNT_LOCAL_SIZE", size, least=1),
        job=job,
        launched=flag("TNT_LAUNCHER"),
        nodes=_nodes(size),
    )


def _nodes(size: int) -> tuple[int, ...]:
    text = os.environ.get("TNT_NODES", "").strip() or str(size)
    parts = text.split(",")
    nodes = tuple(int(part) for part in parts if part.isascii() and part.isdigit())
    if len(nodes) != len(parts) or 0 in nodes or sum(nodes) != size:
        raise ValueError(
            f"TNT_NODES must have the number of ranks of each machine, {size} in all, as in 2,2 (got {text!r})"
        )
    return nodes


def _claims_rank(place: str) -> bool:
    """Whether this process is the rank: the first process that asks. A shell between launcher and Python never asks.

    The rank puts its process id into the environment of the processes that it starts; exec keeps both. For children
    with an older copy of the environment, it also binds a socket name with that id until it ends. A process in which
    TNT_RANK_PID is empty is the rank.
    """
    own = os.getpid()
    rank = os.environ.get("TNT_RANK_PID")
    if rank is None:
        bound = (each for each in launch_environment.ancestors() if _is_bound(place, each))
        rank = str(os.getppid() if is_worker() else next(bound, own))
    os.environ["TNT_RANK_PID"] = rank or str(own)
    if os.environ["TNT_RANK_PID"] != str(own):
        return False
    _bind(place, own)
    return True


def _name(place: str, process: int) -> bytes:
    digest = hashlib.blake2s(f"{process} {place}".encode()).hexdigest()  # every user sees it: it must hide the job
    return f"\0tarantella-rank-{digest}".encode()


def _bind(place: str, process: int) -> None:
    """Binds the name until this process ends or calls exec. A forked child's copy has the id of its parent."""
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        socket.bind(_name(place, process))
    except OSError:  # bound before exec and still held by a child, or names cannot be bound here
        socket.close()
    else:
        socket.detach()


def _is_bound(place: str, process: int) -> bool:
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    error = socket.connect_ex(_name(place, process))
    socket.close()
    return error == 0


def is_worker() -> bool:
    """Whether multiprocessing started this process; also true while the process imports its parent's main module."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and (
        process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)
    )


def is_verified() -> bool:
    """Whether `tarantella verify` observes this process: true for ranks, false for their children."""
    return "TNT_VERIFY" in os.environ and layout().child_of is None


def prints_output() -> bool:
    """Whether this rank shows the progress of fit, evaluate and predict."""
    return layout().rank == 0 or flag("TNT_OUTPUT_ON_ALL_DEVICES")
