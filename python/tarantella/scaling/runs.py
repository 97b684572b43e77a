"""Runs the user's script once, under the launcher, on a part of the cores of this machine."""

from __future__ import annotations

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import trace
from .measure import Measured, measured

_LOST = "WARNING: the timeline keeps the first"


@dataclass(frozen=True)
class Job:
    """What all runs share."""

    launcher: str
    options: list[str]  # of the launcher
    script: list[str]  # with its arguments
    folder: Path  # for the files of a run
    verbose: bool
    cores: list[list[int]]  # see `cores_here`

    def command(self, ranks: int, *more: str) -> list[str]:
        return [self.launcher, *self.options, "-n", str(ranks), *more, "--", *self.script]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    code: int  # as in a shell: 128 + signal
    error: str  # the last line that says what failed; empty if nothing has
    warnings: list[str]  # of the launcher and the ranks
    measured: Measured | None  # None too if the script has not called fit


def cores_here() -> list[list[int]]:
    """The hardware threads of each core that this process may use."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text() if siblings.exists() else str(cpu), []).append(cpu)
    return list(cores.values())


def run(job: Job, ranks: int, cpus: int) -> Run:
    """Runs the script on `ranks` ranks with `cpus` cores each, or with all cores where there are fewer."""
    file, log = job.folder / "timeline.json", job.folder / "output.txt"
    here = {cpu for core in job.cores[: ranks * cpus] for cpu in core}
    with open(log, "wb") as output:
        code = subprocess.run(
            job.command(ranks, "--timeline", str(file)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(os.sched_setaffinity, 0, here),
            check=False,
        ).returncode
    code = code if code >= 0 else 128 - code
    lines = log.read_text(errors="replace").splitlines()
    if job.verbose:
        print("\n".join(lines), flush=True)
    warnings = [line for line in lines if line.startswith("tarantella: WARNING")]
    found = None
    if code == 0 and file.exists():
        found = measured(trace.read(file), complete=not any(_LOST in line for line in warnings))
    file.unlink(missing_ok=True)
    return Run(code, last_error(lines) if code else "", warnings, found)


def last_error(lines: list[str]) -> str:
    """The last line of the output of a failed job, if possible not the one that says which rank has ended."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if not line.startswith("tarantella: rank ")]
    return (errors or said or ["no output"])[-1]


def refused(job: Job, ranks: int) -> tuple[int, str]:
    """Lets the launcher check its options and the script. Returns its exit code, 0 if they are valid, and its words."""
    done = subprocess.run(job.command(ranks, "--dry-run"), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr
