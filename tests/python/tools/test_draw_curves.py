"""tools/draw_curves.py reads the epochs of trainings from what Keras prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import draw_curves
import pytest

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools/draw_curves.py"
LINES = """Epoch 1/2
6/6 - 57s - 10s/step - loss: 12.0439 - top_5: 0.0521
1/1 - 2s - 2s/step - loss: 10.9433 - top_5: 0.5625
Epoch 2/2
6/6 - 3s - 562ms/step - loss: 9.8804 - top_5: 1e-05
"""
BAR = (
    "Epoch 1/2\n\x1b[1m1/2\x1b[0m ━━ \x1b[1m4s\x1b[0m 5s/step - loss: 9.0\b\b\b\r"
    "\x1b[1m2/2\x1b[0m ━━ \x1b[1m0s\x1b[0m 9ms/step - loss: 3.5\b\b\b\r"
    "\x1b[1m2/2\x1b[0m ━━ \x1b[1m4s\x1b[0m 9ms/step - loss: 3.0 - val_loss: 4.0\n"
    "Epoch 2/2\n\x1b[1m2/2\x1b[0m ━━ \x1b[1m4s\x1b[0m 9ms/step - loss: 2.0 - val_loss: 5.0\n"
)


def test_the_last_line_of_each_epoch_counts_and_no_evaluation() -> None:
    assert draw_curves.epochs(LINES) == [{"loss": 12.0439, "top_5": 0.0521}, {"loss": 9.8804, "top_5": 1e-05}]
    assert draw_curves.epochs(LINES.replace("Epoch 1/2\n", "").replace("Epoch 2/2\n", "")) == draw_curves.epochs(LINES)


def test_the_last_state_of_a_progress_bar_counts() -> None:
    assert draw_curves.epochs(BAR) == [{"loss": 3.0, "val_loss": 4.0}, {"loss": 2.0, "val_loss": 5.0}]


def test_a_file_without_epochs_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("nothing")
    command = [sys.executable, str(TOOL), str(tmp_path / "a.svg"), f"one={tmp_path}/run.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"{tmp_path}/run.txt has no epochs with loss" in done.stderr


def test_the_commands_of_the_tutorials_draw_their_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = set()
    for page in (ROOT / "docs/tutorials").glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("\\\n", "")
        for command in re.findall(r"^python (?:\S*/)?tools/draw_curves.py (.*)$", text, re.M):
            arguments = shlex.split(command)
            metrics = next(each for each in arguments if each.startswith("--metrics=")).partition("=")[2].split(",")
            for name in ("one.txt", "two.txt"):
                assert f"tee {name}" in text, f"{page.name} makes no {name}"
                Path(name).write_text("3/3 - 1s" + "".join(f" - {metric}: 0.5" for metric in metrics) + "\n")
            monkeypatch.setattr(sys, "argv", [str(TOOL), *arguments])
            draw_curves.main()
            assert f"]({arguments[0]})" in text, f"{page.name} does not show {arguments[0]}"
            drawn.add(page.with_name(arguments[0]))
            assert Path(arguments[0]).stat().st_size > 1000
    assert drawn == set((ROOT / "docs/tutorials").glob("*.svg"))
