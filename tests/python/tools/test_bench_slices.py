"""Jobs of bench/examples.py run in slices, and what they were stopped is cut out of their timelines."""

import itertools
import json
import sys
from pathlib import Path

import pytest

# Starts a process of its own, which notes once in a while that it runs.
NOTES = """
import subprocess, sys, time
child = '''
import sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    ends = time.monotonic() + 1.5  # a clock that does not stop with the process
    while time.monotonic() < ends or file.tell() < 1000:
        print(time.monotonic(), file=file)
        time.sleep(0.01)
'''
sys.exit(subprocess.call([sys.executable, "-c", child, sys.argv[1]]))
"""


def test_one_job_runs_at_a_time_and_all_run_to_their_ends(bench, tmp_path):
    processes, slices = bench("processes"), bench("slices")
    files = [tmp_path / name for name in ("one", "two")]
    with processes.Job("one", 60) as one, processes.Job("two", 60) as two:
        for job, file in zip((one, two), files, strict=True):
            words = [sys.executable, "-c", NOTES, str(file)]
            job.start([processes.Command(words, folder=tmp_path)], output=False)
        stops = slices.alternate([one, two], 0.3)
    notes = [[float(line) for line in file.read_text().split()] for file in files]
    pauses = [[(a, b) for a, b in itertools.pairwise(each) if b - a > 0.2] for each in notes]
    for (pause, *_), other in zip(pauses, reversed(notes), strict=True):
        assert any(pause[0] < time < pause[1] for time in other)
    for each, others in zip(notes, reversed(pauses), strict=True):
        assert all(any(a <= time <= b for time in each) for a, b in others), "nobody ran in a pause"
    for each, its_pauses in zip(stops, pauses, strict=True):
        assert len(each) >= 2
        for begin, end in its_pauses:
            assert any(stop[0] - 0.1 < begin < stop[0] + 0.1 and abs(stop[1] - end) < 0.1 for stop in each)


def test_a_job_that_does_not_end_is_named(bench):
    processes = bench("processes")
    command = processes.Command([sys.executable, "-c", "import time; time.sleep(600)"])
    with processes.Job("a job", 0.2) as job:
        job.start([command], output=False)
        with pytest.raises(SystemExit, match="a job did not end in time"):
            bench("slices").alternate([job], 0.1)


def event(begin: float, end: float) -> dict:
    return {"ph": "X", "cat": "step", "ts": 1e6 * begin, "dur": 1e6 * (end - begin)}


def test_stops_are_cut_out_of_and_between_steps_of_all_ranks(bench, tmp_path):
    file = tmp_path / "timeline.json"
    running = [event(0, 1), event(1, 2.25), event(2.5, 3.5), {"ph": "i", "cat": "batch", "ts": 3.0e6}]
    # stops of 3 s at 1.5, within a step, and of 6 s at 5.4, between two
    stopped = [event(0, 1), event(1, 5.25), event(11.5, 12.5), {"ph": "i", "cat": "batch", "ts": 12.0e6}]
    name = {"ph": "M", "name": "process_name"}
    file.write_text(json.dumps({"traceEvents": [name, *stopped], "otherData": {"origin_us": 100e6}}))
    bench("slices").cut(Path(file), [(90.0, 95.0), (101.5, 104.5), (105.4, 111.4), (120.0, 130.0)])
    document = json.loads(file.read_text())
    assert document["traceEvents"] == [name, *running]
    assert document["otherData"] == {"origin_us": 100e6}
