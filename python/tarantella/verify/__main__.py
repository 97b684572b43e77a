"""The command `tarantella verify`, which runs `python -m tarantella.verify LAUNCHER words…`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._job import signals
from .._job.log import abbreviated
from . import causes, compare, record, runs

AGREE, DIFFER, USAGE, CANNOT_COMPARE = 0, 1, 2, 3

_DESCRIPTION = """\
Runs the first training steps of a script on one process and on N ranks, and compares losses and weights. If they
differ, prints the first step, tensor and rank, and the likely cause."""

_EPILOG = """\
All other options are passed to the launcher (tarantella --help) in both runs.
exit codes: 0 both agree, 1 they differ, 2 invalid command line, 3 nothing could be compared"""


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
    parser.add_argument("-n", "--n", type=int, default=2, metavar="N", help="number of ranks (default: 2)")
    parser.add_argument(
        "--steps", type=int, default=5, metavar="K", help="stop each run after K training steps (default: 5)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the output of the script")
    end = words.index("--") if "--" in words else len(words)
    options, others = parser.parse_known_args(words[:end])
    for name, least in (("n", 2), ("steps", 1)):
        if (number := getattr(options, name)) < least:
            parser.error(f"argument --{name}: must be at least {least} (got {number})")
    if any(word.split("=")[0] == "--timeline" for word in others):
        parser.error("--timeline is for one job, and verify runs several: use it without verify")
    script = words[end + 1 :]
    if not script:
        parser.error("no script given; put it after '--'")
    with tempfile.TemporaryDirectory(prefix="tarantella-verify-") as folder:
        job = runs.Job(launcher, others, script, options.steps, Path(folder), options.verbose)
        return runs.refused(job, options.n) or _verify(job, options.n)


def _verify(job: runs.Job, size: int) -> int:
    what = f"{os.path.basename(job.script[0])}, {job.steps} steps at most"
    one = runs.run(job, "one", 1, what)
    if one.code:
        return _failed(one)
    if not any(moment.step for moment in one.observed[0]):
        print(f"{job.script[0]} never trains: it ended without a step of fit or train_on_batch of tarantella.Model")
        return CANNOT_COMPARE
    several = runs.run(job, "ranks", size, what)
    verdict = compare.compare(one.observed[0], several.observed)
    if several.code and (isinstance(verdict, compare.Agreement) or verdict.kind == "steps"):
        return _failed(several)
    if isinstance(verdict, compare.Agreement):
        return _agree(verdict, several)
    return _explain(job, one, several, verdict)


def _explain(job: runs.Job, one: runs.Run, several: runs.Run, verdict: compare.Difference) -> int:
    """Finds the cause by experiments and prints the result."""
    findings: list[tuple[str, str, str]] = []
    size = len(several.observed)
    if verdict.kind in ("loss", "weights"):
        moment = verdict.observation
        why = f"looking for the cause in the first batch of {moment.method} call {moment.call}"
        findings = runs.run(job, "examine", 1, why, examine=[moment.method, moment.call]).findings()
        if not _suspects(findings):
            findings += _on_ranks(job, size, moment)
    idle = [name for kind, name, _ in findings if kind == "no gradient"]
    if verdict.tensor in idle:
        others = compare.compare(one.observed[0], several.observed, without=idle)
        if isinstance(others, compare.Agreement):
            return _agree(others, several, f"; without {', '.join(idle)}, whose gradients are only rounding")
        verdict = others
    layers = [layer for _, _, layer in findings if layer]
    checked: list[str] = []
    if layers:
        _, checked = _again(job, size, f"with {abbreviated(layers)} switched off (training=False)", idle, off=layers)
    elif (
        verdict.kind in ("loss", "weights")
        and not _suspects(findings)
        and verdict.observation.precision == verdict.observation.loss_precision == "float32"
    ):
        until = next(i for i, each in enumerate(one.observed[0], 1) if each is verdict.observation)
        steps = max(1, sum(each.step > 0 for each in one.observed[0][:until]))  # later, float64 may differ as well
        how = f"over {_steps(steps)} in float64"
        is_rounding, checked = _again(replace(job, steps=steps), size, how, idle, floatx="float64")
        findings += [("rounding", "float32", "")] * is_rounding
    print(f"differ: {verdict.line}")
    for line in [*causes.explain(verdict, findings, several.warnings), *checked]:
        print(line)
    if several.code:
        _failed(several)
    return DIFFER


def _steps(number: int) -> str:
    return f"{number} step{'s' * (number != 1)}"


def _suspects(findings: list[tuple[str, str, str]]) -> bool:
    return any(kind in causes.SUSPECTS for kind, _, _ in findings)


def _on_ranks(job: runs.Job, size: int, moment: record.Observation) -> list[tuple[str, str, str]]:
    """The parts of the model whose results for the same batch differ on ranks."""
    repeated = runs.run(job, "repeat", size, "the same batch on every rank", examine=[moment.method, moment.call])
    ranks: dict[str, list[str]] = {}
    for rank in range(size):
        for kind, name, _ in repeated.findings(rank):
            if kind == "rank":
                ranks.setdefault(name, []).append(str(rank))
    return [("rank", f"{name}, on rank{'s' * (len(on) > 1)} {abbreviated(on)}", "") for name, on in ranks.items()]


def _again(job: runs.Job, size: int, how: str, idle: list[str], **plan: Any) -> tuple[bool, list[str]]:
    """Compares both runs again with a changed plan. Returns whether they agree, and a line about it."""
    one, several = (runs.run(job, f"again{ranks}", ranks, f"again {how}", **plan) for ranks in (1, size))
    seen = one.observed[0]
    if one.code or several.code or not seen or plan.get("floatx", seen[-1].precision) != seen[-1].precision:
        return False, []
    verdict = compare.compare(seen, several.observed, without=idle)
    if isinstance(verdict, compare.Agreement):
        return verdict.steps > 0, [f"checked: {how} both agree"]
    return False, [f"checked: {how} they still differ: {verdict.line}"]


def _agree(verdict: compare.Agreement, several: runs.Run, but: str = "") -> int:
    if not verdict.steps:
        print(f"nothing could be compared: {verdict.not_finite} is not finite, on one process and on {several.what}")
        return CANNOT_COMPARE
    largest = "to the last bit"
    if verdict.largest:
        where = f"in {verdict.tensor!r} after {verdict.label}: rounding of {verdict.precision}"
        largest = f"largest difference {verdict.largest:.1e}, {where}"
    end = f"; {verdict.not_finite} is not finite in either run, so it cannot be compared" if verdict.not_finite else ""
    print(f"agree: {several.what} gave the results of one process over {_steps(verdict.steps)} ({largest}{but}){end}")
    return AGREE


def _failed(run: runs.Run) -> int:
    if run.output:
        print(run.output)
    print(f"the run on {run.what} failed with exit code {run.code}")
    return CANNOT_COMPARE


if __name__ == "__main__":
    sys.exit(signals.run_until_signal(lambda: main(sys.argv[1], sys.argv[2:])))
