"""Rows of bench/training.py take turns, and stand still while others have theirs. Speed is not tested."""

import itertools
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
# A process with a thread that never rests. It writes for each turn: what, since when, until when, and the CPU time and
# the time that it has waited for it.
PLAYER = """
import json, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from turns import Turns

def spin():
    while True:
        time.sleep(0)

folder = Path(sys.argv[-1].partition("=")[2])
turns, seen = Turns(folder, sys.argv[2:-1]), []
threading.Thread(target=spin, daemon=True).start()
for subject in sys.argv[2:-1]:
    asked, used = time.monotonic(), time.process_time()
    turns.take(subject)
    began, waited = time.monotonic(), time.process_time() - used
    time.sleep(0.3)
    seen.append([subject, began, time.monotonic(), waited, began - asked])
(folder / f"{os.getpid()}.json").write_text(json.dumps(seen))
"""


def row(bench, count, *subjects):
    words = [sys.executable, "-c", PLAYER, str(BENCH), *subjects]
    return [bench("processes").Command(words)] * count, count


def test_each_row_has_a_turn_in_a_cycle_and_stands_still_in_the_others(bench):
    steps = ["step", "step"]
    played = bench("turns").play({"two": row(bench, 2, *steps, "epoch of 3"), "one": row(bench, 1, *steps)}, "a net")
    two, (one,) = played["two"].outputs, played["one"].outputs
    assert [len(each) for each in (two, *two, one)] == [2, 3, 3, 2]
    turns = sorted(
        [began, ended, name] for name, process in (("two", two[0]), ("one", one)) for _, began, ended, *_ in process
    )
    assert [name for *_, name in turns] == ["two", "one", "one", "two", "two"]
    assert all(ended <= begins for (_, ended, _), (begins, *_) in itertools.pairwise(turns))
    # the second turn: the other row had two of its own since
    assert all(waited < wait / 2 and wait > 0.6 for *_, waited, wait in (each[1] for each in two))


def test_a_row_that_fails_in_its_turn_ends_the_run_with_its_output(bench):
    fails = PLAYER.replace("time.sleep(0.3)", "raise SystemExit('its output')")
    command = bench("processes").Command([sys.executable, "-c", fails, str(BENCH), "step"])
    with pytest.raises(SystemExit, match=r"(?s)a net, bad failed:.*its output"):
        bench("turns").play({"good": row(bench, 1, "step"), "bad": ([command], 1)}, "a net")


def test_a_process_does_not_wait_where_it_takes_no_turns(bench, tmp_path):
    bench("turns").Turns(tmp_path, []).take("step")
