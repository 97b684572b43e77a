"""Describes the machine of a benchmark. Every result has it, since only numbers of one machine and run compare."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any


def _line(file: str, key: str) -> str:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "unknown")


def describe() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": _line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _line("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }


def warn_if_busy(machine: dict[str, Any]) -> None:
    """Prints a line if the load is above 1. It covers the last minute, so a build just before counts as well."""
    if machine["load"] > 1:
        print(f"[bench] the machine is busy (load {machine['load']:.1f}): only that it runs means anything", flush=True)


def versions(*packages: str) -> dict[str, str]:
    """Returns {package: version} of the packages that are installed in this Python."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
