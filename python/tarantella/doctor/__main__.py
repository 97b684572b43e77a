"""The command `tarantella doctor`, which runs `python -m tarantella.doctor LAUNCHER words…`."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator

from . import cluster, machine, software
from .finding import BAD, Finding

_DESCRIPTION = """\
Checks this installation and this machine, and says what is wrong and how to repair it."""
_EPILOG = "exit codes: 0 nothing is wrong, 1 something is, 2 invalid command line"


def main(launcher: str, words: list[str]) -> int:
    """Prints the findings and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tarantella doctor", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="do not load the frameworks, which takes seconds for each")
    findings = list(_findings(launcher, parser.parse_args(words).quick))
    width = max(len(each.subject) for each in findings)
    for each in findings:
        print(each.lines(width))
    wrong = sum(each.state == BAD for each in findings)
    print(f"\n{wrong} thing{'s' * (wrong != 1)} wrong" if wrong else "\nnothing is wrong")
    return 1 if wrong else 0


def _findings(launcher: str, quick: bool) -> Iterator[Finding]:
    return itertools.chain(software.check(quick), machine.check(), cluster.check(launcher))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
