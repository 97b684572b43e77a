"""The command `tarantella scaling`, which runs `python -m tarantella.scaling LAUNCHER words…`."""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

from .. import _machine
from .._job import signals
from . import advice, page, runs, table
from .measure import NO_FIT
from .table import MARK, Row

_QUIET = 0.1  # the difference between runs of one row that needs no note
# Options of the launcher that a run cannot have, also abbreviated as the launcher accepts them.
_ONE_JOB = ("--timeline", "--dry-run", "--cleanup", "--version")
_HOSTS = "--hostfile"
MEASURED, FAILED, USAGE, NOTHING_MEASURED = 0, 1, 2, 3

_DESCRIPTION = """\
Runs a script on several numbers of ranks, prints the speed-up and the shares of its time, and draws both on a page.
The batch size of the script decides what is measured: strong scaling if the global batch stays the same, weak scaling
if it grows with the ranks."""

_EPILOG = """\
All other options are passed to the launcher (tarantella --help) in every run.
exit codes: 0 all runs are measured, 1 a run failed, 2 invalid command line, 3 the script never calls fit"""


def main(launcher: str, words: list[str]) -> int:
    """Runs the script, prints the table on stdout, writes the page and returns the exit code."""
    found = _machine.usable_cores()
    parser = _parser(len(found))
    end = words.index("--") if "--" in words else len(words)
    options, others = parser.parse_known_args(words[:end])
    script = words[end + 1 :]
    _check(parser, options.output, others, script)
    each = options.cpus_per_rank or [max(1, len(found) // options.n[-1])]
    rows = [Row(ranks, cpus, ranks * cpus > len(found)) for cpus in each for ranks in options.n]
    command = shlex.join(["tarantella", "scaling", *words])
    report = functools.partial(_report, rows, command, _described(len(found)), len(found), options.output)
    with tempfile.TemporaryDirectory(prefix="tarantella-scaling-") as folder:
        job = runs.Job(launcher, others, script, Path(folder), options.verbose, found)
        if code := runs.refused(job, options.n[-1]):
            return code
        try:
            trained = _run(job, rows, options.repeat)
        except (KeyboardInterrupt, SystemExit):  # the runs so far may have taken hours
            print("stopped")
            if any(row.good for row in rows):
                report()
            raise
    if not trained:
        name = os.path.basename(script[0])
        print(
            f"{name} never trains in fit of a tarantella.Model, so there is nothing to measure; wrap the model: "
            "model = tnt.Model(model)"
        )
        return NOTHING_MEASURED
    return report()


def _check(parser: argparse.ArgumentParser, output: str, others: list[str], script: list[str]) -> None:
    """Exits with 2 for an invalid command line, before anything is started."""
    for name in (word.split("=")[0] for word in others if re.match("--[a-z]", word)):
        if _HOSTS.startswith(name):
            parser.error(f"scaling measures the cores of this machine: leave out other hosts ({name})")
        if any(each.startswith(name) for each in _ONE_JOB):
            parser.error(f"{name} is for one job, and scaling runs several: use it without scaling")
    if not script:
        parser.error("no script given; put it after '--': tarantella scaling -n 1,2 -- train.py")
    exists = os.path.exists(output)
    if not output or (exists and not os.path.isfile(output)) or not os.access(os.path.dirname(output) or ".", os.W_OK):
        parser.error(f"cannot write '{output}': give a file in a folder that can be written (--output)")


def _parser(cores: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tarantella scaling",
        usage="tarantella scaling [options] -- script.py [arguments]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    powers = [2**exponent for exponent in range(cores.bit_length())]
    parser.add_argument(
        "-n", "--n", type=_numbers, default=powers, metavar="N,…",
        help="numbers of ranks (default: 1,2,4,… up to the cores of this machine)",
    )  # fmt: skip
    parser.add_argument(
        "--cpus-per-rank", type=_numbers, metavar="C,…",
        help="numbers of cores of a rank (default: the cores of this machine divided by the most ranks)",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", type=_number, default=3, metavar="K", help="runs of each combination, in turn (default: 3)"
    )
    parser.add_argument("--output", default="scaling.html", metavar="FILE", help="the page (default: scaling.html)")
    parser.add_argument("--verbose", action="store_true", help="show the output of the script")
    return parser


def _number(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number from 1 on, not '{word}'")
    return int(word)


def _numbers(word: str) -> list[int]:
    try:
        return sorted({_number(each.strip()) for each in word.split(",")})
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"needs whole numbers from 1 on, such as 1,2,4, not '{word}'") from None


def _run(job: runs.Job, rows: list[Row], repeats: int) -> bool:
    """Runs every row once, then every row again, so that other work on the machine slows all of them.

    Does not repeat a failed row. Returns False, at once, if the first run has no call of fit.
    """
    for repeat in range(repeats):
        for row in rows:
            if row.failed:
                continue
            begin = time.monotonic()
            print(f"scaling: {row.name}, run {repeat + 1} of {repeats}: ", end="", flush=True)
            run = runs.run(job, row.ranks, row.cpus)
            row.runs.append(run)
            if run.error == NO_FIT and not any(each.good for each in rows):
                print("no call of fit")
                return False
            ended = f"fit took {run.measured.fit:.2f} s" if run.measured else run.failure
            print(f"{ended} (whole run {time.monotonic() - begin:.0f} s)", flush=True)
    return True


def _report(rows: list[Row], command: str, machine: str, cores: int, output: str) -> int:
    notes = _notes(rows, cores)
    print()
    print(table.text(table.HEAD, table.cells(rows)))
    if any(row.good for row in rows):
        print()
        print(table.text(*table.shares(rows)))
    print()
    print("\n".join(notes))
    try:
        _write(output, page.page(rows, command, machine, notes))
    except OSError as error:
        print(f"tarantella scaling: cannot write '{output}': {error.strerror}", file=sys.stderr)
        return FAILED
    print(f"page: {output}")
    return FAILED if any(row.failed for row in rows) else MEASURED


def _write(output: str, text: str) -> None:
    """Replaces the file atomically."""
    part = Path(f"{output}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


def _notes(rows: list[Row], cores: int) -> list[str]:
    """The lines below the table. The last one is the advice."""
    notes, good = [], [row for row in rows if row.good]
    if any(row.crowded for row in rows):
        notes.append(f"{MARK} needs more than the {cores} cores of this machine: not a part of the ideal line")
    if good:
        steady = all(row.usual.steady for row in good)
        part = "the epochs after the first" if steady else "all of fit, since there is one epoch only"
        notes += [advice.kind(rows), advice.work(rows), advice.base(rows)]
        notes.append(f"shares and utilisation (the share of compute, mean over ranks) are of {part}")
    spread = max((max(times) / min(times) for row in good if (times := [each.fit for each in row.good])), default=1.0)
    if spread > 1 + _QUIET:
        notes.append(
            f"the runs of one row differ by up to {100 * (spread - 1):.0f} %: other programs run on this machine, or "
            "its speed varies; ignore small differences"
        )
    notes += dict.fromkeys(warning for row in rows for run in row.runs for warning in run.warnings)
    return [*filter(None, notes), advice.advice(rows)]


def _described(cores: int) -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    model = re.search(r"^model name\s*: (.*)", _machine.text(Path("/proc/cpuinfo")), re.MULTILINE)
    processor = model[1] if model else "unknown CPU"
    return f"{now} · {cores} core{'s' * (cores > 1)}, {processor} · load {os.getloadavg()[0]:.1f} at the start"


if __name__ == "__main__":
    sys.exit(signals.run_until_signal(lambda: main(sys.argv[1], sys.argv[2:])))
