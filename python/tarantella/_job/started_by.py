"""The place of this process in a job that torchrun, mpirun or srun has started, without the launcher of Tarantella."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

_Variables = Mapping[str, str]


class Place(NamedTuple):
    """A rank of a job on one machine."""

    rank: int
    size: int
    job: str  # the same for all ranks of the job, another for each job of the user; at most 64 characters
    starter: str  # for messages


def place(environment: _Variables = os.environ) -> Place | None:
    """The place that the environment describes; None without a starter, or with one rank.

    The innermost starter counts: torchrun and mpirun are themselves tasks of srun in a batch job. A batch script itself
    is no rank, although Slurm describes its job there. Raises SystemExit if the job has several machines: rank 0 says
    so, in one line.
    """
    found = _torchrun(environment) or _open_mpi(environment) or _mpich(environment) or _slurm(environment)
    if found is None or found[0].size < 2:
        return None
    rank_of_job, ranks_here = found
    if ranks_here != rank_of_job.size:
        raise SystemExit(_several(rank_of_job, ranks_here) if rank_of_job.rank == 0 else 1)
    return rank_of_job


def _several(found: Place, here: int) -> str:
    return (
        f"tarantella: {found.starter} has started {found.size} ranks, {here} of them on this machine; on several "
        "machines tarantella starts the ranks: tarantella --hostfile hosts -- model.py (in Slurm without --hostfile)"
    )


def _torchrun(environment: _Variables) -> tuple[Place, int] | None:
    """Also operators of Kubernetes, which set the same variables."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(not environment.get(name) for name in names):
        return None
    rank, size, address, port = (environment[name] for name in names)
    parts = (
        address,
        port,
        environment.get("TORCHELASTIC_RUN_ID", ""),
        environment.get("TORCHELASTIC_RESTART_COUNT", ""),
    )
    return _place("torchrun", rank, size, environment.get("LOCAL_WORLD_SIZE", size), "\n".join(parts))


def _open_mpi(environment: _Variables) -> tuple[Place, int] | None:
    rank, size = environment.get("OMPI_COMM_WORLD_RANK"), environment.get("OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
    here = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", size)
    return _place("mpirun", rank, size, here, job or _starting_process("OMPI_COMM_WORLD_RANK", rank))


def _mpich(environment: _Variables) -> tuple[Place, int] | None:
    """MPICH, Intel MPI and others with the process manager hydra; srun --mpi=pmi2 sets the first two as well."""
    rank, size = environment.get("PMI_RANK"), environment.get("PMI_SIZE")
    if rank is None or size is None or "MPI_LOCALNRANKS" not in environment:
        return None
    return _place("mpiexec", rank, size, environment["MPI_LOCALNRANKS"], _starting_process("PMI_RANK", rank))


def _slurm(environment: _Variables) -> tuple[Place, int] | None:
    """A task of srun. A batch script and the shell of salloc have no number of tasks of a step."""
    rank, size = environment.get("SLURM_PROCID"), environment.get("SLURM_STEP_NUM_TASKS")
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if rank is None or size is None or job is None or step is None:
        return None
    several = environment.get("SLURM_STEP_NUM_NODES", "1") != "1"
    tasks = re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", size))
    here = tasks[0] if several and tasks else size
    return _place("srun", rank, size, here, f"{job}.{step}.{environment.get('SLURM_RESTART_COUNT', '0')}")


def _place(starter: str, rank: str, size: str, here: str, job: str) -> tuple[Place, int]:
    """Raises ValueError for numbers that are none."""
    if not (rank.isdecimal() and size.isdecimal() and here.isdecimal() and int(rank) < int(size)):
        raise ValueError(f"tarantella cannot read the rank that {starter} tells: rank {rank!r} of {size!r}")
    name = f"{starter}-{hashlib.sha256(job.encode()).hexdigest()[:32]}"
    return Place(int(rank), int(size), name, starter), int(here)


def _starting_process(variable: str, value: str) -> str:
    """The nearest ancestor without the variable in its environment: the process that started the ranks of this machine.

    Its number and start time tell jobs apart. Programs between it and the rank, such as shells, have the variable.
    """
    entry = f"{variable}={value}".encode()
    process = os.getppid()
    while process > 1:
        try:
            with open(f"/proc/{process}/stat", "rb") as status:
                fields = status.read().rpartition(b")")[2].split()
            with open(f"/proc/{process}/environ", "rb") as variables:
                if entry not in variables.read().split(b"\0"):
                    break
        except OSError:  # of another user, as daemons of batch systems are
            break
        process = int(fields[1])
    try:
        with open(f"/proc/{process}/stat", "rb") as status:
            start = status.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        start = ""
    return f"{process} {start}"
