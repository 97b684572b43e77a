"""Runs jobs in slices of a second or two, so that a machine whose speed drifts is as fast or slow for all of them.

Their programs know nothing of it: while one job runs, all processes of the others are stopped (SIGSTOP). The time that
a job was stopped is then cut out of its timeline.
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

from processes import Job

SECONDS = 1.5  # of a slice


def alternate(jobs: list[Job], seconds: float = SECONDS) -> list[list[float]]:
    """Runs jobs that have started to their ends. Returns how long each was stopped each time, in seconds."""
    stops: list[list[float]] = [[] for _ in jobs]
    deadline = time.monotonic() + sum(job.seconds for job in jobs)
    for job in jobs:
        job.suspend()
    since = dict.fromkeys(range(len(jobs)), time.monotonic())
    running = list(since)
    while running:
        for number in list(running):
            job = jobs[number]
            if number in since:
                stops[number].append(time.monotonic() - since.pop(number))
                job.resume()
            ends = time.monotonic() + seconds
            if job.ends_within(seconds):
                running.remove(number)
                if running:
                    time.sleep(max(0.0, ends - time.monotonic()))  # so that all stops are as long
            elif time.monotonic() > deadline:
                job.fail("did not end in time")
            elif len(running) > 1:
                job.suspend()
                since[number] = time.monotonic()
    return [each[number == 0 :] for number, each in enumerate(stops)]  # the first job was hardly stopped at first


def cut(timeline: Path, stop: float) -> None:
    """Takes stops of `stop` seconds each out of the file: every pause of all ranks that is as long has had one.

    A pause of the ranks' own that is longer than a stop gets shorter, so that only what happens within steps, which are
    shorter, may be read afterwards.
    """
    document = json.loads(timeline.read_text("utf-8"))
    events = [event for event in document["traceEvents"] if event["ph"] in "XiC"]
    times = sorted({time for event in events for time in _ends(event)})
    # An event comes within moments of a stop, so a pause is hardly shorter than the stop in it.
    pauses = [(after, _stops(after - before, 1e6 * stop)) for before, after in itertools.pairwise(times)]
    gone, lost = {times[0]: 0.0} if times else {}, 0.0
    for after, count in pauses:
        lost += count * 1e6 * stop
        gone[after] = lost
    for event in events:
        begin, end = _ends(event)
        event["ts"] = begin - gone[begin]
        if "dur" in event:
            event["dur"] = end - gone[end] - event["ts"]
    timeline.write_text(json.dumps(document), "utf-8")


def _ends(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event.get("dur", 0.0)


def _stops(pause: float, stop: float) -> int:
    return int(pause / (0.98 * stop))
