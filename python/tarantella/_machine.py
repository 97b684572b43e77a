"""Cores and memory that this process may use. `root` is / outside of tests."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

# Version 2 of control groups, then version 1: the limit, the use, and the prefix of names in memory.stat.
_FILES = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def cores(root: Path = Path("/")) -> list[list[int]]:
    """The hardware threads of each core that this process may use."""
    found: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(siblings or str(cpu), []).append(cpu)
    return list(found.values())


def usable_cores(root: Path = Path("/")) -> list[list[int]]:
    """The first of `cores`: as many as the CPU quota of a container allows to keep busy."""
    found = cores(root)
    return found[: max(1, math.floor(min(cpu_quota(root), len(found))))]


def cpu_quota(root: Path) -> float:
    """The number of cores that the control groups around this process let it keep busy; infinite without a limit."""
    least = math.inf
    for folder in _groups(root, "cpu"):
        words = text(folder / "cpu.max").split()  # version 2
        quota, period = words or (text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdigit() and period.isdigit():
            least = min(least, int(quota) / int(period))
    return least


def available_memory(root: Path) -> int:
    """Bytes that the kernel can give away without swapping; 0 if it does not tell."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def memory_limit(root: Path) -> int | None:
    """Bytes that the control groups around this process leave it; None without a limit. Cached files do not count."""
    rooms = [
        max(0, int(most) - max(0, int(used) - _cached_files(folder, prefix)))
        for folder in _groups(root, "memory")
        for limit, use, prefix in _FILES
        if (most := text(folder / limit)).isdigit() and (used := text(folder / use)).isdigit()
    ]
    return min(rooms, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of all groups around it, as src/runtime/cgroup.cpp finds them."""
    mount = root / "sys/fs/cgroup"
    for line in text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        for top in [mount / controllers] if controllers else [mount, mount / "unified"]:
            yield top / group
            yield from (top / each for each in group.parents)


def _cached_files(folder: Path, prefix: str) -> int:
    found = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", text(folder / "memory.stat"), re.MULTILINE)
    return sum(map(int, found))


def text(path: Path) -> str:
    """The content of a file without white space around it; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
