"""Runs the user's script on one process or on several ranks and collects the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import record
from .record import Observation

_TAIL = 30


@dataclass(frozen=True)
class Job:
    """The settings that all runs share."""

    launcher: str
    options: list[str]  # of the launcher
    script: list[str]  # with its arguments
    steps: int
    folder: Path  # for the records of the runs
    verbose: bool

    def command(self, ranks: int, *more: str) -> list[str]:
        return [self.launcher, *self.options, "-n", str(ranks), *more, "--", *self.script]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    what: str
    folder: Path
    code: int  # as in a shell: 128 + signal
    observed: list[list[Observation]]  # by rank

    @property
    def output(self) -> str:
        """The last lines of its output; empty if they were shown already."""
        path = self.folder / "output.txt"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(lines[-_TAIL:])

    @property
    def warnings(self) -> list[str]:
        """The warnings of Tarantella."""
        path = self.folder / record.WARNINGS
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def findings(self, rank: int = 0) -> list[tuple[str, str, str]]:
        """The findings of a rank that examined a batch: kind, name, layer to switch off. See examine.Finding."""
        path = self.folder / f"findings.{rank}.json"
        if not path.exists():
            return [("unknown", f"the run ended before it, with exit code {self.code}", "")]
        return [(kind, name, layer) for kind, name, layer in json.loads(path.read_text())]


def run(job: Job, name: str, ranks: int, why: str, **plan: Any) -> Run:
    """Runs the script to its end or to its last step. `plan` is passed to the observer in the script."""
    folder = job.folder / name
    folder.mkdir()
    plan = {"steps": job.steps, "initial": str(job.folder), "kept": str(job.folder / "kept.pickle"), **plan}
    (folder / "plan.json").write_text(json.dumps(plan))
    what = "one process" if ranks == 1 else f"{ranks} ranks"
    print(f"verify: {what}: {why}", flush=True)
    environment = {**os.environ, "TNT_VERIFY": str(folder)}
    with open(folder / "output.txt", "wb") as output:
        shown: Any = {} if job.verbose else {"stdout": output, "stderr": subprocess.STDOUT}
        code = subprocess.run(job.command(ranks), env=environment, check=False, **shown).returncode
    code = code if code >= 0 else 128 - code
    return Run(what, folder, code, [record.read(folder, rank) for rank in range(ranks)])


def refused(job: Job, ranks: int) -> int:
    """Lets the launcher check its options and the script. Returns its exit code, 0 if they are valid."""
    done = subprocess.run(job.command(ranks, "--dry-run"), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
    return done.returncode
