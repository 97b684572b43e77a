#!/usr/bin/env python3
"""Checks that no tracked line of source, or of prose in Markdown, has more than 120 characters.

Prints one line a violation, then exits with 1. In Markdown, tables, blocks of code and lines with a link are free.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 120
ROOT = Path(__file__).resolve().parents[1]
KINDS = ("*.h", "*.cpp", "*.py", "*.sh", "*.md")


def of_prose(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines of a Markdown file that can be wrapped, with their numbers."""
    in_code = False
    for number, line in enumerate(lines, 1):
        is_fence = line.lstrip().startswith("```")
        in_code ^= is_fence
        if not (in_code or is_fence or line.lstrip().startswith("|") or "](" in line):
            yield number, line


def too_long(name: str, content: str) -> list[str]:
    lines = content.splitlines()
    numbered = of_prose(lines) if name.endswith(".md") else enumerate(lines, 1)
    return [
        f"{name}:{number}: {len(line)} characters, more than {MOST}: wrap it"
        for number, line in numbered
        if len(line) > MOST
    ]


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-z", *KINDS], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    found = [line for file in files for line in too_long(str(file.relative_to(ROOT)), file.read_text("utf-8"))]
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
