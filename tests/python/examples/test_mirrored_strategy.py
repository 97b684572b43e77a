"""The MirroredStrategy page: ResNet-50 on cassava leaves, on one process and on two ranks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .conftest import EXAMPLES, Page, Place, Start, assert_same_numbers

FOLDER = EXAMPLES / "mirrored_strategy"
SCRIPT = FOLDER / "mnist_classify.py"
SUBMITTED = "tests/python/slurm/test_mirrored_job.py submits the script, also in a container"
PAGE = Page(
    "from_mirrored_strategy.md",
    {
        "sbatch job.slurm": SUBMITTED,
        "sbatch --export=ALL,IMAGE=image.sif job.slurm": SUBMITTED,
        "sbatch --gres=none --ntasks=2 --cpus-per-task=8 job.slurm": SUBMITTED,
    },
)


@pytest.fixture
def cassava(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import cassava

    return cassava


def write_images(folder: Path, counts: dict[str, int], classes: int = 3) -> None:
    """Writes JPEGs whose brightness is the class."""
    import keras

    random = np.random.default_rng(0)
    for split, count in counts.items():
        for number in range(count):
            label = number % classes
            path = folder / split / f"class{label}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = 60 + 60 * label + random.normal(0, 20, (40, 50, 3))
            keras.utils.save_img(path, np.clip(pixels, 0, 255), scale=False)


def write_records(folder: Path, counts: dict[str, list[int]]) -> None:
    """Writes what TensorFlow Datasets prepares: so many records a file of each split."""
    import tensorflow as tf

    folder.mkdir(parents=True)
    (folder / "label.labels.txt").write_text("cbb\ncbsd\ncgm\ncmd\nhealthy\n")
    jpeg = tf.io.encode_jpeg(np.zeros((8, 8, 3), "uint8")).numpy()
    for split, files in counts.items():
        for index, count in enumerate(files):
            path = folder / f"cassava-{split}.tfrecord-{index:05d}-of-{len(files):05d}"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for label in range(count):
                    feature = {
                        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a.jpg"])),
                        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                    }
                    example = tf.train.Example(features=tf.train.Features(feature=feature))
                    writer.write(example.SerializeToString())


def epochs(output: str) -> list[str]:
    """The accuracy and loss of each epoch."""
    return re.findall(r"accuracy: \S+ - loss: \S+", output)


# The script with a small network in the place of ResNet-50, whose graph alone takes a minute to build.
SMALL = """
import runpy, sys, keras
def small(weights, include_top):
    assert weights is None and not include_top
    inputs = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(8, 3, strides=2)(inputs)
    x = keras.layers.BatchNormalization()(x)
    return keras.Model(inputs, keras.layers.Conv2D(16, 3, strides=2, activation="relu")(x))
keras.applications.ResNet50 = small
sys.argv[0] = "mnist_classify.py"
runpy.run_path(sys.path[0] + "/mnist_classify.py", run_name="__main__")
"""
WITH_SMALL = {"mnist_classify.py": "small.py"}


@pytest.fixture(scope="module")
def place(place: Place) -> Place:
    """With a small network, and the photographs of which the page tells."""
    folder = place.folder / "examples/mirrored_strategy"
    (folder / "small.py").write_text(SMALL)
    write_images(folder / "leaves", {"train": 36, "test": 6})
    return place


def check(place: Place, changes: dict[str, str], tolerance: float) -> None:
    """Trains on one process and on two ranks, and compares the losses and what is printed."""
    one = PAGE.run(place, "python mnist_classify.py --data-dir=leaves", changes=changes)
    fewer = {"=8": "=6", "--image-size=64": "--data-dir=leaves --image-size=32", **changes}
    two = PAGE.run(place, "tarantella -n 2 -- mnist_classify.py", changes=fewer)
    for ranks, output in ((1, one), (2, two)):
        assert "tf_kernels_notop.h5 is not there: training starts from random weights" in output
        lines = output.splitlines()
        assert lines[0] == "Data: leaves"
        (time,) = (number for number, line in enumerate(lines) if line.startswith("Training time: "))
        assert lines[time + 1].startswith("TF Version: 2.")
        assert lines[time + 2 : time + 7] == [
            f"Number of GPUs: 0 ({ranks} rank{'s' if ranks > 1 else ''} on CPUs)",
            f"Batch size per GPU: {12 // ranks}",
            "Train records: 36",
            "Test records:  6",
            "Number of classes: 3",
        ]
    assert len(epochs(one)) == 2
    assert_same_numbers(epochs(one), epochs(two), tolerance)


def test_two_ranks_learn_what_one_process_learns(place: Place) -> None:
    check(place, WITH_SMALL, 1e-3)


@pytest.mark.extended
@pytest.mark.timeout(2000)
def test_two_ranks_train_resnet50_as_one_process(place: Place, tmp_path: Path) -> None:
    """In float64: in float32 the losses of one process and of two ranks come apart by rounding within a few steps."""
    (tmp_path / "keras.json").write_text('{"floatx": "float64"}')
    exact = dataclasses.replace(place, environment={**place.environment, "KERAS_HOME": str(tmp_path)})
    check(exact, {}, 1e-4)


def test_without_data_it_trains_on_made_images(place: Place) -> None:
    smaller = {"=15": "=1 --image-size=32", **WITH_SMALL}
    output = PAGE.run(place, "python mnist_classify.py --batch-size-per-replica=32", changes=smaller)
    assert output.startswith("Data: made images\n")
    assert "Batch size per GPU: 32\nTrain records: 160\n" in output


def test_the_launcher_takes_the_command_of_the_page(place: Place) -> None:
    output = PAGE.run(place, "tarantella -- mnist_classify.py", changes={"tarantella": "tarantella --dry-run"})
    assert "mnist_classify.py --batch-size-per-replica=32 --epochs=15" in output


def test_the_job_asks_for_what_the_page_of_the_cluster_asks_for() -> None:
    asked = re.findall(r"^#SBATCH (--\S+)", (FOLDER / "job.slurm").read_text(), re.M)
    page = ["--nodes=1", "--ntasks=1", "--cpus-per-task=16", "--mem=64G", "--gres=gpu:2", "--time=00:20:00"]
    assert asked == ["--job-name=cassava", *page, "--signal=B:TERM@60"]


def test_its_scaling_is_measured_and_is_weak(place: Place) -> None:
    smaller = {
        "--repeat 2": "--repeat 1",
        "--epochs=5": "--epochs=2",
        "--image-size=64": "--image-size=32",
        "--cpus-per-rank 1,2": "--cpus-per-rank 1",
        **WITH_SMALL,
    }
    output = PAGE.run(place, "tarantella scaling", changes=smaller)
    assert "weak scaling: a rank keeps 8 rows a step" in output
    head, one, two = re.findall(r"^ *(?:ranks|\d).*(?:utilisation.*|\d)$", output, re.M)[:3]
    assert "speed-up" in head and one.split()[:2] == ["1", "1"] and two.split()[:2] == ["2", "1"]
    assert (place.folder / "examples/mirrored_strategy/scaling.html").exists()


def test_records_of_tensorflow_datasets(cassava: ModuleType, tmp_path: Path, capsys: Any) -> None:
    import tensorflow as tf

    folder = tmp_path / "cassava/0.1.0"
    write_records(folder, {"train": [3, 4], "test": [2], "validation": [1]})
    datasets, info = cassava.load(tmp_path)
    assert info == cassava.Info(str(folder), {"train": 7, "test": 2}, 5)
    assert [int(label) for _, label in datasets["train"]] == [0, 1, 2, 0, 1, 2, 3]
    assert len(datasets["train"]) == 7

    last = folder / "cassava-train.tfrecord-00001-of-00002"
    whole = last.read_bytes()
    last.write_bytes(whole[:-5])
    with pytest.raises(
        cassava.InputError, match=r"^1 of 2 train files are .* truncated, .*00001-of-00002; .*--skip-broken$"
    ):
        cassava.load(tmp_path)
    datasets, info = cassava.load(tmp_path, skip_broken=True)
    assert info.num_examples["train"] == len(list(datasets["train"])) == 6
    last.write_bytes(whole)
    first, *others = [record.numpy() for record in tf.data.TFRecordDataset(str(last))]
    with tf.io.TFRecordWriter(str(last)) as writer:
        for record in (first.replace(b"\xff\xd9", b"\0\0"), *others):  # without the end of the JPEG
            writer.write(record)
    with pytest.raises(cassava.InputError, match=r"1 of 7 train images are broken: .*record 0 \(no whole JPEG\)"):
        cassava.load(tmp_path)
    datasets, _ = cassava.load(tmp_path, skip_broken=True)
    assert [int(label) for _, label in datasets["train"]] == [0, 1, 2, 1, 2, 3]
    assert f"left out: 1 train images: {last} record 0 (no whole JPEG)\n" in capsys.readouterr().out
    last.unlink()
    with pytest.raises(cassava.InputError, match=r"^1 of 2 files are missing: .*00001-of-00002"):
        cassava.load(tmp_path)
    last.write_bytes(whole)
    (folder / "cassava-test.tfrecord-00000-of-00001").unlink()
    with pytest.raises(cassava.InputError, match=r"has no cassava-test\.tfrecord"):
        cassava.load(tmp_path)


def test_a_folder_of_images(cassava: ModuleType, tmp_path: Path, capsys: Any) -> None:
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(cassava.InputError, match=r"does not exist|has neither cassava"):
            cassava.load(missing)
    write_images(tmp_path, {"train": 7, "test": 3})
    datasets, info = cassava.load(tmp_path)
    assert (info.num_examples, info.num_classes) == ({"train": 7, "test": 3}, 3)
    assert sorted(int(label) for _, label in datasets["test"]) == [0, 1, 2]
    image = tmp_path / "train/class1/1.jpg"
    image.write_bytes(image.read_bytes()[:-10])
    (tmp_path / "test/class0/0.jpg").write_bytes(b"\xff\xd8 begins and ends as a JPEG \xff\xd9")
    sentence = r"^2 files below .* are no whole JPEGs: .*1\.jpg, .*0\.jpg; .*--skip-broken$"
    with pytest.raises(cassava.InputError, match=sentence):
        cassava.load(tmp_path)
    datasets, info = cassava.load(tmp_path, skip_broken=True)
    assert (info.num_examples, len(list(datasets["train"]))) == ({"train": 6, "test": 2}, 6)
    assert f"left out: 2 files below {tmp_path}: {image}, " in capsys.readouterr().out
    for path in (tmp_path / "test").rglob("*.jpg"):
        path.unlink()
    with pytest.raises(cassava.InputError, match=r"test has no <class>/\*\.jpg"):
        cassava.load(tmp_path, skip_broken=True)


def test_images_of_all_classes_are_mixed(cassava: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, count in (("train", 1500), ("test", 3)):
        for number in range(count):
            path = tmp_path / split / f"class{3 * number // count}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.parent.name)
    monkeypatch.setattr(cassava, "is_whole", lambda path: True)
    pairs = [list(cassava.load(tmp_path)[0]["train"].as_numpy_iterator()) for _ in range(2)]
    assert pairs[0] == pairs[1]
    assert all(content == f"class{label}".encode() for content, label in pairs[0])
    labels = np.array([label for _, label in pairs[0]])
    assert (np.bincount(labels) == 500).all()
    # A buffer of 1,000 would not reach the last of three classes in their order.
    assert all(set(labels[start : start + 50]) == {0, 1, 2} for start in range(0, 1500, 50))


def test_made_images_stand_in(cassava: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, info = cassava.load(None)
    assert info == cassava.Info("made images", {"train": 160, "test": 40}, 5)
    again, _ = cassava.load(None)
    for left, right in zip(datasets["test"], again["test"], strict=True):
        assert left[0] == right[0] and left[1] == right[1]


def test_weights_of_imagenet_are_used_where_the_file_is(
    cassava: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import keras
    import mnist_classify

    def resnet50(weights: str | None, include_top: bool) -> keras.Model:
        assert not include_top
        inputs = keras.Input((None, None, 3))
        return keras.Model(inputs, keras.layers.Conv2D(4, 3, name=f"with_{weights}")(inputs))

    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(keras.applications, "ResNet50", resnet50)
    assert mnist_classify.imagenet_weights() is None
    path = tmp_path / "models" / mnist_classify.WEIGHTS
    assert capsys.readouterr().out == f"{path} is not there: training starts from random weights\n"
    path.parent.mkdir()
    path.touch()
    assert mnist_classify.imagenet_weights() == "imagenet"
    assert capsys.readouterr().out == ""
    model = mnist_classify.create_model(3, mnist_classify.imagenet_weights())
    assert model.layers[1].name == "with_imagenet"


def test_bad_input_ends_the_job_with_one_sentence(start: Start, tmp_path: Path) -> None:
    ended = start(2, SCRIPT, "--data-dir=/nowhere", folder=tmp_path)
    assert ended.code == 1
    assert "mnist_classify.py: the data folder /nowhere does not exist" in ended.err
    assert "Traceback" not in ended.err
    ended = start(1, SCRIPT, "--image-size=31", folder=tmp_path)
    assert (ended.code, ended.said.split(": ", 1)[1]) == (2, "error: --image-size is 31, but must be at least 32")


def test_only_the_master_downloads(place: Place, tmp_path: Path) -> None:
    stub = tmp_path / "tensorflow_datasets.py"
    stub.write_text(
        "def load(**options):\n"
        "    with open('calls', 'a') as file: print(sorted(options), file=file)\n"
        "    raise OSError('no route to host\\nand more')\n"
    )
    on_two = {"python": f"PYTHONPATH={tmp_path}:$PYTHONPATH tarantella -n 2 --no-gpu --"}
    said = PAGE.run(place, "python download_data_and_weights.py", changes=on_two, code=1)
    assert "download_data_and_weights.py: the download failed: no route to host\n" in said
    calls = place.folder / "examples/mirrored_strategy/calls"
    assert calls.read_text() == "['as_supervised', 'data_dir', 'name', 'with_info']\n"


def test_every_command_of_the_page_is_run(request: pytest.FixtureRequest) -> None:
    PAGE.assert_all_ran(request)
