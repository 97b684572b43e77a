"""A rank that fails ends the job: the rank that is named, the output, the exit code, and that nothing is left."""

from __future__ import annotations

import json
import re
import subprocess
import time

import pytest

pytestmark = pytest.mark.timeout(120)


def run_ranks(launcher, doing: dict[int, str], *options: str, ranks: int | None = None):
    """Runs ranks.py, with the code of each rank; a rank without code waits for long."""
    launcher.copy("ranks")
    result = launcher.run("-n", ranks or max(*doing, 2), *options, "script.py", json.dumps(doing))
    launcher.wait_for_none()
    return result


def blamed(result) -> tuple[int, str]:
    lines = [line for line in result.err.splitlines() if line.startswith("tarantella: rank ")]
    assert len(lines) == 1
    match = re.fullmatch(r"tarantella: rank (\d+) \(pid \d+ on \S+\) (.*)", lines[0])
    return int(match[1]), match[2]


@pytest.mark.parametrize("code", [1, 2, 3, 77, 127, 255])
@pytest.mark.parametrize("rank", [0, 2])
def test_exit_code_of_the_failed_rank(launcher, code, rank):
    result = run_ranks(launcher, {rank: f"until_ready(1); sys.exit({code})"}, ranks=3)
    assert result.returncode == code
    assert blamed(result) == (rank, f"ended with exit code {code}; the other ranks were stopped")
    assert "Traceback" not in result.err


def test_exit_code_of_a_job_of_one_rank(launcher):
    result = run_ranks(launcher, {0: "sys.exit(5)"}, ranks=1)
    assert result.returncode == 5
    assert blamed(result) == (0, "ended with exit code 5")


def test_success_shows_only_the_output_of_the_master(launcher):
    result = run_ranks(launcher, dict.fromkeys(range(3), "print('well')"), ranks=3)
    assert (result.returncode, result.out, result.err) == (0, "well\n", "")


def test_ranks_that_end_well_early_are_waited_for(launcher):
    doing = {0: "ready()", 1: "until_ready(0); time.sleep(2.5); ready()"}
    result = run_ranks(launcher, doing, ranks=2)
    assert (result.returncode, result.err) == (0, "")
    assert (launcher.folder / "ready1").exists()


@pytest.mark.parametrize(
    ("name", "number", "cure"),
    [
        ("KILL", 9, "; if the machine ran out of memory, see dmesg or use fewer ranks"),
        ("SEGV", 11, ""),
        ("ABRT", 6, ""),
        ("TERM", 15, ""),
    ],
)
def test_killed_by_a_signal(launcher, name, number, cure):
    doing = {2: f"until_ready(1); os.kill(os.getpid(), signal.SIG{name}); time.sleep(9)"}
    result = run_ranks(launcher, doing, ranks=3)
    assert result.returncode == 128 + number
    said = f"was killed by signal {number} (SIG{name}){cure}; the other ranks were stopped"
    assert blamed(result) == (2, said)


def test_traceback_of_the_first_cause_once(launcher):
    doing = {1: "until_ready(2); raise ValueError('Grüße\\nin two lines')", 2: "ready(); time.sleep(100)"}
    result = run_ranks(launcher, doing, ranks=4)
    assert result.returncode == 1
    assert result.err.count("Traceback (most recent call last):") == 1
    assert "ValueError: Grüße\nin two lines\ntarantella: rank 1 " in result.err


def test_only_the_last_traceback_of_much_output(launcher):
    doing = {
        1: """
for line in range(20000): print("noise", line, file=sys.stderr)
try:
    raise KeyError("an earlier one, caught")
except KeyError:
    import traceback; traceback.print_exc()
raise RuntimeError("the real one")
"""
    }
    result = run_ranks(launcher, doing, ranks=2)
    assert "\nnoise" not in result.err
    assert "\nKeyError:" not in result.err
    assert result.err.count("Traceback") == 1
    assert "RuntimeError: the real one" in result.err


def test_last_twenty_lines_where_there_is_no_traceback(launcher):
    doing = {1: "for line in range(100): print('line', line, file=sys.stderr)\nsys.exit(3)"}
    result = run_ranks(launcher, doing, ranks=2)
    assert result.err.startswith("".join(f"line {line}\n" for line in range(80, 100)) + "tarantella: rank 1 ")


def test_a_very_long_last_line_is_cut_between_characters(launcher):
    doing = {1: "sys.stderr.buffer.write('é'.encode() * 500000 + b'!'); sys.exit(3)"}
    result = run_ranks(launcher, doing, ranks=2)  # launcher.run decodes strictly
    first = result.err.split("\n")[0]
    assert set(first) == {"é", "!"}
    assert len(first.encode()) <= 64 * 1024


def test_the_masters_own_message_is_enough(launcher):
    """A disagreement: all ranks raise the same; it is on the terminal already."""
    doing = {
        0: "signal.signal(signal.SIGTERM, signal.SIG_IGN); until_ended(1); raise ValueError('shapes differ')",
        1: "ready(); raise ValueError('shapes differ')",
    }
    result = run_ranks(launcher, doing, ranks=2)
    assert result.returncode == 1
    assert result.err.count("Traceback") == result.err.count("ValueError: shapes differ") == 1
    assert blamed(result)[0] == 1


def test_the_masters_failure_of_another_is_not_enough(launcher):
    doing = {0: "until_ready(1); sys.exit(86)", 1: "ready(); raise ValueError('the cause')"}
    result = run_ranks(launcher, doing, ranks=2)
    assert "ValueError: the cause" in result.err
    assert blamed(result)[0] == 1


def test_ranks_that_blame_another_are_not_the_cause(launcher):
    doing = {
        0: "until_ready(2); sys.exit(86)",
        1: "until_ready(2); sys.exit(86)",
        2: "ready(); time.sleep(0.4); sys.exit(7)",
    }
    result = run_ranks(launcher, doing, ranks=3)
    assert result.returncode == 7
    assert blamed(result)[0] == 2


def test_who_is_blamed_may_take_its_time_to_end(launcher):
    """It has left the job, its traceback and its exit handlers are still to come."""
    dying = "import atexit; atexit.register(time.sleep, 0.5); ready(); time.sleep(1.5); raise ValueError('the cause')"
    doing = {0: "until_ready(2); sys.exit(86)", 1: "until_ready(2); sys.exit(86)", 2: dying}
    result = run_ranks(launcher, doing, ranks=3)
    assert result.returncode == 1
    assert result.err.count("ValueError: the cause") == 1
    assert blamed(result)[0] == 2


def test_ranks_that_blame_another_and_there_is_none(launcher):
    result = run_ranks(launcher, {1: "sys.exit(86)"}, ranks=3)
    assert result.returncode == 86
    assert blamed(result)[0] == 1


def test_ranks_that_ignore_sigterm_are_gone_in_time(launcher):
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready(); time.sleep(100)"
    failing = "until_ready(0); until_ready(2); open('t0', 'w').write(str(time.time())); sys.exit(3)"
    launcher.copy("ranks")
    result = launcher.run("-n", "3", "script.py", json.dumps({0: ignoring, 1: failing, 2: ignoring}))
    took = time.time() - float((launcher.folder / "t0").read_text())
    assert launcher.pids() == []
    assert result.returncode == 3
    assert took < 20  # two seconds on a quiet machine; the ranks sleep for 100


def test_stopped_rank_is_killed(launcher):
    doing = {1: "until_ready(0); sys.exit(3)", 2: "os.kill(os.getpid(), signal.SIGSTOP)"}
    assert run_ranks(launcher, doing, ranks=3).returncode == 3


GRANDCHILD = "import subprocess; subprocess.Popen(['sleep', '100']{more}); "


@pytest.mark.parametrize("more", ["", ", start_new_session=True", ", process_group=0"])
@pytest.mark.parametrize("ending", ["ready()", "sys.exit(3)"])
@pytest.mark.parametrize("rank", [0, 1])
def test_grandchildren_are_gone(launcher, more, ending, rank):
    if "process_group" in more:
        more = ", preexec_fn=os.setpgrp"
    doing = {0: "pass", 1: "pass"}
    doing[rank] = GRANDCHILD.format(more=more) + ending
    launcher.copy("ranks")
    result = launcher.run("-n", "2", "script.py", json.dumps(doing))
    assert launcher.pids() == []
    assert result.returncode == (3 if "exit" in ending else 0)


def test_background_job_of_the_shell_that_became_the_launcher_survives(launcher):
    """`exec tarantella > >(tee log)` in a batch script: tee is a child of ours, but not the job's."""
    launcher.script("print('x')")
    batch = f"#!/bin/sh\n(sleep 0.5; echo done > survived) &\nexec {launcher.executable} script.py\n"
    launcher.script(batch, "run", 0o755)
    subprocess.run(["./run"], cwd=launcher.folder, env=launcher.env, check=True, capture_output=True)
    launcher.wait_for_files("survived")
    launcher.wait_for_none()
