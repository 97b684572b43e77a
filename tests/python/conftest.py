"""Running scripts on several ranks, through the launcher, as users do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tools")]

from crowding import without_crowding
from needs import give_up
from network_hosts import Hosts, missing

LEAN = str(Path(__file__).parent / "lean")
# What a shell or nohup has started in the background ignores some of these, and so would the jobs of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [LEAN, os.environ.get("PYTHONPATH")]))


@dataclass(frozen=True)
class Ended:
    """A finished job."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it said on stderr, without the chatter of frameworks."""
        chatter = ("WARNING: All log messages before absl", "I0000", "W0000", "E0000", "To enable the following")
        dated = ("20", "I tensorflow", "W tensorflow")
        return [
            line
            for line in self.err.splitlines()
            if line.strip() and not line.startswith(chatter) and not (line.startswith(dated) and "tensorflow" in line)
        ]


def find_executable() -> str:
    """The launcher: TARANTELLA_EXECUTABLE, the one beside this Python, or the one in PATH."""
    beside = Path(sys.executable).parent / "tarantella"
    named = os.environ.get("TARANTELLA_EXECUTABLE") or (str(beside) if beside.exists() else None)
    return (
        named
        or shutil.which("tarantella")
        or pytest.fail("no tarantella executable: install the package, or set TARANTELLA_EXECUTABLE")
    )


def environment() -> dict[str, str]:
    """Our own environment without what a launcher or a batch system sets."""
    theirs = ("TNT_", "SLURM", "PBS_", "LSB_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return {**clean, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}


def run_ranks(
    ranks: int, script: Path, *arguments: str, options: tuple[str, ...] = (), timeout: float = 280, **extra: str
) -> Ended:
    """Runs `tarantella -n ranks options -- script arguments` to its end."""
    command = [find_executable(), "-n", str(ranks), "--no-gpu", *options, "--", str(script), *arguments]
    return run(command, timeout=timeout, **extra)


def run(command: list[str], timeout: float = 280, **extra: str) -> Ended:
    """Runs a command to its end."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env={**environment(), **extra}, check=False
    )
    return Ended(done.returncode, done.stdout, without_crowding(done.stderr))


class Scripts:
    """Runs pieces of Python as scripts, on ranks or on their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, source: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def ranks(self, ranks: int, source: str | Path, *arguments: str, **options: object) -> Ended:
        script = source if isinstance(source, Path) else self.write(source)
        return run_ranks(ranks, script, *arguments, **options)  # type: ignore[arg-type]

    def run(self, command: list[str]) -> Ended:
        return run(command)

    def plain(self, source: str, *arguments: str, **extra: str) -> Ended:
        return run([sys.executable, str(self.write(source)), *arguments], **extra)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


@pytest.fixture
def executable() -> str:
    return find_executable()


@pytest.fixture(scope="session")
def all_hosts() -> Iterator[Hosts]:
    """Skips where hosts cannot be made; with TARANTELLA_NEEDS=hosts it fails there."""
    lacks = missing()
    if not (Path(sys.executable).parent / "mpiexec").exists():
        lacks.append("the package mpich")
    if lacks:
        give_up("hosts", f"hosts need {', '.join(lacks)} (tools/setup.sh --dev installs them)")
    made = Hosts()
    yield made
    made.remove()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how long the tests of each folder took, in all: CONTRIBUTING.md has a budget for each subject."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[os.path.dirname(report.nodeid.partition("::")[0])] += report.duration
    terminalreporter.section("seconds of tests by folder")
    for folder in sorted(seconds, key=seconds.__getitem__, reverse=True):
        terminalreporter.write_line(f"{seconds[folder]:6.0f}  {folder}")
