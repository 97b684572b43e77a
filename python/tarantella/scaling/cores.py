"""The cores that this process and its children may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = "sys/fs/cgroup"


def here(root: Path = Path("/")) -> list[list[int]]:
    """The hardware threads of each core, as many cores as the CPU quota of a container pays for."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        cores.setdefault(siblings.read_text() if siblings.exists() else str(cpu), []).append(cpu)
    return list(cores.values())[: max(1, math.floor(min(quota(root), len(cores))))]


def quota(root: Path) -> float:
    """How many cores this process may keep busy, by its cgroup and those around it; infinite without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for _, controllers, name in (line.split(":", 2) for line in lines):
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / _CGROUPS / controllers  # of version 2: no controllers
        folder = mount / name.lstrip("/")
        for each in (folder, *folder.parents):  # a container may see its own as the outermost one
            if each.is_relative_to(mount):
                least = min(least, _limit(each))
    return least


def _limit(folder: Path) -> float:
    try:
        if (folder / "cpu.max").exists():  # version 2
            words = (folder / "cpu.max").read_text().split()
        else:
            words = [(folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")]
        return math.inf if words[0] == "max" or int(words[0]) < 0 else int(words[0]) / int(words[1])
    except (OSError, ValueError, LookupError):
        return math.inf
