"""This machine, the MPIs and ssh on it, and the batch system that it belongs to."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .. import _machine
from .._machine import text as _text
from . import BAD, NOTE, Finding

# Room for the gradients of a large model on a few ranks; with less, the core refuses to start.
LEAST_MEMORY = 1 << 30
PATIENCE = 10  # seconds that a program may take to answer


def check(launcher: str, root: Path = Path("/")) -> list[Finding]:
    """The findings. `launcher` is the program `tarantella`; `root` contains proc, sys and dev."""
    of_machine = (cores, sockets, memory, huge_pages, shared_memory_folder, gpus)
    return [*(each(root) for each in of_machine), mpi(launcher), ssh(), slurm(), allocation()]


def cores(root: Path) -> Finding:
    found = _machine.cores(root)
    allowed = sum(map(len, found))
    total = os.cpu_count() or allowed
    text = f"{_count(len(found), 'core')}, {_count(allowed, 'hardware thread')}"
    if allowed < total:
        return Finding(
            "cores",
            f"{text} of {total}: this process may use no more",
            NOTE,
            "taskset, cpusets or the batch job limit it; ask the batch system for more cores (--cpus-per-task)",
        )
    return Finding("cores", text)


def sockets(root: Path) -> Finding:
    cpus = (root / f"sys/devices/system/cpu/cpu{cpu}" for cpu in os.sched_getaffinity(0))
    packages = {_text(cpu / "topology/physical_package_id") for cpu in cpus}
    nodes = glob.glob(str(root / "sys/devices/system/node/node[0-9]*"))
    text = f"{_count(len(packages), 'socket')}, {_count(max(1, len(nodes)), 'NUMA node')}"
    if len(nodes) > 1:
        return Finding("sockets", text, NOTE, "one rank per NUMA node, or --pin-memory-to-socket, keeps memory local")
    return Finding("sockets", text)


def memory(root: Path) -> Finding:
    free, limit = _machine.available_memory(root), _machine.memory_limit(root)
    text = f"{_gib(free)} available"
    if limit is not None and limit < free:
        text, free = f"{text}, limited to {_gib(limit)} by the control group", limit
    if free < LEAST_MEMORY:
        return Finding("memory", text, BAD, "end other programs, or ask the batch system for more memory (--mem)")
    return Finding("memory", text)


def huge_pages(root: Path) -> Finding:
    mode = re.search(r"\[(\w+)\]", _text(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    if mode is None:
        return Finding("huge pages", "not known: this kernel does not tell", NOTE)
    if mode[1] in ("always", "within_size", "advise", "force"):
        return Finding("huge pages", f"shared memory may have them ({mode[1]})")
    return Finding(
        "huge pages",
        f"shared memory has none ({mode[1]})",
        NOTE,
        "root may allow them, for somewhat faster sums: "
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
    )


def shared_memory_folder(root: Path) -> Finding:
    """/dev/shm, which Tarantella itself does not need."""
    folder = root / "dev/shm"
    if not os.access(folder, os.W_OK):
        return Finding("/dev/shm", "cannot be written; Tarantella needs only memory, some MPIs need the folder", NOTE)
    status = os.statvfs(folder)
    return Finding("/dev/shm", f"{_gib(status.f_bavail * status.f_frsize)} free (Tarantella does not need it)")


def gpus(root: Path) -> Finding:
    """NVIDIA GPUs, as the launcher finds them."""
    driver = root / "proc/driver/nvidia"
    if not (driver / "version").exists():
        return Finding("GPUs", "no NVIDIA driver: ranks run on the CPU")
    count = len(glob.glob(str(driver / "gpus/*")))
    if count == 0:
        return Finding("GPUs", "a driver, but no GPU", NOTE, "--no-gpu hides the launcher's warning")
    text, visible = _count(count, "GPU"), os.environ.get("CUDA_VISIBLE_DEVICES")
    return Finding("GPUs", text if visible is None else f"{text}; CUDA_VISIBLE_DEVICES='{visible}' chooses of them")


def mpi(launcher: str) -> Finding:
    """The MPIs, and the one that the launcher would choose for a job on several hosts."""
    *lines, last = [line.split("\t") for line in _output(launcher, "--list-mpis").splitlines()] or [["none", ""]]
    found = [f"{name} ({mpiexec}, {where})" for name, mpiexec, _, where in lines]
    if last[0] == "use":
        return Finding("MPI", f"{'; '.join(found)}. Several hosts would use {last[1]}: {last[2]}")
    return Finding("MPI", "; ".join(found) or "none", NOTE, last[1])


def ssh() -> Finding:
    program = shutil.which("ssh")
    if program is None:
        return Finding("ssh", "no ssh (only hosts outside of a batch system need it)", NOTE)
    return Finding("ssh", f"{program} ({_first_line(program, '-V') or 'version not known'})")


def slurm() -> Finding:
    if shutil.which("srun") is None:
        return Finding("Slurm", "no srun here")
    version, plugins = _first_line("srun", "--version"), _output("srun", "--mpi=list")
    if not version.startswith("slurm"):
        cure = "ask the administrators for its configuration, or start on hosts with --hostfile"
        return Finding("Slurm", f"srun does not work here: {version}", NOTE, cure)
    kinds = sorted(set(re.findall(r"\b(pmix\w*|pmi2|cray_shasta)\b", plugins)))
    text = f"{version}, MPI by {', '.join(kinds) or 'no plugin'}"
    if not kinds:
        return Finding("Slurm", text, NOTE, "ask the administrators for the pmix or pmi2 plugin")
    return Finding("Slurm", text)


def allocation() -> Finding:
    for system, variable, hosts in (
        ("Slurm", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
        ("PBS", "PBS_JOBID", "PBS_NODEFILE"),
        ("LSF", "LSB_JOBID", "LSB_MCPU_HOSTS"),
    ):
        if job := os.environ.get(variable):
            return Finding("batch job", f"{system} job {job}, hosts: {os.environ.get(hosts, 'not known')}")
    return Finding("batch job", "none: the launcher starts ranks on this machine, or on the hosts of --hostfile")


def _output(*command: str) -> str:
    """The output of a command; empty if it fails to start or is slow."""
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(command, timeout=PATIENCE, check=False, **options)
        return str(done.stdout + done.stderr)
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _first_line(*command: str) -> str:
    return _output(*command).strip().partition("\n")[0]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
