"""The quick start: its scripts on one process and on two ranks, and what Keras 3 says to the older forms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import EXAMPLES, Output, Start, assert_same_numbers

QUICK_START = EXAMPLES / "quick_start"
PAGE = (EXAMPLES.parent / "docs/tutorials/quick_start.md").read_text(encoding="utf-8")

# All three in one process, since starting TensorFlow costs more than what they do.
ALL = """
import runpy, sys
folder = sys.argv[1]
sys.path.insert(0, folder)
for name, arguments in (
    ("batches", ["--batch_size=48"]),
    ("saving", ["--model_dir=saved"]),
    ("callbacks", ["--model_dir=run", "--train_epochs=2"]),
):
    print("===", name, flush=True)
    sys.argv = [name + ".py", *arguments]
    runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
"""

Ran = dict[int, tuple[Path, Output]]


@pytest.fixture(scope="module")
def ran(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The three scripts on one process and on two ranks."""
    done = {}
    for ranks in (1, 2):
        folder = tmp_path_factory.mktemp(f"ranks{ranks}")
        (folder / "all.py").write_text(ALL)
        output = start(ranks, "all.py", QUICK_START, folder=folder, TNT_TENSORBOARD_ON_ALL_DEVICES="true")
        assert output.code == 0, output.out + output.err
        done[ranks] = folder, output
    return done


def part(output: Output, name: str) -> list[str]:
    """The lines of one script that have results."""
    text = output.out.split(f"=== {name}\n")[1].split("===")[0]
    return [line for line in text.splitlines() if re.match(r"[\w., ]+: (?:loss|the same|OTHER)|loss|epoch \d.*:", line)]


@pytest.mark.slow
def test_two_ranks_print_what_one_process_prints(ran: Ran) -> None:
    one, two = ran[1][1], ran[2][1]
    for name in ("batches", "callbacks"):
        assert len(part(one, name)) >= 3
        assert_same_numbers(part(one, name), part(two, name))
    assert_same_numbers(part(one, "saving")[-1:], part(two, "saving")[-1:])


@pytest.mark.slow
def test_three_ways_to_give_data_are_one_training(ran: Ran) -> None:
    lines = part(ran[2][1], "batches")
    names = [line.split(": ")[0] for line in lines]
    assert names == ["global batches", "micro batches", "own batches"]
    assert_same_numbers([lines[0].split(": ")[1]] * 2, [line.split(": ")[1] for line in lines[1:]])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_form_of_saving_restores_the_predictions(ran: Ran, ranks: int) -> None:
    folder, output = ran[ranks]
    lines = part(output, "saving")
    assert [line.endswith(": the same predictions") for line in lines] == [True] * 9 + [False]
    files = {path.name for path in (folder / "saved").iterdir()}
    assert files == {"lenet5.keras", "too.keras", "lenet5.weights.h5", *(f"rank_{rank}.keras" for rank in range(ranks))}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_callbacks_write_checkpoints_and_logs(ran: Ran, ranks: int) -> None:
    folder, output = ran[ranks]
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {"epoch-1.keras", "epoch-2.keras", "best.weights.h5", "logs"}
    logs = {path.relative_to(folder / "run/logs").parts[0] for path in (folder / "run/logs").rglob("events.*")}
    assert logs == ({"train", "validation"} if ranks == 1 else {"rank_0", "rank_1"})
    assert output.out.count("LearningRateScheduler setting learning rate to 0.001") == 1  # on the master


def test_a_bad_number_is_one_sentence(start: Start) -> None:
    ended = start(2, "batches.py", "--batch_size=33", folder=QUICK_START)
    assert ended.code == 2
    assert "--batch_size is 33, which is no multiple of the 2 ranks" in ended.err
    assert "Traceback" not in ended.err


def older_forms() -> list[tuple[str, str, str]]:
    """The rows of the page's table: what a document shows, Keras's error, and the new form."""
    rows = re.findall(r"^\| `(.+?)` \| `(\w+Error)` \| `(.+?)`.* \|$", PAGE, re.M)
    assert len(rows) >= 4
    return rows


@pytest.mark.parametrize(("written", "error", "instead"), older_forms())
def test_what_keras_3_refuses_has_a_form_beside_it(
    written: str, error: str, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    import tarantella as tnt

    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    names = {"keras": keras, "tnt": tnt, "ModelCheckpoint": keras.callbacks.ModelCheckpoint}
    names["model"] = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    with pytest.raises((TypeError, ValueError)) as refused:
        exec(written, dict(names))
    assert type(refused.value).__name__ == error
    exec(instead, dict(names))
