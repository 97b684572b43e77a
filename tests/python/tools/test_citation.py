"""CITATION.cff says what the package says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def found(pattern: str, file: str) -> str:
    match = re.search(pattern, (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    assert match, file
    return match[1]


def test_the_citation_is_of_this_version_and_repository() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == found(r'__version__ = "(.*)"', "python/tarantella/_version.py")
    assert citation["repository-code"] == found(r'^Source = "(.*?)"', "pyproject.toml")
    assert citation["license"] == found(r'^license = "(.*)"', "pyproject.toml")
    assert citation["abstract"].rstrip(".\n") == found(r'^description = "(.*)"', "pyproject.toml")
