"""Running bench/ and its parts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Imports a module of bench/ by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.fixture
def benchmark_run(tmp_path):
    """`benchmark_run(script, *options)`: what a benchmark stores as JSON, and what it prints."""

    def run(script, *options):
        file = tmp_path / "result.json"
        done = subprocess.run(
            [sys.executable, str(BENCH / script), *map(str, options), "--json", str(file)],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(file.read_text()), done.stdout

    return run
