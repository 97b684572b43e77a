#!/usr/bin/env python3
"""Compares the ids of tests before and after a change, and fails if one is gone without a named replacement.

BEFORE and AFTER are files with one id a line: what `pytest --collect-only -q` prints, and `ctest -N` after "Test #1:".
REPLACED has lines "pattern -> what replaces it"; the pattern is one of fnmatch, where [ stands for itself.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path


def rules(path: Path) -> list[tuple[str, str]]:
    lines = [line.split(" -> ") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(pattern.strip().replace("[", "[[]"), replacement.strip()) for pattern, replacement in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("before", "after", "replaced"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    options = parser.parse_args()
    before, after = (set(path.read_text().splitlines()) for path in (options.before, options.after))
    known = rules(options.replaced)
    gone: dict[str, list[str]] = {}
    for test in sorted(before - after):
        replacement = next((new for pattern, new in known if fnmatch.fnmatchcase(test, pattern)), "nothing")
        gone.setdefault(replacement, []).append(test)
    for replacement, tests in gone.items():
        print(f"{len(tests)} replaced by: {replacement}")
        for test in tests:
            print(f"    {test}")
    print(f"{len(before)} before, {len(after)} after: {len(before - after)} gone, {len(after - before)} new")
    return 1 if "nothing" in gone else 0


if __name__ == "__main__":
    sys.exit(main())
