"""The script of the README runs where only the package is installed: no compiler, nor any other program, is in PATH.

tools/compatibility.sh runs this in a new environment, in which it has installed the wheel.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from jobs import find_executable, run

README = Path(__file__).resolve().parents[3] / "README.md"
pytestmark = [pytest.mark.full, pytest.mark.real_start]


def script() -> str:
    found = re.search(r"^```python\n(.*?)^```", README.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("ranks", [0, 2])
def test_the_script_of_the_readme_runs(ranks: int, tmp_path: Path) -> None:
    """On several ranks, and as plain Keras without the launcher."""
    model, programs = tmp_path / "model.py", tmp_path / "bin"
    model.write_text(script())
    programs.mkdir()
    assert shutil.which("c++", path=str(programs)) is None
    command = [find_executable(), "-n", str(ranks), "--"] if ranks else [sys.executable]
    done = run([*command, str(model)], PATH=str(programs))
    assert done.code == 0, done.err
    assert done.out.count("Epoch 3/3") == 1, done.out
