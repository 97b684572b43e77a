"""Running examples as users do, and the commands of the pages of the documentation that are about them."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from jobs import warm

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
PAGES = sorted(
    [*(ROOT / "docs/tutorials").glob("*.md"), ROOT / "docs/scaling.md", ROOT / "docs/from_mirrored_strategy.md"]
)
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
SETTING = re.compile(r"cd |export |\w+=\"[^\"]*\"$")


def environment(**extra: str) -> dict[str, str]:
    """A user's environment, without GPUs and without a network."""
    theirs = ("TNT_", "SLURM_", "SCRATCH")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(theirs)},
        "PATH": f"{Path(warm('python3')).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "https_proxy": "http://127.0.0.1:9",
        **extra,
    }


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The last line on stderr."""
        return (self.err.strip().splitlines() or [""])[-1]


Start = Callable[..., Output]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts `python arguments`, or `tarantella -n ranks -- arguments`; no data set is cached, no network is there."""
    keras_home = str(tmp_path_factory.mktemp("keras"))

    def run(ranks: int, *arguments: object, folder: Path, timeout: float = 280, **extra: str) -> Output:
        program = [warm("python3")] if ranks == 1 else [warm("tarantella"), "-n", str(ranks), "--no-gpu", "--"]
        done = subprocess.run(
            [*program, *map(str, arguments)],
            cwd=folder,
            env=environment(KERAS_HOME=keras_home, **extra),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Output(done.returncode, done.stdout, done.stderr)

    return run


def commands_of(page: Path) -> list[str]:
    """The commands in the blocks of a page that are marked `bash`, each on one line."""
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.S | re.M)
    lines = re.sub(r"\\\n\s*", "", "".join(map(textwrap.dedent, blocks))).splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@dataclass
class Page:
    """The commands of a page, which a module of tests runs.

    excused: the commands that no test of the module runs, each with the reason. The last test of the module calls
    `assert_all_ran`.
    """

    name: str
    excused: Mapping[str, str] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)

    @property
    def path(self) -> Path:
        return ROOT / "docs" / self.name

    @property
    def commands(self) -> list[str]:
        return commands_of(self.path)

    def find(self, start: str) -> str:
        """The one command that is, or starts, so."""
        found = [each for each in self.commands if each == start] or [
            each for each in self.commands if each.startswith(start)
        ]
        assert len(found) == 1, f"{self.name} has {len(found)} commands that start with {start}"
        return found[0]

    def run(
        self, place: Place, start: str, *more: str, changes: Mapping[str, str] | None = None, code: int = 0, **how: str
    ) -> str:
        """Runs the command that starts so after the lines above it that set variables or change the folder.

        changes: parts of the command and what replaces them, such as smaller numbers. Returns what it printed.
        """
        command = self.find(start)
        settings = [each for each in self.commands[: self.commands.index(command)] if SETTING.match(each)]
        self.ran |= {command, *settings}
        lines = [*settings, " ".join([command, *more])]
        for before, after in (changes or {}).items():
            assert any(before in line for line in lines), f"no {before} in {lines}"
            lines = [re.sub(rf"{re.escape(before)}(?!\d)", after.replace("\\", r"\\"), line) for line in lines]
        return place.shell("\n".join(lines), code, **how)

    def assert_all_ran(self, request: pytest.FixtureRequest) -> None:
        """Every command was run, or is excused. Skips if some tests of the module were not selected."""
        tests = {name for name, each in vars(request.module).items() if name.startswith("test_") and not extended(each)}
        chosen = {item.originalname for item in request.session.items if item.module is request.module}
        if tests - chosen:
            pytest.skip(f"not all commands were run: {', '.join(sorted(tests - chosen))} were not selected")
        assert set(self.excused) <= set(self.commands), "an excuse for a command that the page does not have"
        assert [each for each in self.commands if each not in self.ran | self.excused.keys()] == []


def extended(test: object) -> bool:
    return any(mark.name == "extended" for mark in getattr(test, "pytestmark", ()))


@dataclass(frozen=True)
class Place:
    """A folder that looks like the repository, in which commands of pages are run, and the environment for them."""

    folder: Path
    environment: dict[str, str]

    def shell(self, command: str, code: int = 0, stdin: str = "") -> str:
        """Runs lines of bash, which stops at the first one that fails. Returns stdout and stderr."""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        print(f"$ {command}\n{done.stdout}{done.stderr}")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A copy of the examples, since commands write beside them, with the tools."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("results", "plots", "__pycache__"))
    (folder / "tools").symlink_to(ROOT / "tools")
    return Place(folder, environment(KERAS_HOME=str(folder / "keras")))


def assert_same_numbers(one: list[str], two: list[str], tolerance: float = 2e-3) -> None:
    """The same lines, and the numbers with a point in them close to each other."""
    assert [NUMBER.sub("#", line) for line in one] == [NUMBER.sub("#", line) for line in two]
    for left, right in zip(one, two, strict=True):
        for a, b in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True):
            assert math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance), (left, right)


def assert_within_spread(seeds: list[list[float]], found: list[float]) -> None:
    """No number is farther from those of serial runs with several seeds than these are from each other.

    A run that differs from three others by its seed alone lies outside of what they reach every second time.
    """
    assert len(found) > 0
    for number, *serial in zip(found, *seeds, strict=True):
        spread = max(serial) - min(serial)
        assert min(serial) - spread <= number <= max(serial) + spread, (number, serial)
