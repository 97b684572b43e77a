"""tools/check_lines.py: which lines are too long."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import check_lines

LONG = "word " * 24 + "1"  # 121 characters


@pytest.mark.parametrize("name", ["a.h", "a.cpp", "a.py", "a.sh", "a.md"])
def test_a_long_line_is_named(name):
    assert check_lines.too_long(name, f"short\n{LONG}\n") == [f"{name}:2: 121 characters, more than 120: wrap it"]
    assert not check_lines.too_long(name, LONG[1:])
    assert not check_lines.too_long(name, "…" * 120), "characters count, not bytes"


@pytest.mark.parametrize("line", [f"| {LONG} |", f"  ```\n{LONG}\n  ```", f"{LONG} [page](page.md)"])
def test_what_cannot_be_wrapped_in_markdown(line):
    assert not check_lines.too_long("a.md", line)
    assert check_lines.too_long("a.md", f"{line}\n{LONG}"), "and nothing after it"
