"""The Transformer example, as its page tells a user to run it: two ranks learn to translate numbers in words."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples/models/transformer"
PAGE = (ROOT / "docs/tutorials/transformer.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S)
    for line in re.sub(r"\\\n\s*", "", block).splitlines()
    if line.strip()
]
NEEDS_MORE = ("--param_set=big", "--param_set=base", "tensorflow_datasets", "train.de")  # hours, or a network
SMALL = [command for command in COMMANDS if not any(part in command for part in NEEDS_MORE)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(command: str, folder: Path, code: int = 0) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TNT_", "SLURM_"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TNT_MODELS_PATH": str(ROOT / "examples"),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    return output


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page's commands are run, with the data that they make."""
    folder = tmp_path_factory.mktemp("transformer")
    for name in ("number_words.py", "data_download.py"):
        (command,) = [
            each for each in COMMANDS if f"{name} --" in each and not any(part in each for part in NEEDS_MORE)
        ]
        run(command, folder)
    return folder


def training() -> str:
    """The command that trains on two ranks."""
    (command,) = [each for each in COMMANDS if "-n 2 --no-gpu" in each]
    return command


def losses(output: str) -> list[float]:
    return [float(each) for each in re.findall(r" - loss: ([\d.]+)", output)]


def test_two_ranks_learn_to_translate_and_follow_the_curve_of_one_process(data: Path) -> None:
    two = run(training(), data)
    uncased, cased = (float(re.findall(rf"Bleu score \({kind}\): ([\d.]+)", two)[-1]) for kind in ("uncased", "cased"))
    print(f"BLEU of two ranks: uncased {uncased}, cased {cased}")
    assert min(uncased, cased) >= 80, two
    for line in ("Start train", "TimeHistory: epoch 1 took", "Translation of "):
        assert two.count(line) == 1, two

    # One process, one epoch: the same sentences in each step. Plain Keras, where it does not know how many steps there
    # are, divides by one too many: docs/exactness.md.
    one = re.sub(r"--train_epochs=\d+", "--train_epochs=1", training().partition(" -- ")[2])
    one = run(re.sub(r"--bleu_\w+=\S+|--enable_time_history", "", one), data)
    (steps,) = (int(each) for each in re.findall(r"(\d+)/\1 - ", one))
    (loss,) = losses(one)
    assert any(math.isclose(each, losses(two)[0], rel_tol=5e-4) for each in (loss, loss * (steps + 1) / steps)), one

    train, test = ((data / f"numbers/{split}.en").read_text().splitlines() for split in ("train", "test"))
    assert len(test) == 200 and not set(test) & set(train)


def test_a_truncated_file_ends_the_job_with_one_sentence(data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data / "numbers/data", tmp_path / "data")
    path = next(folder.glob("wmt32k-train-00002*"))
    path.write_bytes(path.read_bytes()[:-3])
    command = f"tarantella -n 2 --no-gpu -- {FOLDER}/transformer_tnt.py --data_dir {folder} --param_set=tiny"
    output = run(command, tmp_path, code=1)
    assert f"transformer_tnt.py: 1 of 4 data files in {folder} are truncated: {path.name};" in output
    assert "Traceback" not in output


def test_the_scripts_say_how_they_are_used(tmp_path: Path) -> None:
    for name in ("transformer_tnt.py", "data_download.py", "number_words.py"):
        output = run(f"{FOLDER / name} --help", tmp_path)
        assert output.lstrip().startswith(f"usage: {name}")


def test_every_command_of_the_page_is_run() -> None:
    known: tuple[Any, ...] = ("number_words.py --", "data_download.py --", "-n 2 --no-gpu", "export ", *NEEDS_MORE)
    assert [command for command in COMMANDS if not any(part in command for part in known)] == []
