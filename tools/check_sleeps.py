#!/usr/bin/env python3
"""Counts `sleep` in the tests against tests/sleeps.txt, whose numbers only shrink.

A test that sleeps proves nothing on a slow machine and costs its time on a fast one: wait for what you expect, or move
a clock. With --shrink the list takes the numbers of today, if none has grown.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests/sleeps.txt"
KINDS = (".py", ".cpp", ".h", ".sh")


def counted() -> dict[str, int]:
    files = [path for path in sorted((ROOT / "tests").rglob("*")) if path.suffix in KINDS]
    numbers = {
        str(path.relative_to(ROOT)): len(re.findall(r"\b(?:u?sleep|sleep_for)\(", path.read_text())) for path in files
    }
    return {name: number for name, number in numbers.items() if number}


def main() -> int:
    listed = {name: int(number) for number, name in map(str.split, LIST.read_text().splitlines())}
    found = counted()
    grown = [name for name, number in found.items() if number > listed.get(name, 0)]
    for name in grown:
        print(f"{name}: {found[name]} sleeps; tests/sleeps.txt allows {listed.get(name, 0)}", file=sys.stderr)
    if not grown and "--shrink" in sys.argv:
        LIST.write_text("".join(f"{number} {name}\n" for name, number in found.items()))
    elif shrunk := [name for name, number in listed.items() if number > found.get(name, 0)]:
        print(f"fewer sleeps than listed: {', '.join(shrunk)}; run tools/check_sleeps.py --shrink", file=sys.stderr)
        return 1
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
