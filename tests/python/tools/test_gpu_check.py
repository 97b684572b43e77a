"""`make gpu-check` where there is no GPU, and that what it trains is the same on ranks and in plain Keras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_check
import pytest

SCRIPT = Path(__file__).parents[3] / "tools/gpu_check.py"


def test_without_a_gpu_it_says_so() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("gpu_check: TensorFlow sees no GPU here; run it on a machine with")


def report(ranks: int = 2, losses: tuple[float, ...] = (2.0, 1.5), growth: bool = True) -> dict[str, Any]:
    return {"ranks": ranks, "losses": list(losses), "gpus": ["A GPU"], "growth": [growth]}


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (report(losses=(2.00001, 1.5)), None),
        (report(losses=(2.01, 1.5)), r"the losses of lenet5 differ by 5\.0e-03, more than 1e-04"),
        (report(losses=(float("nan"), 1.5)), "the losses of lenet5 differ by nan"),
        (report(ranks=1), "expected 2 ranks with one GPU and memory growth each"),
        (report(growth=False), "expected 2 ranks with one GPU and memory growth each"),
    ],
)
def test_the_verdict(monkeypatch: pytest.MonkeyPatch, ours: dict[str, Any], said: str | None) -> None:
    monkeypatch.setattr(gpu_check, "started", lambda command, *_, **__: ours if "--" in command else report(ranks=1))
    if said is None:
        gpu_check.check("lenet5", 2)
    else:
        with pytest.raises(SystemExit, match=said):
            gpu_check.check("lenet5", 2)


@pytest.mark.slow
def test_ranks_train_lenet5_as_plain_keras(tmp_path: Path) -> None:
    losses = []
    for command in ([sys.executable], [str(Path(sys.executable).parent / "tarantella"), "-n", "2", "--no-gpu", "--"]):
        out = tmp_path / "report.json"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([*command, SCRIPT, "train", "lenet5", out], env=environment, check=True, timeout=280)
        losses.append(json.loads(out.read_text())["losses"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
