"""The place of this process in a job that torchrun, mpirun or srun has started in place of Tarantella's launcher."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_Variables = Mapping[str, str]
_NUMBER = "[0-9]{1,9}"
_MOST_RANKS = 1 << 20  # a larger number is an error


@dataclass(frozen=True)
class Layout:
    """The place of this process in its job. Without a launcher: the only rank."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    job: str = ""  # the same for its ranks, different for each job of the user; at most 64 characters
    launched: bool = False
    nodes: tuple[int, ...] = (1,)  # the number of ranks of each machine; ranks are numbered machine by machine
    child_of: int | None = None  # the rank that started this process; the process itself is not a rank
    starter: str = ""  # the program that has started the ranks, if it is not Tarantella's launcher


def place(environment: _Variables = os.environ) -> Layout | None:
    """The place that the environment describes; None without a starter, or with one rank.

    The innermost starter counts: torchrun and mpirun are themselves tasks of srun in a batch job. A batch script is
    not a rank, although Slurm sets variables for it. Raises SystemExit if the ranks are not numbered machine by
    machine, with a message on at most one rank of each machine.
    """
    found = _torchrun(environment) or _open_mpi(environment) or _mpich(environment) or _slurm(environment)
    return found if found is not None and found.size > 1 else None


def _torchrun(environment: _Variables) -> Layout | None:
    """Also operators of Kubernetes, which set the same variables."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(not environment.get(name) for name in names):
        return None
    rank, size, address, port = (environment[name] for name in names)
    # operators that start one rank a machine need not set LOCAL_WORLD_SIZE
    alone = size if address in ("127.0.0.1", "localhost", "::1") else "1"
    here, local = environment.get("LOCAL_WORLD_SIZE", alone), environment.get("LOCAL_RANK")
    # each machine's torchrun counts its own failures, so that these numbers may differ
    restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "") if here == size else ""
    parts = (address, port, environment.get("TORCHELASTIC_RUN_ID", ""), restarts)
    return _place("torchrun", rank, size, _even(here, size), "\n".join(parts), local)


def _open_mpi(environment: _Variables) -> Layout | None:
    rank, size = environment.get("OMPI_COMM_WORLD_RANK"), environment.get("OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    here, local = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", size), environment.get("OMPI_COMM_WORLD_LOCAL_RANK")
    job = job or _starting_process("OMPI_COMM_WORLD_RANK", rank)
    return _place("mpirun", rank, size, _even(here, size), job, local)


def _mpich(environment: _Variables) -> Layout | None:
    """MPICH, Intel MPI and others with the process manager hydra; srun --mpi=pmi2 sets the first two as well.

    rendezvous.py checks later whether ranks are numbered machine by machine.
    """
    rank, size, here = (environment.get(name) for name in ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"))
    if rank is None or size is None or here is None:
        return None
    return _place("mpiexec", rank, size, _even(here, size), _starting_process("PMI_RANK", rank))


def _slurm(environment: _Variables) -> Layout | None:
    """A task of srun. A batch script and the shell of salloc have no number of tasks of a step."""
    rank, size = environment.get("SLURM_PROCID"), environment.get("SLURM_STEP_NUM_TASKS")
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if rank is None or size is None or job is None or step is None:
        return None
    several = environment.get("SLURM_STEP_NUM_NODES", "1") != "1"
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE", size) if several else size
    job = f"{job}.{step}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    return _place("srun", rank, size, tasks, job, environment.get("SLURM_LOCALID"), environment.get("SLURM_GTIDS"))


def _even(here: str, size: str) -> str:
    """`here` ranks on each machine, and the rest on the last one, in the notation of Slurm."""
    if not (_is_number(here) and _is_number(size) and int(here) > 0):
        return here
    full, rest = divmod(int(size), int(here))
    return f"{here}(x{full})" + (f",{rest}" if rest else "")


def _is_number(word: str) -> bool:
    return re.fullmatch(_NUMBER, word) is not None


def _place(
    starter: str, rank: str, size: str, tasks: str, job: str, local: str | None = None, near: str | None = None
) -> Layout:
    """`tasks`: the ranks of each machine, as in 2(x3),1. `local`: the rank's number on its machine, if the starter
    tells it. `near`: the ranks of the machine, as in 0,1, if the starter tells them.

    Raises ValueError for values that are not numbers.
    """
    groups = [re.fullmatch(rf"({_NUMBER})(?:\(x({_NUMBER})\))?", each) for each in tasks.split(",")]
    counts = [(int(each[1]), int(each[2] or 1)) for each in groups if each is not None]
    known = _is_number(rank) and _is_number(size) and len(counts) == len(groups) and all(ranks for ranks, _ in counts)
    if not known or not int(rank) < int(size) == sum(ranks * times for ranks, times in counts) <= _MOST_RANKS:
        raise ValueError(
            f"tarantella cannot read the rank that {starter} tells: rank {rank!r} of {size!r}, {tasks!r} by machine"
        )
    nodes = tuple(ranks for ranks, times in counts for _ in range(times))
    node = bisect.bisect_right(list(itertools.accumulate(nodes)), int(rank))
    first, here = sum(nodes[:node]), nodes[node]
    number = int(rank) - first
    ours = ",".join(map(str, range(first, first + here)))
    if len(nodes) > 1 and (local not in (None, str(number)) or near not in (None, ours)):
        # one line a machine, since rank 0 may have the right place
        raise SystemExit(f"tarantella: {numbering(starter, rank)}" if local == "0" else 1)
    name = f"{starter}-{hashlib.sha256(job.encode()).hexdigest()[:32]}"
    return Layout(int(rank), int(size), number, here, name, nodes=nodes, starter=starter)


def numbering(starter: str, rank: object) -> str:
    """The error for ranks that are not numbered machine by machine, with the cure."""
    option = {"srun": "srun --distribution=block", "mpirun": "mpirun --map-by ppr:N:node", "mpiexec": "mpiexec -ppn N"}
    return (
        f"{starter} has not numbered the ranks machine by machine, with the same number on each (seen by rank {rank}); "
        f"use {option.get(starter, 'the same --nproc-per-node on each')}, or start them with tarantella"
    )


def _starting_process(variable: str, value: str) -> str:
    """The nearest ancestor without the variable in its environment: the process that started the ranks of this machine.

    Its id and start time identify the job. Programs between it and the rank, such as shells, have the variable.
    """
    entry = f"{variable}={value}".encode()
    process = os.getppid()
    for process in ancestors():
        try:
            with open(f"/proc/{process}/environ", "rb") as variables:
                if entry not in variables.read().split(b"\0"):
                    break
        except OSError:  # of another user, as daemons of batch systems are
            break
    try:
        return f"{process} {_status(process)[19].decode()}"  # the start time
    except (OSError, IndexError):
        return f"{process} "


def ancestors() -> Iterator[int]:
    """The ids of the ancestors of this process, nearest first."""
    process = os.getppid()
    while process > 0:
        yield process
        try:
            process = int(_status(process)[1])
        except (OSError, ValueError, IndexError):
            return


def _status(process: int) -> list[bytes]:
    with open(f"/proc/{process}/stat", "rb") as status:
        return status.read().rpartition(b")")[2].split()
