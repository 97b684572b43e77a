"""README.md is short, and each of its figures and claims has a command or a source."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"\n## {title}\n(.*?)(?=\n## |\Z)", README, re.DOTALL)
    assert found, f"README.md has no section {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a table, its head first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 110


def test_every_cell_of_the_comparison_has_a_source() -> None:
    text = section("What it does, beside others")
    sources = dict(re.findall(r"^\[(\w+)\]: (https://\S+)$", text, re.MULTILINE))
    cited = set()
    for name, *cells in rows(text)[1:]:
        for cell in cells:
            link = re.fullmatch(r"\[[^\]]+\](?:\(([\w/.#-]+)\)|\[(\w+)\])", cell)
            assert link, f"{name}: the cell {cell!r} is no link to a source"
            assert link[1] or link[2] in sources, f"{name}: {cell!r} has no address"
            cited.add(link[2])
    assert set(sources) - cited == set()


def test_the_speeds_are_those_that_the_benchmark_prints(bench) -> None:
    speedups = bench("speedups")
    text = section("How fast it is")
    head, *measured = rows(text)
    assert head == rows(speedups.table({"nets": {}}))[0]
    assert [row[0] for row in measured] == list(speedups.NETS.values())
    assert "make bench-speedups" in text and re.search(r"20\d\d-\d\d-\d\d", text), "command and date"
