"""The quick start: its scripts on one process and on two ranks, and what Keras 3 says to the older forms."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from .conftest import EXAMPLES, Output, Page, Place, Start, assert_same_numbers

QUICK_START = EXAMPLES / "quick_start"
PAGE = Page(
    "tutorials/quick_start.md",
    {"tensorboard --logdir run": "serves until it is stopped"},
)

# Commands of the page in one process, since starting TensorFlow costs more than what they do. Each has its own folder.
ALL = """
import os, runpy, sys
from pathlib import Path
home = Path.cwd()
sys.path.insert(0, str(home))
for number, line in enumerate(sys.argv[1:]):
    print("===", line, flush=True)
    *settings, script, option = line.split()
    os.environ.update(each.split("=") for each in settings)
    folder = home / f"{os.environ.get('TNT_SIZE', 1)} ranks/{number}"
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    sys.argv = [script, option, *(["--train_epochs=2"] if script == "callbacks.py" else [])]
    runpy.run_path(str(home / script), run_name="__main__")
"""

FOLDERS = ["batches", "saving", "callbacks", "callbacks on all devices"]
Ran = dict[int, tuple[Path, Output]]


@pytest.fixture(scope="module")
def ran(place: Place, start: Start) -> Ran:
    """What the commands for batches, saving and callbacks do, on one process and on two ranks."""
    commands = [each for each in PAGE.commands if "-n 2 -- " in each and "model.py" not in each]
    lines = [each.replace("tarantella -n 2 -- ", "") for each in commands]
    names = [line.split()[-2] for line in lines]
    assert names == ["batches.py", "saving.py", "callbacks.py", "callbacks.py"]
    folder = place.folder / "examples/quick_start"
    (folder / "all.py").write_text(ALL)
    done = {}
    for ranks in (1, 2):
        output = start(ranks, "all.py", *lines, folder=folder)
        assert output.code == 0, output.out + output.err
        done[ranks] = folder / f"{ranks} ranks", output
    PAGE.ran.update(commands)
    return done


def part(output: Output, name: str) -> list[str]:
    """The lines of one script that have results."""
    text = re.split(r"^=== .*\n", output.out, flags=re.M)[1 + FOLDERS.index(name)]
    return [line for line in text.splitlines() if re.match(r"[\w., ]+: (?:loss|the same|OTHER)|loss|epoch \d.*:", line)]


def test_two_ranks_print_what_one_process_prints(ran: Ran) -> None:
    one, two = ran[1][1], ran[2][1]
    for name in ("batches", "callbacks"):
        assert len(part(one, name)) >= 3
        assert_same_numbers(part(one, name), part(two, name))
    assert_same_numbers(part(one, "saving")[-1:], part(two, "saving")[-1:])


def test_three_ways_to_give_data_are_one_training(ran: Ran) -> None:
    lines = part(ran[2][1], "batches")
    names = [line.split(": ")[0] for line in lines]
    assert names == ["global batches", "micro batches", "own batches"]
    assert_same_numbers([lines[0].split(": ")[1]] * 2, [line.split(": ")[1] for line in lines[1:]])


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_form_of_saving_restores_the_predictions(ran: Ran, ranks: int) -> None:
    folder, output = ran[ranks]
    lines = part(output, "saving")
    assert [line.endswith(": the same predictions") for line in lines] == [True] * 9 + [False]
    files = {path.name for path in (folder / "1/saved").iterdir()}
    assert files == {"lenet5.keras", "too.keras", "lenet5.weights.h5", *(f"rank_{rank}.keras" for rank in range(ranks))}


@pytest.mark.parametrize("ranks", [1, 2])
def test_callbacks_write_checkpoints_and_logs(ran: Ran, ranks: int) -> None:
    folder, output = ran[ranks]
    logs = []
    for number in (2, 3):  # the second command logs on all ranks
        run = folder / f"{number}/run"
        assert {path.name for path in run.iterdir()} == {"epoch-1.keras", "epoch-2.keras", "best.weights.h5", "logs"}
        logs.append({path.relative_to(run / "logs").parts[0] for path in (run / "logs").rglob("events.*")})
    of_the_master = {"train", "validation"}
    assert logs == [of_the_master, of_the_master if ranks == 1 else {"rank_0", "rank_1"}]
    assert output.out.count("LearningRateScheduler setting learning rate to 0.001") == 2  # on the master, by both


def test_two_ranks_learn_what_one_process_learns(place: Place) -> None:
    found = []
    folder = place.folder / "examples/quick_start"
    everywhere = dataclasses.replace(place, environment={**place.environment, "TNT_TENSORBOARD_ON_ALL_DEVICES": "true"})
    for start, file in (("python model.py --batch", "one"), ("tarantella -n 2 --no-gpu -- model.py", "two")):
        more = f"--train_epochs=20 --json={file}.json --model_dir={file}"
        output = PAGE.run(everywhere, start, changes={"--train_epochs=20": more})
        assert output.count("MNIST is neither cached nor reachable") == 1
        found.append(json.loads((folder / f"{file}.json").read_text()))
    assert sorted(path.name for path in (folder / "two").iterdir()) == ["rank_0", "rank_1"]
    one, two = found
    assert (one["ranks"], two["ranks"]) == (1, 2)
    assert one["parameters"] == two["parameters"] == 61_706
    assert one["accuracy"] >= 0.97
    assert two["accuracy"] >= 0.97
    # Float32 rounding grows over hundreds of steps; three images of the 359 may fall on the other side.
    assert abs(one["accuracy"] - two["accuracy"]) <= 3 / 359 + 1e-6
    assert abs(one["loss"] - two["loss"]) <= 0.02
    PAGE.run(place, "python ../../tools/draw_curves.py")


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("python model.py --train_epochs=2", 1),
        ("tarantella -- model.py", 1),  # no GPU: one rank on the CPU
        ("tarantella --no-gpu -- model.py", 1),
        ("tarantella -n 2 -- model.py", 2),
    ],
)
def test_the_ways_to_start_it(place: Place, start: str, ranks: int) -> None:
    output = PAGE.run(place, start)
    assert f"digits, {ranks} rank{'s' * (ranks > 1)}: test accuracy" in output
    assert "tarantella: WARNING" not in output


@pytest.mark.parametrize("option", ["--batch_size", "--train_epochs"])
def test_a_number_below_one_is_a_clear_error(start: Start, option: str) -> None:
    done = start(1, "model.py", f"{option}=0", folder=QUICK_START)
    assert done.code == 2
    assert f"{option} is 0" in done.err
    assert "Traceback" not in done.err


def test_a_bad_number_is_one_sentence(start: Start) -> None:
    ended = start(2, "batches.py", "--batch_size=33", folder=QUICK_START)
    assert ended.code == 2
    assert "--batch_size is 33, which is no multiple of the 2 ranks" in ended.err
    assert "Traceback" not in ended.err


def older_forms() -> list[tuple[str, str, str]]:
    """The rows of the page's table: what a document shows, Keras's error, and the new form."""
    rows = re.findall(r"^\| `(.+?)` \| `(\w+Error)` \| `(.+?)`.* \|$", PAGE.path.read_text(encoding="utf-8"), re.M)
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


def test_every_command_of_the_page_is_run(request: pytest.FixtureRequest) -> None:
    PAGE.assert_all_ran(request)
