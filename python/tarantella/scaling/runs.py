"""Runs the user's script once, under the launcher, on a part of the cores of this machine."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import trace
from .measure import Measured, measured, problem

_LONGEST = 300  # characters of an error
_OURS = "tarantella: "
_OF_A_RANK = "tarantella: rank "
_WARNING = "tarantella: WARNING"


@dataclass(frozen=True)
class Job:
    """The settings that all runs share."""

    launcher: str
    options: list[str]  # of the launcher
    script: list[str]  # with its arguments
    folder: Path  # for the files of a run
    verbose: bool
    cores: list[list[int]]  # the hardware threads of each

    def command(self, ranks: int, *more: str) -> list[str]:
        return [self.launcher, "--this-host", "-n", str(ranks), *more, *self.options, "--", *self.script]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    code: int  # as in a shell: 128 + signal
    error: str  # the reason if nothing was measured; else empty
    warnings: list[str]  # of the launcher and the ranks
    measured: Measured | None

    @property
    def failure(self) -> str:
        """The text of the table."""
        return f"failed with exit code {self.code}: {self.error}" if self.code else f"failed: {self.error}"


def run(job: Job, ranks: int, cpus: int) -> Run:
    """Runs the script on `ranks` ranks with `cpus` cores each, or with all cores if there are fewer."""
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
    lines = [_printable(line) for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    if job.verbose:
        print("\n".join(lines), flush=True)
    warnings = [line for line in lines if line.startswith(_WARNING)]
    error, found = (last_error(lines, code), None) if code else _figures(file, ranks, warnings)
    file.unlink(missing_ok=True)
    return Run(code, error, warnings, found)


def _figures(file: Path, ranks: int, warnings: list[str]) -> tuple[str, Measured | None]:
    """The figures of a successful run, or an error."""
    if not file.exists():
        return (warnings or ["the launcher has written no timeline"])[-1], None
    try:
        timeline = trace.read(file)
    except (OSError, ValueError, LookupError) as reason:
        return f"its timeline cannot be read: {reason}", None
    error = problem(timeline.ranks, ranks, timeline.complete)
    return error, None if error else measured(timeline.ranks, timeline.complete)


def _printable(line: str) -> str:
    """Removes colours, and characters that XML does not allow."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return re.sub(r"[^\t\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", plain)


def last_error(lines: list[str], code: int) -> str:
    """The line that explains a failed job: the launcher's first about a rank after a signal, else the script's last."""
    messages = [line.strip() for line in lines if line.strip() and not line.startswith(_WARNING)]
    of_ranks = [line for line in messages if line.startswith(_OF_A_RANK)]
    of_script = [line for line in messages if not line.startswith(_OURS)]
    if code > 128 and of_ranks:
        return of_ranks[0]
    return (of_script or of_ranks or messages or ["no output"])[-1][:_LONGEST]


def refused(job: Job, ranks: int) -> int:
    """Lets the launcher check its options and the script. Returns its exit code, 0 if they are valid."""
    command = job.command(ranks, "--dry-run")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stderr.decode(errors="replace"))
    return done.returncode
