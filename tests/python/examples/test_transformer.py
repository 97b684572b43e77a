"""The Transformer example, as its page tells a user to run it: two ranks learn to translate numbers in words."""

from __future__ import annotations

import math
import re
import shutil
import socket
from pathlib import Path

import pytest

from .conftest import Page, Place

PAGE = Page(
    "tutorials/transformer.md",
    {
        "python -m tensorflow_datasets.scripts.download_and_prepare --datasets=wmt14_translate/de-en --data_dir=wmt":
        "needs a network, and a package that only downloads the data"
    },
)  # fmt: skip
DOWNLOAD = "python ${TNT_MODELS_PATH}/models/transformer/data_download.py --data_dir "
TRAINING = "tarantella -n 2 --no-gpu --"
TWO_RANKS = {TRAINING: "tarantella -n 2 --output-on-all-devices --no-gpu --"}
PAIRS = 700  # of the page's 9000, with which an extended test trains
pytestmark = pytest.mark.timeout(900)


def make(place: Place, numbers: str = "") -> None:
    dev = "--dev_source numbers/dev.en --dev_target numbers/dev.es"
    PAGE.run(place, "python ${TNT_MODELS_PATH}/models/transformer/number_words.py", numbers)
    PAGE.run(place, f"{DOWNLOAD}numbers/data", dev)


@pytest.fixture(scope="module")
def data(place: Place) -> Path:
    """The folder in which the page's commands are run, with the data that they make."""
    make(place, f"--train {PAIRS}")
    return place.folder


def losses(output: str) -> list[float]:
    """The losses of one process, or of rank 0."""
    return [float(each) for each in re.findall(r"^(?:\[0\] )?\d+/\d+ .* - loss: ([\d.]+)", output, re.M)]


def dev_losses(output: str) -> list[float]:
    return [float(each) for each in re.findall(r"Loss of the dev sentences: ([\d.]+)", output)]


def trained(place: Place) -> str:
    """Trains on two ranks, of which all print what they have."""
    two = PAGE.run(place, TRAINING, r"--model_dir=model | sed 's/^\[0\] //' | tee two.txt", changes=TWO_RANKS)
    master_only = ("Start train", "TimeHistory: epoch 1 took", "Translation of ", "Loss of the dev sentences: ")
    for line in (*master_only, " sentence pairs to train on in 4 files, in the layout of the Model Garden"):
        assert two.count(line) == 1, two
    assert len(losses(two)) == 3
    return two


def test_two_ranks_follow_the_curve_of_one_process(place: Place, data: Path) -> None:
    two = trained(place)
    assert f"{PAIRS} sentence pairs to train on" in two

    # From the first checkpoint on, one process and two ranks have the same sentences in each step. Plain Keras, where
    # it does not know how many steps there are, divides by one too many: docs/exactness.md. At the full learning rate
    # the rounding of float32 grows to 0.6 % of the dev loss; in float64 nine digits are the same.
    resumed = {}
    shorter = {"--train_epochs=3": "--train_epochs=2", "--epochs_between_evals=3": "--epochs_between_evals=1"}
    shorter |= {"--learning_rate=0.4": "--learning_rate=0.04"}
    shorter |= {"--bleu_source=numbers/test.en --bleu_ref=numbers/test.es": "", "--enable_time_history": ""}
    for ranks, how in ((1, {TRAINING: "python"}), (2, TWO_RANKS)):
        folder = data / f"model{ranks}"
        folder.mkdir()
        shutil.copy(data / "model/cp-0001.weights.h5", folder)
        more = f"--model_dir={folder.name}{' | tee one.txt' if ranks == 1 else ''}"
        resumed[ranks] = PAGE.run(place, TRAINING, more, changes={**shorter, **how})
        assert resumed[ranks].count("Going on after epoch 1") == 1, resumed[ranks]
        assert (folder / "cp-0002.weights.h5").exists()
    (steps,) = (int(each) for each in re.findall(r"(\d+)/\1 - ", resumed[1]))
    (one,), (both,) = losses(resumed[1]), losses(resumed[2])
    assert any(math.isclose(each, both, rel_tol=3e-3) for each in (one, one * (steps + 1) / steps)), (one, both)
    assert losses(two)[0] > both > losses(two)[2]
    assert dev_losses(resumed[1]) == pytest.approx(dev_losses(resumed[2]), rel=3e-3)

    train, test = ((data / f"numbers/{split}.en").read_text().splitlines() for split in ("train", "test"))
    assert len(test) == 200 and not set(test) & set(train)
    PAGE.run(place, "python tools/draw_curves.py")


def test_text_files_become_training_data(place: Place, data: Path) -> None:
    """Numbers in Spanish stand in for WMT14 in German."""
    for name, split in (("train", "train"), ("newstest2013", "dev")):
        for language, other in (("en", "en"), ("de", "es")):
            (data / f"{name}.{language}").write_text((data / f"numbers/{split}.{other}").read_text())
    output = PAGE.run(place, f"{DOWNLOAD}wmt", "--vocab_size 256")
    assert f"{PAIRS} sentence pairs to train on in 100 files, 200 to check" in output
    assert len(list((data / "wmt").glob("wmt32k-*"))) == 101


def test_the_launcher_takes_the_command_of_the_paper(place: Place, data: Path) -> None:
    (data / "hostfile").write_text(f"{socket.gethostname()}\n")
    output = PAGE.run(place, "tarantella --hostfile", changes={"tarantella": "tarantella --dry-run"})
    assert "--param_set=big" in output and "/path/to/the/installed/dataset/vocab.ende.32768" in output


def test_a_truncated_file_ends_the_job_with_one_sentence(place: Place, data: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(data / "numbers/data", tmp_path / "data")
    path = next(folder.glob("wmt32k-train-00002*"))
    path.write_bytes(path.read_bytes()[:-3])
    script = "examples/models/transformer/transformer_tnt.py"
    output = place.shell(f"tarantella -n 2 --no-gpu -- {script} --data_dir {folder} --param_set=tiny", code=1)
    assert f"transformer_tnt.py: 1 of 4 data files in {folder} are truncated: {path.name};" in output
    assert "Traceback" not in output


@pytest.mark.extended
def test_two_ranks_learn_to_translate(place: Place, data: Path) -> None:
    shutil.rmtree(data / "model", ignore_errors=True)
    make(place)
    two = trained(place)
    scores = (re.findall(rf"Bleu score \({kind}\): ([\d.]+)", two) for kind in ("uncased", "cased"))
    uncased, cased = (float(found[-1]) for found in scores)
    print(f"BLEU of two ranks: uncased {uncased}, cased {cased}")
    assert min(uncased, cased) >= 80, two


def test_every_command_of_the_page_is_run(request: pytest.FixtureRequest) -> None:
    PAGE.assert_all_ran(request)
