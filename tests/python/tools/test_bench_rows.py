"""The rows of bench/training.py are started, watched, weighed and ended. Speed is not tested."""

import os
import signal
import subprocess
import sys
import time

import pytest

STAT = """cpu  9999 0 0 0 0 0 0 0 0 0
cpu0 100 20 30 4000 500 6 7 8 0 0
cpu1 1000 0 0 0 0 0 0 0 0 0
cpu12 5 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_strangers_used_what_is_not_idle_and_not_ours(bench):
    processes = bench("processes")
    tick = os.sysconf("SC_CLK_TCK")
    assert processes.busy_seconds(STAT, {0}) == pytest.approx(171 / tick)
    assert processes.busy_seconds(STAT, {0, 12}) == pytest.approx(176 / tick)
    before, after = processes.Usage(10.0, 5.0, 100.0), processes.Usage(29.0, 23.8, 110.0)
    assert processes.strangers(before, after, 2) == pytest.approx(0.2 / 20)
    assert processes.strangers(before, after._replace(ours=30.0), 2) == 0.0  # clocks that differ


def test_all_processes_of_a_row_are_weighed(bench):
    processes = bench("processes")
    program = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as parent:
        try:
            deadline = time.monotonic() + 60
            while len(found := processes.family([parent.pid])) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(found) == 2
            each = {pid: processes.pss(pid) for pid in found}
            assert sum(each.values()) > each[parent.pid] > 1 << 20
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
    assert processes.pss(parent.pid) == 0


def test_a_row_that_fails_ends_the_run_with_its_output(bench):
    processes = bench("processes")
    command = processes.Command([sys.executable, "-c", "print('its output', flush=True); raise SystemExit(3)"])
    with pytest.raises(SystemExit, match=r"(?s)a row failed:.*its output"):
        processes.run([command, command], "a row", seconds=120)


def test_a_row_may_have_variables_of_its_own(bench, monkeypatch):
    monkeypatch.setenv("TNT_CHECK_GRADIENTS", "0")
    processes = bench("processes")
    says = "import json, os, sys; json.dump(os.environ['TNT_CHECK_GRADIENTS'], open(sys.argv[1][9:] + '/1.json', 'w'))"
    words = [sys.executable, "-c", says]
    assert processes.run([processes.Command(words, environment={"TNT_CHECK_GRADIENTS": "1"})], "").outputs == ["1"]
    assert processes.run([processes.Command(words)], "").outputs == ["0"]


def test_a_row_that_hangs_ends_the_run(bench):
    processes = bench("processes")
    with pytest.raises(SystemExit, match="a row did not end in time"):
        processes.run([processes.Command([sys.executable, "-c", "import time; time.sleep(600)"])], "a row", seconds=0.1)


@pytest.mark.full
def test_rows_run_side_by_side_and_are_timed(benchmark_run, tmp_path):
    rows = ["silent in lockstep", "silent, again", "2 ranks", "2 ranks, started"]
    result, said = benchmark_run("training.py", "--tiny", "--rounds", 1, "--net", "lenet5", "--rows", *rows)
    *in_turns, started = (result["rounds"][0]["measured"]["lenet5"][row] for row in rows)
    assert [len(row["step"]) for row in in_turns] == [2, 2, 2]
    assert len(started["start"]) == 1
    assert "noisy" in said
    assert not (tmp_path / "table.md").exists()
