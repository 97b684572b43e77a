"""Running scripts on several ranks, through the launcher, as users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from crowding import without_crowding

TIER = os.environ.setdefault("TARANTELLA_TIER", "gate")  # which command runs: gate, full or all
PRELOADED = Path(__file__).parents[1] / "preloaded"
CASES = sorted((Path(__file__).parent / "parallel/cases").glob("*.py"))
CASE_NAMES = [file.stem for file in CASES]


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


@contextmanager
def preloading_manager(address: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process that keeps the preloaded servers; it listens, and ends with the block or with this process.

    It stays in the group of this process, and so do the servers: where no shell controls the group, the kernel hangs up
    all of it when one ends whose parent is in another group while any of it is stopped.
    """
    command = [sys.executable, str(PRELOADED / "manager.py"), address, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as manager:
        assert manager.stdout
        manager.stdout.readline()
        yield manager


@contextmanager
def preloaded_pythons(folder: Path) -> Iterator[None]:
    """Programs of which `warm` tells: `python3` has a preloaded server fork the process of a script.

    `tarantella` is the launcher, which takes the Python beside it.
    """
    address = f"tarantella-tests-{uuid.uuid4().hex}"
    for name in ("python3", "python"):
        (folder / name).write_text(f"#!{sys.executable} -IS\n{(PRELOADED / 'client.py').read_text()}")
        (folder / name).chmod(0o755)
    shutil.copy(find_executable(), folder / "tarantella")
    with preloading_manager(address, folder / "log"):
        os.environ.update(TARANTELLA_TESTS_PRELOADED=address, TARANTELLA_TESTS_PROGRAMS=str(folder))
        yield


def warm(name: str) -> str:
    """The program of this name that uses a preloaded Python; the real one where there is none."""
    folder = os.environ.get("TARANTELLA_TESTS_PROGRAMS")
    if folder is not None:
        return f"{folder}/{name}"
    return find_executable() if name == "tarantella" else sys.executable


def cases_together(file: str) -> str:
    """Files with the same answer have a job for each number of ranks: real starts cost more than many cases."""
    if os.environ.get("TARANTELLA_CASES_TOGETHER"):
        return "all"
    return file if TIER == "gate" else f"group {CASE_NAMES.index(file) % 4}"


def environment() -> dict[str, str]:
    """Our own environment without what a launcher or a batch system sets."""
    theirs = ("TNT_", "SLURM", "PBS_", "LSB_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return {**clean, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}


def of_torchrun(rank: int, size: int = 2, here: int = 1, first: str = "node1") -> dict[str, str]:
    """What torchrun tells a rank, of which each host has `here`, and the host `first` rank 0."""
    places = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % here, "LOCAL_WORLD_SIZE": here}
    return {"MASTER_ADDR": first, "MASTER_PORT": "29500", **{name: str(value) for name, value in places.items()}}


def run_ranks(
    ranks: int,
    script: Path,
    *arguments: str,
    python: str = "",
    options: tuple[str, ...] = (),
    timeout: float = 280,
    **extra: str,
) -> Ended:
    """Runs `tarantella -n ranks options -- script arguments` to its end; `python` is the interpreter."""
    interpreter = ("--python-interpreter", python) if python else ()
    command = [find_executable(), "-n", str(ranks), "--no-gpu", *interpreter, *options, "--", str(script), *arguments]
    return run(command, timeout=timeout, **extra)


def run(command: list[str], timeout: float = 280, **extra: str) -> Ended:
    """Runs a command to its end."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env={**environment(), **extra}, check=False
    )
    return Ended(done.returncode, done.stdout, without_crowding(done.stderr))


class Scripts:
    """Runs pieces of Python as scripts, on ranks or on their own, with the interpreter `python` if one is named."""

    def __init__(self, folder: Path, python: str = "") -> None:
        self.folder, self.python = folder, python

    def write(self, source: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def ranks(self, ranks: int, source: str | Path, *arguments: str, **options: object) -> Ended:
        script = source if isinstance(source, Path) else self.write(source)
        return run_ranks(ranks, script, *arguments, python=self.python, **options)  # type: ignore[arg-type]

    def run(self, command: list[str]) -> Ended:
        return run(command)

    def plain(self, source: str, *arguments: str, **extra: str) -> Ended:
        return run([self.python or sys.executable, str(self.write(source)), *arguments], **extra)
