"""Each promise of docs/reliability.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_promise_has_tests() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \|$", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) > 8
    for promise, tests in rows:
        named = re.findall(r"`([a-z_]+/test_[a-z_]+\.py)`", tests)
        assert named, promise
        for each in named:
            assert (ROOT / "tests" / "python" / each).is_file(), each
