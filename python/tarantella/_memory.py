"""How much memory processes may still take on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

# Version 2 of control groups, then version 1: the limit, the use, and what begins the names in memory.stat.
_FILES = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))


def available(root: Path) -> int:
    """Bytes that the kernel can give away without swapping; 0 if it does not tell. `root` is / outside of tests."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def group_limit(root: Path) -> int | None:
    """Bytes that the control groups around this process leave it; None without a limit. Cached files do not count."""
    rooms = [
        max(0, int(most) - max(0, int(used) - _cached_files(folder, prefix)))
        for folder in _groups(root)
        for limit, use, prefix in _FILES
        if (most := _text(folder / limit)).isdigit() and (used := _text(folder / use)).isdigit()
    ]
    return min(rooms, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's group and of all groups around it, as src/runtime/cgroup.cpp finds them."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = Path(path.lstrip("/"))
        for top in [mount / "memory"] if controllers else [mount, mount / "unified"]:
            yield top / group
            yield from (top / each for each in group.parents)


def _cached_files(folder: Path, prefix: str) -> int:
    found = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return sum(map(int, found))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
