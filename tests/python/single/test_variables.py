"""The TNT_ variables: invalid ones are reported, and their table is complete. No TensorFlow is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def started(code: str = "import tarantella as tnt; tnt.init()", **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TNT_")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**clean, **variables}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("TNT_LOG_LEVEL", "foo", "DEBUG, INFO, WARNING or ERROR"),
        ("TNT_TIMEOUT", "soon", "a number of seconds"),
        ("TNT_TIMEOUT", "0", "above 0"),
        ("TNT_FUSION_THRESHOLD", "32k", "a whole number"),
        ("TNT_WEIGHT_CHECK_STEPS", "-3", "at least 0"),
        ("TNT_OUTPUT_ON_ALL_DEVICES", "maybe", "1 or 0"),
        ("TNT_LOG_ON_ALL_DEVICES", "2", "1 or 0"),
        ("TNT_TENSORBOARD_ON_ALL_DEVICES", "all", "1 or 0"),
        ("TNT_TIMELINE", "/no/such/folder/t.json", "in a folder that can be written"),
        ("TNT_TIMELINE", "/tmp", "in a folder that can be written"),
    ],
)
def test_a_bad_value_is_told_at_import(name: str, value: str, allowed: str) -> None:
    ended = started("import tarantella", **{name: value})
    last = ended.stderr.splitlines()[-1:]
    assert ended.returncode == 1
    assert last[0].startswith(f"ValueError: {name} must be ")
    assert allowed in last[0]
    assert value in last[0]


def test_good_values_and_none_are_taken() -> None:
    good = {"TNT_LOG_LEVEL": "info", "TNT_TIMEOUT": "2.5", "TNT_FUSION_THRESHOLD": "0", "TNT_WEIGHT_CHECK_STEPS": "7"}
    for flag in ("", "0", "1", "true", "False", "yes", "no", "on", "OFF"):
        ended = started(**good, TNT_OUTPUT_ON_ALL_DEVICES=flag)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert started(TNT_LOG_LEVEL="", TNT_TIMEOUT="").stderr == ""


def test_unknown_variables_are_told_in_one_line() -> None:
    ended = started(TNT_TIMOUT="9", TNT_SOMETHING_ELSE_ALTOGETHER="1", TNT_LOGLEVEL="INFO")
    assert ended.returncode == 0
    assert ended.stderr == (
        "tarantella: WARNING: unknown environment variables: TNT_LOGLEVEL (did you mean TNT_LOG_LEVEL?), "
        "TNT_SOMETHING_ELSE_ALTOGETHER, TNT_TIMOUT (did you mean TNT_TIMEOUT?); docs/environment.md lists all\n"
    )


def test_children_of_a_rank_leave_the_line_to_it() -> None:
    ended = started(TNT_TIMOUT="9", TNT_RANK="0", TNT_SIZE="1", TNT_RANK_PID="1")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_table_has_all_that_the_sources_name() -> None:
    from tarantella._job.environment import VARIABLES

    named = set()
    for folder, kinds in (("python", (".py",)), ("src", (".cpp", ".h")), ("bindings", (".cpp", ".h"))):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in kinds:
                text = path.read_text()
                words = [text] if path.suffix == ".py" else re.findall(r'"[^"\n]*"', text)
                named |= {name for word in words for name in re.findall(r"\bTNT_[A-Z_]+[A-Z]\b", word)}
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named |= {name for page in pages for name in re.findall(r"\bTNT_[A-Z_]+[A-Z]\b", page.read_text())}
    assert {"TNT_RANK", "TNT_LAUNCHER", "TNT_WEIGHT_CHECK_STEPS"} <= named
    assert named <= {*VARIABLES}


def test_the_documents_list_every_variable_once() -> None:
    from tarantella._job.environment import VARIABLES

    page = (ROOT / "docs" / "environment.md").read_text().splitlines()
    shown = [line.split("`")[1] for line in page if line.startswith("| `TNT_")]
    assert sorted(shown) == sorted(VARIABLES)
