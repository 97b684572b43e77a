"""Runs jobs in slices of a second or two, so that a machine whose speed drifts is as fast or slow for all of them.

Their programs know nothing of it: while one job runs, all processes of the others are stopped (SIGSTOP). The time that
a job was stopped is then cut out of its timeline.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from processes import Job

SECONDS = 1.5  # of a slice
Stop = tuple[float, float]  # its begin and end, by time.monotonic()


def alternate(jobs: list[Job], seconds: float = SECONDS) -> list[list[Stop]]:
    """Runs jobs that have started to their ends. Returns when each was stopped, in order."""
    stops: list[list[Stop]] = [[] for _ in jobs]
    deadline = time.monotonic() + sum(job.seconds for job in jobs)
    for job in jobs:
        job.suspend()
    since = dict.fromkeys(range(len(jobs)), time.monotonic())
    running = list(since)
    while running:
        for number in list(running):
            job = jobs[number]
            if number in since:
                stops[number].append((since.pop(number), time.monotonic()))
                job.resume()
            if job.ends_within(seconds):
                running.remove(number)
            elif time.monotonic() > deadline:
                job.fail("did not end in time")
            elif len(running) > 1:
                job.suspend()
                since[number] = time.monotonic()
    return stops


def cut(timeline: Path, stops: list[Stop]) -> None:
    """Takes the time of the stops out of the file."""
    document = json.loads(timeline.read_text("utf-8"))
    origin = document["otherData"]["origin_us"]
    stopped = [(1e6 * begin - origin, 1e6 * end - origin) for begin, end in stops]

    def running(moment: float) -> float:
        """Microseconds from the start of the file to this moment, without those of stops."""
        return moment - sum(max(0.0, min(moment, end) - max(0.0, begin)) for begin, end in stopped)

    for event in document["traceEvents"]:
        if event["ph"] in "XiC":
            begin, end = event["ts"], event["ts"] + event.get("dur", 0.0)
            event["ts"] = running(begin)
            if "dur" in event:
                event["dur"] = running(end) - event["ts"]
    timeline.write_text(json.dumps(document), "utf-8")
