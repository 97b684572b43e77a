"""The benchmarks run and give well-formed results; how fast anything is, no test asks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def allreduce(monkeypatch):
    """The driver as a module."""
    monkeypatch.syspath_prepend(str(BENCH))
    import allreduce

    return allreduce


def test_the_allreduce_is_measured_and_right(tmp_path):
    file = tmp_path / "allreduce.json"
    sizes, rounds = [4, 16384], 2
    options = ["--libraries", "tarantella", "--sizes", *map(str, sizes), "--rounds", str(rounds), "--json", str(file)]
    done = subprocess.run(
        [sys.executable, str(BENCH / "allreduce.py"), *options],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    measured = [(row["row"], row["bytes"], row["round"]) for row in result["rows"]]
    names = ["tarantella private", "tarantella region"]
    assert measured == [(name, size, number + 1) for number in range(rounds) for name in names for size in sizes]
    assert all(row["correct"] and 0 < row["minimum"] <= row["median"] for row in result["rows"])
    assert [goal["minimum"]["met"] for goal in result["goals"]] == [None, None, None]  # nobody to compare with


def test_rounds_become_the_least_minimum_and_the_median_of_medians(allreduce):
    rounds = [(1.0, 9.0), (3.0, 4.0), (2.0, 5.0)]
    rows = [{"row": "mpich", "bytes": 4, "minimum": least, "median": middle} for least, middle in rounds]
    assert allreduce.summarize(rows) == {"mpich": {4: {"minimum": 1.0, "median": 5.0}}}


def test_goals_compare_with_the_best_mpi_at_each_size(allreduce):
    size = 65536
    times = {
        "mpich": 9.0,
        "openmpi": 4.0,
        "impi": 6.0,
        "tarantella private": 3.0,
        "tarantella region": 2.5,
        "vllm": 2.9,
    }
    summary = {name: {size: {"minimum": time, "median": 2 * time}} for name, time in times.items()}
    private, level, region = allreduce.judge(summary, [size])
    assert private["minimum"] == {"met": True, "missed": {}}
    assert level["median"] == {"met": True, "missed": {}}  # 0.967 counts as level
    assert region["median"] == {"met": False, "missed": {str(size): 1.6}}


def test_a_goal_is_open_while_an_mpi_is_missing(allreduce):
    times = {"mpich": 9.0, "impi": 6.0, "tarantella private": 3.0}
    summary = {name: {4: {"minimum": time, "median": time}} for name, time in times.items()}
    private, *_ = allreduce.judge(summary, [4])
    assert private["missing"] == ["openmpi"]
    assert private["minimum"]["met"] is None
