"""--max-restarts: which failures start all ranks again, how often, with which words and exit code."""

from __future__ import annotations

import re
import signal
import time

import pytest

pytestmark = pytest.mark.timeout(120)

# Rank 1 does in each attempt what its argument says; the others wait for the launcher to end them, or for rank 1.
SCRIPT = """
import os, sys, time
import tarantella as tnt
from tarantella._job import report
rank, attempt = tnt.get_rank(), tnt.restart_count()
open(f"attempt{attempt}-{rank}", "w").close()
does = sys.argv[1:][min(attempt, len(sys.argv) - 2)]
if "epoch" in does:
    report.send(report.PROGRESS, "")
if "well" in does:
    sys.exit(0)
if rank == 1:
    if "kill" in does: os.kill(os.getpid(), 9)
    if "raise" in does: raise ValueError("of rank 1")
    if "exit" in does: sys.exit(int(does.rpartition(" ")[2]))
time.sleep(60)
"""
SAME = "not restarted: the same failure twice, without a snapshot or a completed epoch between them"
EXCEPTION = ["--restart-on=exception"]
NOT_CHOSEN = "not restarted: '{}' is not in --restart-on"


def run(launcher, *options: str, does: tuple[str, ...], **environment: str):
    launcher.script(SCRIPT)
    ended = launcher.run("-n", 2, *options, "script.py", *does, env=environment)
    launcher.wait_for_none()
    attempts = {file.name.split("-")[0] for file in launcher.folder.glob("attempt*-1")}
    said = [line.removeprefix("tarantella: ") for line in ended.err.splitlines() if re.search("restart", line)]
    return ended, len(attempts), said


@pytest.mark.parametrize(
    ("options", "does", "code", "attempts", "said"),
    [
        (["--max-restarts=3"], ["kill", "well"], 0, 2, ["restart 1 of 3 in 1 s"]),
        (["--max-restarts=3"], ["kill", "kill"], 137, 2, ["restart 1 of 3 in 1 s", SAME]),
        (["--max-restarts=1"], ["kill", "epoch kill"], 137, 2, ["restart 1 of 1 in 1 s", "used up"]),
        (["--max-restarts=3"], ["epoch kill", "epoch kill", "well"], 0, 3, ["restart 1", "restart 2 of 3 in 1 s"]),
        (["--max-restarts=3"], ["raise"], 1, 1, [NOT_CHOSEN.format("exception")]),
        (["--max-restarts=3"], ["exit 3"], 3, 1, [NOT_CHOSEN.format("exception")]),
        (["--max-restarts=3", *EXCEPTION], ["raise", "exit 3", "well"], 0, 3, ["1 of 3 in 1 s", "2 of 3 in 2 s"]),
        (["--max-restarts=3", "--restart-on=exception"], ["kill"], 137, 1, [NOT_CHOSEN.format("killed")]),
        (["--max-restarts=3", "--restart-on=host"], ["kill"], 137, 1, [NOT_CHOSEN.format("killed")]),
        (["--max-restarts=3", "--restart-on=killed,exception"], ["exit 75"], 75, 1, []),
        (["--max-restarts=3"], ["well"], 0, 1, []),
        (["--max-restarts=0"], ["kill"], 137, 1, []),
        ([], ["kill"], 137, 1, []),
    ],
)  # fmt: skip
def test_failures_that_the_user_has_chosen_start_the_ranks_again(launcher, options, does, code, attempts, said):
    ended, made, lines = run(launcher, *options, does=does)
    assert (ended.returncode, made) == (code, attempts), ended.err
    assert len(lines) == len(said), lines
    for line, part in zip(lines, said, strict=True):
        assert part in line


def test_the_variable_allows_restarts_too(launcher):
    ended, attempts, said = run(launcher, does=("kill", "well"), TNT_MAX_RESTARTS="1")
    assert (ended.returncode, attempts, said) == (0, 2, ["restart 1 of 1 in 1 s"])


def test_logs_of_all_attempts_are_kept(launcher):
    launcher.script("import os; print('attempt', os.environ['TNT_RESTART_COUNT'], flush=True)\n" + SCRIPT)
    ended = launcher.run("-n", 2, "--log-dir=logs", "--max-restarts=2", "script.py", "kill", "well")
    assert ended.returncode == 0
    assert (launcher.folder / "logs" / "rank-1.log").read_text() == "attempt 0\nattempt 1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_before_a_restart(launcher, number):
    launcher.script(SCRIPT)
    words = ("-n", 2, "--max-restarts=9", "--restart-on=exception", "script.py", "exit 3", "exit 4", "exit 5", "exit 6")
    job = launcher.start(*words)
    launcher.wait_for_files("attempt2-1")
    while len(launcher.pids()) > 1:  # until the third attempt is over: the launcher waits 4 s
        time.sleep(0.01)
    job.send_signal(number)
    began = time.monotonic()
    _, err = job.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert job.returncode == -number
    assert err.decode().splitlines()[-1] == f"tarantella: stopped by signal {number.value} ({number.name})"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-restarts=many"], "option '--max-restarts' needs a whole number of restarts, 0 or more, not 'many'"),
        (["--restart-on=host"], "option '--restart-on' needs '--max-restarts', the number of restarts allowed"),
        (["--max-restarts=1", "--restart-on=all"], "option '--restart-on' takes killed, host and exception"),
        (["--max-restarts=1", "--min-hosts=2"], "option '--min-hosts' asks for 2 hosts, but the job has 1"),
        (["--max-restarts=1", "--restart-on=killed", "--host-timeout=3"], "'--restart-on killed' leaves out"),
    ],
)
def test_options_that_contradict_one_another_are_refused(launcher, options, said):
    ended, attempts, _ = run(launcher, *options, does=("well",))
    assert (ended.returncode, attempts) == (2, 0)
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
