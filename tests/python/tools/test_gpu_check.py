"""`make gpu-check` where there is no GPU: what it says, its verdicts, and a rehearsal on CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_check
import pytest

SCRIPT = Path(__file__).parents[3] / "tools/gpu_check.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_says_so() -> None:
    done = run()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("gpu_check: TensorFlow sees no GPU here; run it on a machine with")


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ((2.0002, 1.5), None),
        ((2.01, 1.5), "the losses of lenet5 differ by 0.0100"),
        ((float("nan"), 1.5), "the losses of lenet5 differ by nan"),
    ],
)
def test_losses_must_agree(ours: tuple[float, ...], said: str | None) -> None:
    if said is None:
        gpu_check.judge_losses("lenet5", list(ours), [2.0, 1.5])
    else:
        with pytest.raises(SystemExit, match=said):
            gpu_check.judge_losses("lenet5", list(ours), [2.0, 1.5])


def seen(*ids: str, names: tuple[str, ...] = ("A GPU",), growth: str | None = "true") -> list[dict[str, Any]]:
    return [{"gpu": gpu, "names": list(names), "growth": growth} for gpu in ids]


@pytest.mark.parametrize(
    "ranks", [seen("0"), seen("0", "0"), seen("0", "1", names=("A", "B")), seen("0", "1", growth=None)]
)
def test_each_gpu_has_a_rank_of_its_own(ranks: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    gpu_check.judge_ranks(seen("0", "GPU-aa"), 2)
    assert "rank 1: GPU GPU-aa, A GPU, memory growth on" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="expected 2 ranks with one GPU and memory growth each"):
        gpu_check.judge_ranks(ranks, 2)


def test_on_gpus_the_launcher_gets_no_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs of a made machine."""
    started: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], environment: dict[str, str], **changes: str) -> str:
        started.append((command, changes))
        return "6/6 - 1s - loss: 2.0000\n6/6 - 1s - loss: 1.0000\n"

    monkeypatch.setattr(gpu_check, "run", run)
    monkeypatch.setattr(gpu_check, "make_data", lambda _: "data")
    monkeypatch.setattr(gpu_check, "find_gpus", lambda: 3)
    monkeypatch.setattr(gpu_check, "ranks_of", lambda *_: seen("5", "3", "4"))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,4")
    gpu_check.main()
    words = [command[1:] for command, _ in started[::2]]
    assert [each[0] for each in words] == ["--", "--"]
    assert words[0][1].endswith("examples/quick_start/model.py") and words[0][2] == "--batch_size=48"
    assert words[1][1].endswith("resnet50_tnt.py") and "--batch_size=48" in words[1]
    for command, changes in started[1::2]:  # plain Keras: all rows, on the first GPU
        assert "--batch_size=48" in command
        assert changes == {"CUDA_VISIBLE_DEVICES": "5", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def rehearse(name: str) -> None:
    done = run("--cpus", "2", "--only", name)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert f"{name}: losses [" in done.stdout and done.stdout.endswith("ok: 2 ranks on CPUs\n")


@pytest.mark.full
def test_two_ranks_train_lenet5_as_plain_keras() -> None:
    rehearse("lenet5")


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_two_ranks_train_resnet50_as_plain_keras() -> None:
    rehearse("resnet50")
