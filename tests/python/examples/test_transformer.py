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
        dev = " --dev_source numbers/dev.en --dev_target numbers/dev.es" if name == "data_download.py" else ""
        run(command + dev, folder)
    return folder


def training(ranks: int, *more: str, **options: int) -> str:
    """The page's command that trains on two ranks, with other values of options. All ranks print what they have."""
    (command,) = [each for each in COMMANDS if "-n 2 --no-gpu" in each]
    for name, value in options.items():
        command = re.sub(rf"--{name}=\d+", f"--{name}={value}", command)
    if ranks == 1:
        command = command.partition(" -- ")[2]
    return " ".join([command.replace("-n 2", "-n 2 --output-on-all-devices"), *more])


def losses(output: str) -> list[float]:
    """The losses of one process, or of rank 0."""
    return [float(each) for each in re.findall(r"^(?:\[0\] )?\d+/\d+ .* - loss: ([\d.]+)", output, re.M)]


def dev_losses(output: str) -> list[float]:
    return [float(each) for each in re.findall(r"Loss of the dev sentences: ([\d.]+)", output)]


def test_two_ranks_learn_to_translate_and_follow_the_curve_of_one_process(data: Path) -> None:
    two = run(training(2, "--model_dir=model"), data)
    uncased, cased = (float(re.findall(rf"Bleu score \({kind}\): ([\d.]+)", two)[-1]) for kind in ("uncased", "cased"))
    print(f"BLEU of two ranks: uncased {uncased}, cased {cased}")
    assert min(uncased, cased) >= 80, two
    master_only = ("Start train", "TimeHistory: epoch 1 took", "Translation of ", "Loss of the dev sentences: ")
    for line in master_only:  # though other ranks may print
        assert two.count(line) == 1, two
    assert len(losses(two)) == 3

    # From the first checkpoint on, one process and two ranks have the same sentences in each step. Plain Keras, where
    # it does not know how many steps there are, divides by one too many: docs/exactness.md.
    resumed = {}
    for ranks in (1, 2):
        (data / f"model{ranks}").mkdir()
        shutil.copy(data / "model/cp-0001.weights.h5", data / f"model{ranks}")
        command = training(ranks, f"--model_dir=model{ranks}", train_epochs=2, epochs_between_evals=1)
        resumed[ranks] = run(re.sub(r"--bleu_\w+=\S+|--enable_time_history", "", command), data)
        assert resumed[ranks].count("Going on after epoch 1") == 1, resumed[ranks]
        assert (data / f"model{ranks}/cp-0002.weights.h5").exists()
    (steps,) = (int(each) for each in re.findall(r"(\d+)/\1 - ", resumed[1]))
    (one,), (both,) = losses(resumed[1]), losses(resumed[2])
    assert any(math.isclose(each, both, rel_tol=3e-3) for each in (one, one * (steps + 1) / steps)), (one, both)
    assert losses(two)[0] > both > losses(two)[2]
    assert dev_losses(resumed[1]) == pytest.approx(dev_losses(resumed[2]), rel=3e-3)

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
