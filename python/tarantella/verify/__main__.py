"""The command `tarantella verify`, which runs `python -m tarantella.verify LAUNCHER words…`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import causes, compare, runs

AGREE, DIFFER, USAGE, CANNOT_COMPARE = 0, 1, 2, 3

_DESCRIPTION = """\
Runs a script on one process and on N ranks, a few training steps each, and says whether losses and weights agree:
if not, which step, tensor and rank is the first to differ, and why."""

_EPILOG = """\
All other options go to the launcher (tarantella --help), for both runs.
exit codes: 0 both agree, 1 they differ, 2 mistakes on the command line, 3 nothing could be compared"""


def main(launcher: str, words: list[str]) -> int:
    """Compares, prints the verdict on stdout and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tarantella verify",
        usage="tarantella verify [options] -- script.py [arguments]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--n", type=_at_least(2), default=2, metavar="N", help="number of ranks (default: 2)")
    parser.add_argument(
        "--steps", type=_at_least(1), default=5, metavar="K", help="stop each run after K training steps (default: 5)"
    )
    parser.add_argument("--verbose", action="store_true", help="show what the script prints")
    end = words.index("--") if "--" in words else len(words)
    options, others = parser.parse_known_args(words[:end])
    script = words[end + 1 :]
    if not script:
        parser.error("no script given: put it behind '--'")
    with tempfile.TemporaryDirectory(prefix="tarantella-verify-") as folder:
        job = runs.Job(launcher, others, script, options.steps, Path(folder), options.verbose)
        return runs.refused(job, options.n) or _verify(job, options.n)


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(word: str) -> int:
        number = int(word)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least} (got {word})")
        return number

    whole_number.__name__ = "whole number"  # as argparse says it
    return whole_number


def _verify(job: runs.Job, size: int) -> int:
    script = os.path.basename(job.script[0])
    one = runs.run(job, "one", 1, f"{script}, {job.steps} steps at most")
    if one.code:
        return _failed(one)
    if not one.observed[0]:
        print(f"{script} never trains: it has ended without a fit or train_on_batch of a tarantella.Model")
        return CANNOT_COMPARE
    several = runs.run(job, "ranks", size, f"{script}, {job.steps} steps at most")
    verdict = compare.compare(one.observed[0], several.observed)
    if isinstance(verdict, compare.Agreement):
        return _failed(several) if several.code else _agree(verdict, several.what)
    if several.code and verdict.kind == "steps":
        return _failed(several)
    findings = []
    if verdict.kind in ("loss", "weights"):
        observed = verdict.observation
        why = f"looking for the cause in the first batch of {observed.method} call {observed.call}"
        findings = runs.run(job, "examine", 1, why, examine=[observed.method, observed.call]).findings
    print(f"differ: {verdict.line}")
    for line in causes.explain(verdict, findings, several.warnings):
        print(line)
    if several.code:
        _failed(several)
    return DIFFER


def _agree(verdict: compare.Agreement, what: str) -> int:
    steps = f"{verdict.steps} step{'s' * (verdict.steps != 1)}"
    largest = "to the last bit"
    if verdict.largest:
        largest = (
            f"largest difference {verdict.largest:.1e}, in {verdict.tensor!r} after {verdict.label}: "
            f"rounding of {verdict.precision}"
        )
    print(f"agree: {what} gave what one process gives over {steps} ({largest})")
    return AGREE


def _failed(run: runs.Run) -> int:
    if run.output:
        print(run.output)
    print(f"the run on {run.what} failed with exit code {run.code}")
    return CANNOT_COMPARE


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
