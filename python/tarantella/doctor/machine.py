"""Cores, memory and GPUs of this machine."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .. import _machine
from .._machine import text as _text
from .finding import BAD, NOTE, Finding

# Room for the gradients of a large model on a few ranks; with less, the core refuses to start.
LEAST_MEMORY = 1 << 30


def check(root: Path = Path("/")) -> Iterator[Finding]:
    """The findings. `root` contains proc, sys and dev."""
    yield cores(root)
    yield sockets(root)
    yield memory(root)
    yield huge_pages(root)
    yield shared_memory_folder(root)
    yield gpus(root)


def cores(root: Path) -> Finding:
    """The cores and hardware threads that this process may use."""
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
    """Sockets and NUMA nodes."""
    cpus = (root / f"sys/devices/system/cpu/cpu{cpu}" for cpu in os.sched_getaffinity(0))
    packages = {_text(cpu / "topology/physical_package_id") for cpu in cpus}
    nodes = glob.glob(str(root / "sys/devices/system/node/node[0-9]*"))
    text = f"{_count(len(packages), 'socket')}, {_count(max(1, len(nodes)), 'NUMA node')}"
    if len(nodes) > 1:
        return Finding("sockets", text, NOTE, "one rank per NUMA node, or --pin-memory-to-socket, keeps memory local")
    return Finding("sockets", text)


def memory(root: Path) -> Finding:
    """The memory that is available on the machine and in the control group of this process."""
    free, limit = _machine.available_memory(root), _machine.memory_limit(root)
    text = f"{_gib(free)} available"
    if limit is not None and limit < free:
        text, free = f"{text}, limited to {_gib(limit)} by the control group", limit
    if free < LEAST_MEMORY:
        return Finding("memory", text, BAD, "end other programs, or ask the batch system for more memory (--mem)")
    return Finding("memory", text)


def huge_pages(root: Path) -> Finding:
    """Whether shared memory may have huge pages."""
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
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    text = _count(count, "GPU")
    return Finding("GPUs", text if visible is None else f"{text}; CUDA_VISIBLE_DEVICES='{visible}' chooses of them")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
