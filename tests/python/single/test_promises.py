"""What docs/compatibility.md promises is there: public names with their parameters, options, commands and variables.

promised.txt has one a line. A release promises all that it has; to record what is new, run
python tests/python/single/scripts/public_names.py > tests/python/single/promised.txt
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from jobs import find_executable, run, warm

ROOT = Path(__file__).resolve().parents[3]
PROMISED = Path(__file__).with_name("promised.txt")
SCRIPT = Path(__file__).parent / "scripts/public_names.py"


def keeps(old: str, new: str) -> bool:
    """Whether every call that the parameters `old` allow has the same meaning with `new`."""
    was, now = ([each for each in text.split(", ") if each] for text in (old, new))
    by_place = [each.rstrip("=") for each in itertools.takewhile(lambda each: each[0] != "*", was)]
    places = [each.rstrip("=") for each in itertools.takewhile(lambda each: each[0] != "*", now)]
    names = {each.rstrip("=") for each in was} - {"*"}
    needed = {each for each in now if each[0] != "*" and not each.endswith("=")}
    return places[: len(by_place)] == by_place and names <= {each.rstrip("=") for each in now} and needed <= set(was)


def split(line: str) -> tuple[str, str]:
    name, _, rest = line.partition("(")
    return name, rest.removesuffix(")")


def test_what_is_promised_is_there() -> None:
    done = run([warm("python3"), str(SCRIPT)], TARANTELLA_EXECUTABLE=find_executable())
    assert done.code == 0, done.err
    here = dict(map(split, done.out.splitlines()))
    promised = dict(map(split, PROMISED.read_text("utf-8").splitlines()))
    assert len(promised) > 150
    assert [name for name in promised if name not in here] == []
    changed = {name: (was, here[name]) for name, was in promised.items() if not keeps(was, here[name])}
    assert changed == {}, "calls with these parameters no longer work"
    if "(not released)" not in re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[0]:
        new = sorted(here.keys() - promised.keys())
        assert new == [], "a release promises what it has: record it, see the head of this file"


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("x, y=", "x, y=", True),
        ("x, y=", "x, y=, z=", True),
        ("x, *, op=", "x, *, op=, name=", True),
        ("x, *, op=", "x, op=", True),
        ("x, y=", "x", False),
        ("x, y=", "y=, x", False),
        ("x, y=", "x, y", False),
        ("x", "x, z", False),
        ("x, **kwargs", "x, y=, **kwargs", True),
        ("x, **kwargs", "x, y=", False),
        ("", "x=", True),
    ],
)
def test_which_parameters_keep_calls_working(old: str, new: str, kept: bool) -> None:
    assert keeps(old, new) == kept


@pytest.mark.parametrize(
    ("row", "file", "pattern"),
    [
        ("Python | {} and newer", "pyproject.toml", r'^requires-python = ">=(.*)"'),
        ("NumPy | {} and newer", "pyproject.toml", r'"numpy>=([\d.]*)"'),
        ("TensorFlow | {} and newer", "tools/build_metadata.py", r'^MINIMUM = ">=(.*)"'),
        ("Keras | {}", "python/tarantella/keras/private.py", r'^KNOWN = "(.*)"'),
        ("system | Linux; wheels need glibc {}", "tools/wheel.sh", r"^readonly GLIBC=(.*)"),
    ],
)
def test_the_supported_versions_are_those_of_the_package(row: str, file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    assert found
    assert f"| {row.format(found[1])}" in (ROOT / "docs/compatibility.md").read_text("utf-8")
