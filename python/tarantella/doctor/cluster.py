"""MPIs, ssh and batch systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from .finding import NOTE, Finding

PATIENCE = 10


def check(launcher: str) -> Iterator[Finding]:
    """The findings. `launcher` is the program `tarantella`."""
    yield mpi(launcher)
    yield ssh()
    yield slurm()
    yield allocation()


def mpi(launcher: str) -> Finding:
    """The MPIs, and the one that the launcher would choose for a job on several hosts."""
    *lines, last = [line.split("\t") for line in _output(launcher, "--list-mpis").splitlines()] or [["none", ""]]
    found = [f"{name} ({mpiexec}, {where})" for name, mpiexec, _, where in lines]
    if last[0] == "use":
        return Finding("MPI", f"{'; '.join(found)}. Several hosts would use {last[1]}: {last[2]}")
    return Finding("MPI", "; ".join(found) or "none", NOTE, last[1])


def ssh() -> Finding:
    """The ssh client, which plain hosts need."""
    program = shutil.which("ssh")
    if program is None:
        return Finding("ssh", "no ssh (only hosts outside of a batch system need it)", NOTE)
    return Finding("ssh", f"{program} ({_first_line(program, '-V') or 'version not known'})")


def slurm() -> Finding:
    """srun and its process managers for MPI."""
    if shutil.which("srun") is None:
        return Finding("Slurm", "no srun here")
    plugins = _output("srun", "--mpi=list")
    kinds = sorted(set(re.findall(r"\b(pmix\w*|pmi2|cray_shasta)\b", plugins)))
    text = f"{_first_line('srun', '--version')}, MPI by {', '.join(kinds) or 'no plugin'}"
    if not kinds:
        return Finding("Slurm", text, NOTE, "ask the administrators for the pmix or pmi2 plugin")
    return Finding("Slurm", text)


def allocation() -> Finding:
    """The batch job in which this process runs."""
    for system, variable, hosts in (
        ("Slurm", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
        ("PBS", "PBS_JOBID", "PBS_NODEFILE"),
        ("LSF", "LSB_JOBID", "LSB_MCPU_HOSTS"),
    ):
        job = os.environ.get(variable)
        if job:
            return Finding("batch job", f"{system} job {job}, hosts: {os.environ.get(hosts, 'not known')}")
    return Finding("batch job", "none: the launcher starts ranks on this machine, or on the hosts of --hostfile")


def _output(*command: str) -> str:
    """The output of a command; empty if it fails to start or is slow."""
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(command, timeout=PATIENCE, check=False, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _first_line(*command: str) -> str:
    return next(iter(_output(*command).strip().splitlines()), "")
