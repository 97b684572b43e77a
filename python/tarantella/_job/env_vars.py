"""The TNT_ variables: allowed values, defaults and meanings. docs/environment.md shows the same table."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from .environment import flag, integer, log_level, number, writable_file


class Variable(NamedTuple):
    """One variable. The default "set" marks variables that the launcher or a rank sets."""

    values: str
    default: str
    meaning: str
    read: Callable[[str], object] | None = None  # called with the name; raises ValueError for a bad value


_FLAG = "1 or 0"
_COUNT = "a whole number"
_least_0 = functools.partial(integer, default=0)
_least_1 = functools.partial(integer, default=1, least=1)

VARIABLES = {
    "TNT_LOG_LEVEL": Variable(
        "DEBUG, INFO, WARNING or ERROR", "WARNING", "the least severe of Tarantella's messages that is shown", log_level
    ),
    "TNT_LOG_ON_ALL_DEVICES": Variable(_FLAG, "0", "stderr of every rank is shown, not only of rank 0", flag),
    "TNT_OUTPUT_ON_ALL_DEVICES": Variable(_FLAG, "0", "stdout and stderr of every rank are shown", flag),
    "TNT_LOG_DIR": Variable("a folder", "", "where the launcher also writes the output of each rank: rank-0.log, …"),
    "TNT_TENSORBOARD_ON_ALL_DEVICES": Variable(_FLAG, "0", "TensorBoard callbacks run on every rank", flag),
    "TNT_FUSION_THRESHOLD": Variable(
        "KB (1024 bytes), 0 or more",
        "1024",
        "size of the buckets in which gradients are reduced; a larger gradient is split; "
        "0: one bucket for each gradient",
        _least_0,
    ),
    "TNT_GATHER_LIMIT": Variable(
        "MiB, 0 or more",
        "256",
        "the most memory for the rows of all ranks in a user-defined loss or metric (docs/guide.md)",
        _least_0,
    ),
    "TNT_TIMEOUT": Variable(
        "seconds above 0, or inf",
        "300",
        "a rank that does not respond for this long counts as stuck; inf: never",
        lambda name: number(name, 1),
    ),
    "TNT_STALL_TIMEOUT": Variable(
        "seconds above 0",
        "no limit",
        "a wait for ranks that are alive ends the job after this long, with the Python stacks of all ranks",
        lambda name: number(name, 1),
    ),
    "TNT_START_TIMEOUT": Variable(
        "seconds above 0",
        "60",
        "all hosts of a job must have started the launcher there within this time; --start-timeout",
        lambda name: number(name, 1),
    ),
    "TNT_MAX_RESTARTS": Variable(
        _COUNT, "0", "how often the launcher starts all ranks again after a failure; --max-restarts", _least_0
    ),
    "TNT_CHECK_GRADIENTS": Variable(
        _FLAG, "0", "a gradient with NaN or infinity ends the step, with the rank and the name of the tensor", flag
    ),
    "TNT_WEIGHT_CHECK_STEPS": Variable(
        "steps, 0 or more",
        "100",
        "steps between two comparisons of the ranks' weights; 0: only at the ends of epochs",
        _least_0,
    ),
    "TNT_TIMELINE": Variable(
        "a file", "", "where to write the timeline of all ranks (docs/timeline.md)", writable_file
    ),
    "TNT_KEY_FILE": Variable(
        "a file of yours with mode 600",
        "~/.config/tarantella/key, made once",
        "the key by which ranks of srun, mpiexec and torchrun on several machines recognize one another",
    ),
    "TNT_SOCKET_IFNAME": Variable(
        "the name of a network device, as in eth0",
        "the device over which the machines have connected",
        "carries data between machines, where there is no faster fabric than TCP (docs/cluster.md)",
    ),
    "TNT_TRANSPORT": Variable(
        "mpi-abi or openmpi, or one of them with the path of a library of MPI: mpi-abi:PATH",
        "the MPI that is found",
        "the MPI that carries data between machines (docs/cluster.md)",
    ),
    "TNT_MODELS_PATH": Variable("a folder", "", "where shell commands of the documents find the examples"),
    "TNT_DATASETS_PATH": Variable("a folder", "", "where shell commands of the documents find data sets"),
    "TNT_RANK": Variable(_COUNT, "set", "this process's rank", _least_0),
    "TNT_SIZE": Variable(_COUNT, "set", "the number of ranks", _least_1),
    "TNT_LOCAL_RANK": Variable(_COUNT, "set", "this process's rank among those of its machine", _least_0),
    "TNT_LOCAL_SIZE": Variable(_COUNT, "set", "the number of ranks on this machine", _least_1),
    "TNT_NODES": Variable("numbers of ranks", "set", "with several machines, the number of ranks of each: 2,2,1"),
    "TNT_JOB_ID": Variable("any text", "set", "the job's name, by which its ranks find one another"),
    "TNT_LAUNCHER": Variable(_FLAG, "set", "whether `tarantella` has started this process", flag),
    "TNT_RESTART_COUNT": Variable(_COUNT, "set", "how often the launcher has started all ranks again", _least_0),
    "TNT_RANK_PID": Variable("a process id", "set", "the id of the process that is the rank"),
    "TNT_REPORT": Variable("text", "set", "where a rank reports its error to the launcher"),
    "TNT_RANK_STATUS_FD": Variable("a descriptor", "set", "where a rank reads which ranks have joined or ended"),
    "TNT_SNAPSHOT_FDS": Variable("two descriptors", "set", "where ranks keep snapshots from one attempt to the next"),
    "TNT_TIMELINE_FD": Variable("a descriptor", "set", "where a rank records its timeline, which the launcher writes"),
    "TNT_VERIFY": Variable("a folder", "set", "where ranks write the records that `tarantella verify` compares"),
}


def check() -> None:
    """Raises ValueError for a variable with a bad value, with its name and the allowed values."""
    for name, variable in VARIABLES.items():
        if variable.read is not None:
            variable.read(name)


def unknown() -> str | None:
    """One line that lists unknown TNT_ variables and the closest known names; None if there are none."""
    names = sorted(name for name in os.environ if name.startswith("TNT_") and name not in VARIABLES)
    if not names:
        return None
    near = {name: difflib.get_close_matches(name, VARIABLES, 1) for name in names}
    listed = [f"{name} (did you mean {near[name][0]}?)" if near[name] else name for name in names]
    return f"unknown environment variables: {', '.join(listed)}; docs/environment.md lists all"
