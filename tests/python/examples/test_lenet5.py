"""The example of the demo, as a user starts it: on two ranks, and as plain Keras on one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/quick_start/model.py"
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def no_mnist(monkeypatch, tmp_path):
    """The same digits everywhere: an empty cache, and a proxy that refuses every connection."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")


def run(command, *arguments):
    return subprocess.run(
        [*map(str, command), str(EXAMPLE), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def train(command, report, *more):
    done = run(command, f"--json={report}", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("MNIST is neither cached nor reachable") == 1
    return json.loads(report.read_text())


@pytest.mark.slow
def test_two_ranks_learn_what_one_process_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("TNT_TENSORBOARD_ON_ALL_DEVICES", "true")
    one = train([sys.executable], tmp_path / "one.json")
    two = train(["tarantella", "-n", "2", "--no-gpu", "--"], tmp_path / "two.json", f"--model_dir={tmp_path / 'logs'}")
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["rank_0", "rank_1"]
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert one["parameters"] == two["parameters"] == 61_706
    assert one["accuracy"] >= 0.97
    assert two["accuracy"] >= 0.97
    # Float32 rounding grows over hundreds of steps; three images of the 359 may fall on the other side.
    assert abs(one["accuracy"] - two["accuracy"]) <= 3 / 359 + 1e-6
    assert abs(one["loss"] - two["loss"]) <= 0.02


@pytest.mark.parametrize("option", ["--batch_size", "--train_epochs"])
def test_a_number_below_one_is_a_clear_error(option):
    done = run([sys.executable], f"{option}=0")
    assert done.returncode == 2
    assert f"{option} is 0" in done.stderr
    assert "Traceback" not in done.stderr
