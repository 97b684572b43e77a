"""Running examples as users do: as plain scripts, and on ranks."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


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
    programs = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TNT_", "SLURM_"))},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KERAS_HOME": str(tmp_path_factory.mktemp("keras")),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "https_proxy": "http://127.0.0.1:9",
    }

    def run(ranks: int, *arguments: object, folder: Path, timeout: float = 280, **extra: str) -> Output:
        program = [sys.executable] if ranks == 1 else ["tarantella", "-n", str(ranks), "--no-gpu", "--"]
        done = subprocess.run(
            [*program, *map(str, arguments)],
            cwd=folder,
            env={**environment, **extra},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Output(done.returncode, done.stdout, done.stderr)

    return run


def assert_same_numbers(one: list[str], two: list[str], tolerance: float = 2e-3) -> None:
    """The same lines, and the numbers with a point in them close to each other."""
    assert [NUMBER.sub("#", line) for line in one] == [NUMBER.sub("#", line) for line in two]
    for left, right in zip(one, two, strict=True):
        for a, b in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True):
            assert math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance), (left, right)


def assert_within_spread(seeds: list[list[float]], found: list[float]) -> None:
    """No number is farther from those of serial runs with several seeds than these are from each other."""
    assert len(found) > 0
    for number, *serial in zip(found, *seeds, strict=True):
        spread = max(serial) - min(serial)
        assert min(serial) - spread <= number <= max(serial) + spread, (number, serial)
