"""The command `tarantella doctor`, which runs `python -m tarantella.doctor LAUNCHER words…`."""

from __future__ import annotations

import argparse
import sys

from . import BAD, machine, software

_DESCRIPTION = """\
Checks this installation and this machine, and lists problems with their cures."""
_EPILOG = "exit codes: 0 nothing is wrong, 1 something is, 2 invalid command line"


def main(launcher: str, words: list[str]) -> int:
    """Prints the findings and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tarantella doctor", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="do not load the frameworks, which takes seconds for each")
    quick = parser.parse_args(words).quick
    findings = [*software.check(quick), *machine.check(launcher)]
    width = max(len(each.subject) for each in findings)
    for each in findings:
        print(each.lines(width))
    wrong = sum(each.state == BAD for each in findings)
    print(f"\n{wrong} thing{'s' * (wrong != 1)} wrong" if wrong else "\nnothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
