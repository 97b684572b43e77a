"""The parts of the ImageNet examples, without a job: schedule, files and their faults, pipelines, models, arguments."""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from example_modules import modules_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = (EXAMPLES, EXAMPLES / "models/resnet", EXAMPLES / "image_classification")


@pytest.fixture(scope="module")
def part() -> Iterator[Callable[[str], ModuleType]]:
    """`part("common.imagenet")`: a module of the examples, whose folders are in sys.path meanwhile."""
    with modules_of(*FOLDERS) as found:
        yield found


def write_photos(folder: Path, per_class: int, classes: int = 4) -> Path:
    """Writes JPEGs of several sizes. Those of a class have the same brightness."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(per_class):
            pixels = 50 * label + random.integers(60, size=(40 + number % 5, 50 - number % 3, 3))
            jpeg = tf.io.encode_jpeg(pixels.astype("uint8")).numpy()
            (folder / f"class{label}/{number:03}.JPEG").write_bytes(jpeg)
    return folder


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, part: Any) -> Path:
    """The same 40 images in both layouts, in the folders `tfds` and `garden`."""
    folder = tmp_path_factory.mktemp("packed")
    write_photos(folder / "photos", 10)
    for layout in ("tfds", "garden"):
        pack(part, folder / "photos", folder / layout, f"--layout={layout}", "--images_per_file=13")
    return folder


def called(module: ModuleType, *arguments: object) -> Any:
    """Runs a program within this process."""
    before, sys.argv = sys.argv, [f"{module.__name__}.py", *map(str, arguments)]
    try:
        return module.main(module.parse_args())
    finally:
        sys.argv = before


def pack(part: Any, *arguments: object) -> None:
    called(part("common.pack_imagenet"), *arguments)


def test_the_learning_rate_warms_up_to_its_scaled_value_and_decays(part: Any) -> None:
    import keras

    schedules = part("common.schedules")
    schedule = schedules.PiecewiseConstantDecayWithWarmup(batch_size=512, epoch_size=51_299)
    assert schedule.rescaled_lr == 0.1 * 512 / 256
    assert schedule.warmup_steps == 5 * 100
    expected = {0: 0, 1: 0.2 / 500, 250: 0.1, 499: 0.2 * 499 / 500, 500: 0.2, 3000: 0.2, 3001: 0.02, 6000: 0.02}
    expected |= {6001: 0.002, 8000: 0.002, 8001: 0.0002, 9000: 0.0002}
    assert [float(schedule(step)) for step in expected] == pytest.approx(list(expected.values()), rel=1e-6)

    other = schedules.PiecewiseConstantDecayWithWarmup(8, 80, 0, [2], [1.0, 0.5], base_lr_batch_size=8)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(other))
    assert [float(restored(step)) for step in (0, 20, 21)] == pytest.approx([0.1, 0.1, 0.05])
    with pytest.raises(ValueError, match="2 multipliers need 1 boundaries"):
        schedules.PiecewiseConstantDecayWithWarmup(8, 80, 0, [2, 3], [1, 0.5])
    with pytest.raises(ValueError, match="a batch of 81 images is larger than an epoch of 80"):
        schedules.PiecewiseConstantDecayWithWarmup(81, 80)


def test_a_folder_of_jpegs_is_packed_into_both_layouts(packed: Path, part: Any) -> None:
    imagenet, check = part("common.imagenet"), part("common.image_records")
    for layout, place in zip(imagenet.LAYOUTS, ("tfds/imagenet2012/5.1.0", "garden"), strict=True):
        folder = packed / place
        assert (folder / "labels.txt").read_text().split() == ["class0", "class1", "class2", "class3"]
        files = imagenet.find(packed / place.split("/")[0], "train")
        assert (files.layout, len(files.paths)) == (layout, 3)
        assert check.check(files) == 36
        labels = [int(label) for _, label in imagenet.read(files, shuffle=False)]
        assert sorted(labels) == sorted(9 * [0, 1, 2, 3])
        assert labels[:9] != sorted(labels[:9])
        assert check.check(imagenet.find(packed / place, "validation"), every_image=True) == 4


def test_folders_of_both_splits_are_packed_as_they_are(tmp_path: Path, part: Any, capsys: Any) -> None:
    write_photos(tmp_path / "photos/train", 3)
    write_photos(tmp_path / "photos/val", 2)
    pack(part, tmp_path / "photos", tmp_path / "packed", "--layout=garden")
    assert "train: 12 images of 4 classes in 1 files" in capsys.readouterr().out
    assert part("common.imagenet_check").count_images(str(tmp_path / "packed")) == [12, 8]
    said = "12 train images in 1 files, in the layout of Model Garden"
    assert said in capsys.readouterr().out


def records_of(part: Any, folder: Path) -> list[tuple[bytes, int]]:
    imagenet = part("common.imagenet")
    read = [imagenet.read(imagenet.find(folder, split), shuffle=False) for split in ("train", "validation")]
    return [pair for dataset in read for pair in dataset.as_numpy_iterator()]


def test_photos_are_checked_in_several_threads_and_keep_their_order(
    tmp_path: Path, part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer, threads = part("common.pack_imagenet"), set()

    def is_jpeg(data: bytes) -> bool:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return True

    photos = write_photos(tmp_path / "photos", 10)
    monkeypatch.setattr(packer, "is_jpeg", is_jpeg)
    pack(part, photos, tmp_path / "packed")
    assert len(threads) > 1
    splits, _ = packer.list_images(photos, 0.1)
    images = [*splits["train"], *splits["validation"]]
    assert records_of(part, tmp_path / "packed") == [(path.read_bytes(), label) for path, label in images]


def test_a_png_with_the_name_of_a_jpeg_is_packed_as_a_jpeg(tmp_path: Path, part: Any, capsys: Any) -> None:
    import tensorflow as tf

    photos = write_photos(tmp_path / "photos", 4)
    pixels = np.kron(np.arange(8, dtype="uint8")[:, None, None] * 30, np.ones((8, 64, 4), "uint8"))
    (photos / "class1/000.JPEG").write_bytes(tf.io.encode_png(pixels).numpy())
    pack(part, photos, tmp_path / "packed")
    assert f"packed as a JPEG: {photos}/class1/000.JPEG is a PNG\n" in capsys.readouterr().out
    assert part("common.imagenet_check").count_images(str(tmp_path / "packed")) == [12, 4]
    (found,) = (jpeg for jpeg, _ in records_of(part, tmp_path / "packed") if tf.io.extract_jpeg_shape(jpeg)[0] == 64)
    assert np.abs(tf.io.decode_jpeg(found).numpy().astype(int) - pixels[..., :3]).max() <= 2

    (photos / "class1/000.JPEG").write_bytes(tf.io.encode_png(pixels).numpy()[:50])
    with pytest.raises(part("common.errors").InputError, match=r"^1 of \d+ images are broken"):
        pack(part, photos, tmp_path / "again")


def test_broken_photos_are_refused_or_skipped(tmp_path: Path, part: Any, capsys: Any) -> None:
    photos = write_photos(tmp_path / "photos", 4)
    (photos / "class1/000.JPEG").write_bytes((photos / "class1/000.JPEG").read_bytes()[:300])
    (photos / "class2/notes.jpg").write_text("no image")
    input_error = part("common.errors").InputError
    with pytest.raises(
        input_error, match=r"^1 of \d+ images are broken \(--skip_broken leaves them out\): .*JPEG$|notes"
    ):
        pack(part, photos, tmp_path / "packed", "--validation_share=0.25")
    assert not (tmp_path / "packed").exists()
    pack(part, photos, tmp_path / "packed", "--skip_broken", "--validation_share=0.25")
    out = capsys.readouterr().out
    assert f"left out: {photos}/class1/000.JPEG is no whole JPEG" in out
    assert f"left out: {photos}/class2/notes.jpg is no whole JPEG" in out
    assert sum(part("common.imagenet_check").count_images(str(tmp_path / "packed"))) == 15

    with pytest.raises(input_error, match=r"nowhere does not exist$"):
        pack(part, tmp_path / "nowhere", tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(input_error, match="has no JPEGs in folders of classes for train"):
        pack(part, tmp_path / "empty", tmp_path / "x")
    (tmp_path / "empty/train").mkdir()
    with pytest.raises(input_error, match="has images to train or to validate, but not both"):
        pack(part, tmp_path / "empty", tmp_path / "x")


def write_records(path: Path, *examples: dict[str, Any]) -> str:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            features = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                if isinstance(value, bytes)
                else tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                for name, value in example.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return str(path)


def test_faults_of_files_and_images_are_named_and_counted(tmp_path: Path, part: Any, monkeypatch: Any) -> None:
    import tensorflow as tf

    imagenet, check = part("common.imagenet"), part("common.image_records")
    jpeg = tf.io.encode_jpeg(np.zeros((40, 40, 3), "uint8")).numpy()

    def message(*paths: str) -> str:
        with pytest.raises(part("common.errors").InputError) as error:
            check.check(check.Files("train", imagenet.LAYOUTS[0], list(paths)))
        return str(error.value)

    whole = write_records(tmp_path / "whole", *10 * [{"image": jpeg, "label": 3}])
    (tmp_path / "short").write_bytes((tmp_path / "whole").read_bytes()[:-1])
    (tmp_path / "header").write_bytes((tmp_path / "whole").read_bytes() + b"12345")
    (tmp_path / "text").write_text("not the records that you are looking for")
    (tmp_path / "empty").touch()
    bad = [str(tmp_path / name) for name in ("short", "header", "text", "empty")]
    assert message(whole, *bad) == (
        f"4 of 5 train files are empty, truncated, or no TFRecords: {bad[0]}, {bad[1]}, {bad[2]}, …"
    )

    mixed = write_records(
        tmp_path / "mixed",
        {"image": jpeg, "label": 0},
        {"image": jpeg[:200], "label": 0},
        {"image": jpeg, "label": 1000},
        {"image/encoded": jpeg, "label": 0},
        {"image": b"\x89PNG", "label": 0},
    )
    assert message(whole, mixed) == (
        f"4 of 15 train images are broken: {mixed} record 1 (no whole JPEG), {mixed} record 2 (the label 1000 is not "
        f"in 0 to 999), {mixed} record 3 (without 'image' or 'label'), …"
    )
    assert check.check(check.Files("train", imagenet.LAYOUTS[0], [whole])) == 10
    monkeypatch.setattr(check, "CHECKED_BYTES", 100)
    monkeypatch.setattr(check, "CHECKED_IMAGES", 3)
    assert check.check(check.Files("train", imagenet.LAYOUTS[0], [whole, mixed])) == 15  # checks 0, 5 and 10
    assert message(mixed).startswith("2 of 3 train images are broken")  # checks 0, 2 and 4


def test_a_broken_image_that_training_meets_is_one_sentence(packed: Path, tmp_path: Path, part: Any) -> None:
    import tensorflow as tf

    imagenet, check = part("common.imagenet"), part("common.image_records")
    whole = next(iter(imagenet.read(imagenet.find(packed / "tfds", "train"), shuffle=False)))[0].numpy()

    def message(path: str) -> str:
        files = check.Files("train", imagenet.LAYOUTS[0], [path])
        with pytest.raises(part("common.errors").InputError) as error, check.broken_ends("leave them out"):
            list(imagenet.training_images(files, 32, seed=1))
        return str(error.value)

    good = {"image": whole, "label": 0}
    for broken in (whole[:200], whole[:-40], b"\x89PNG", b""):
        path = write_records(tmp_path / "broken", good, {"image": broken, "label": 0})
        assert re.fullmatch(r"an image is broken \(Invalid JPEG data[^;.]*\); leave them out", message(path))
    path = Path(write_records(tmp_path / "damaged", good, good))
    path.write_bytes(path.read_bytes()[:-30] + bytes(30))
    assert re.fullmatch(
        r"a TFRecord file is damaged \(corrupted record at \d+\); prepare or copy the files again", message(str(path))
    )
    with pytest.raises(tf.errors.InvalidArgumentError), check.broken_ends("leave them out"):
        tf.reshape(tf.zeros(3), [2])


def test_a_repair_leaves_out_what_is_broken(tmp_path: Path, part: Any) -> None:
    import tensorflow as tf

    imagenet, check = part("common.imagenet"), part("common.image_records")
    jpeg = tf.io.encode_jpeg(np.zeros((40, 40, 3), "uint8")).numpy()
    names = [f"imagenet2012-train.tfrecord-{number:05}-of-00003" for number in range(3)]
    rows = [{"image": jpeg, "label": label} for label in range(4)]
    whole, mixed, short = (tmp_path / name for name in names)
    write_records(whole, *rows)
    write_records(mixed, rows[3], {"image": jpeg[:200], "label": 0}, rows[2])
    short.write_bytes(whole.read_bytes()[:-9])
    files = imagenet.find(tmp_path, "train")
    assert check.repair(files) == [f"{mixed} record 1 (no whole JPEG)", f"{short} (its cut-off end)"]
    assert sorted(path.name for path in tmp_path.glob("*.broken")) == [f"{names[1]}.broken", f"{names[2]}.broken"]
    assert imagenet.find(tmp_path, "train") == files
    apart = [imagenet.read(check.Files("train", files.layout, [path]), shuffle=False) for path in files.paths]
    assert [int(label) for images in apart for _, label in images] == [0, 1, 2, 3, 3, 2, 0, 1, 2]
    assert check.repair(files) == []


def test_training_images_differ_in_each_epoch_and_not_between_runs(packed: Path, part: Any) -> None:
    input_fn = part("imagenet_preprocessing").input_fn

    def epochs(folder: str) -> list[np.ndarray]:
        dataset = input_fn(True, str(packed / folder), 12, shuffle_seed=3, drop_remainder=True, image_size=32)
        return [np.concatenate([x.numpy() for x, _ in dataset]) for _ in range(2)]

    first, second = epochs("tfds")
    assert (first.shape, first.dtype) == ((36, 32, 32, 3), "float32")
    # a photo in one colour may look the same twice
    assert len({image.tobytes() for image in first} & {image.tobytes() for image in second}) < 4
    again = epochs("garden")
    assert (again[0] == first).all() and (again[1] == second).all()

    batches = list(input_fn(False, str(packed / "tfds"), 3, image_size=48, num_images=4))
    assert [x.shape for x, _ in batches] == [(3, 48, 48, 3), (1, 48, 48, 3)]
    assert sorted(int(label) for _, y in batches for label in y) == [0, 1, 2, 3]
    assert len(input_fn(True, str(packed / "tfds"), 5, drop_remainder=True, num_images=36)) == 7


def test_every_rank_maps_its_own_rows_only(packed: Path, part: Any) -> None:
    import tarantella as tnt

    load_dataset = part("train_imagenet_main").load_dataset
    import tensorflow as tf

    for split, count in (("train", 36), ("validation", 4)):
        dataset = load_dataset(
            dataset_type=split,
            data_dir=str(packed / "tfds"),
            num_samples=count,
            batch_size=4,
            dtype=tf.float32,
            drop_remainder=False,
            shuffle_seed=42,
        )
        assert "maps its own rows only" in str(tnt.data.explain(dataset))


def test_the_models_are_those_of_the_papers(part: Any) -> None:
    model = part("resnet_model").resnet50(num_classes=1000)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds.count("Conv2D") + kinds.count("Dense") == 50 + 4  # four shortcuts
    assert sum(int(np.prod(weight.shape)) for weight in model.trainable_weights) == 25_557_032
    assert model.layers[-4].output.shape == (None, 7, 7, 2048)
    assert not any(getattr(layer, "synchronized", False) for layer in model.layers)
    assert part("alexnet").AlexNet().count_params() == 61_100_840
    with pytest.raises(ValueError, match="no weights to load"):
        part("alexnet").AlexNet(weights="imagenet")


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        ("resnet50_tnt", ["--data_dir=x", "--batch_size=0"], "--batch_size is 0, but must be at least 1"),
        ("resnet50_tnt", ["--data_dir=x", "--image_size=31"], "--image_size is 31, but ResNet-50 needs at least 32"),
        ("resnet50_tnt", ["--data_dir=x", "--resume"], "checkpoints and TensorBoard need --model_dir"),
        (
            "train_imagenet_main",
            ["--data_dir=x", "--model_arch=alexnet", "--image_size=62"],
            "alexnet needs at least 63",
        ),
        ("train_imagenet_main", ["--synthetic_data", "--val_freq=0"], "--val_freq is 0, but must be at least 1"),
        ("train_imagenet_main", [], "give either --data_dir or --synthetic_data"),
        ("train_imagenet_main", ["--model_arch=lenet"], "invalid choice: 'lenet'"),
    ],
)
def test_arguments_that_cannot_be_are_errors(
    program: str, arguments: list[str], message: str, part: Any, capsys: Any
) -> None:
    with pytest.raises(SystemExit):
        called(part(program), *arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("program", ["resnet50_tnt", "train_imagenet_main", "common.pack_imagenet"])
def test_every_program_has_help(program: str, part: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        called(part(program), "--help")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {program}.py")


def test_data_that_does_not_fit_is_one_sentence(packed: Path, tmp_path: Path, part: Any, monkeypatch: Any) -> None:
    input_error = part("common.errors").InputError
    data, small = f"--data_dir={packed / 'tfds'}", "--image_size=64"
    with pytest.raises(input_error, match=r"^--batch_size is 37, but .* has 36 images to train$"):
        called(part("resnet50_tnt"), data, "--batch_size=37", small)
    main = part("train_imagenet_main")
    with pytest.raises(input_error, match=r"^--train_num_samples is 37, but .* has 36 images$"):
        called(main, data, "--train_num_samples=37", "--batch_size=4", small)
    with pytest.raises(input_error, match=r"^--batch_size is 9, but --train_num_samples is 8$"):
        called(main, data, "--train_num_samples=8", "--batch_size=9", small)
    with pytest.raises(input_error, match=r"^the data folder nowhere does not exist$"):
        called(main, "--data_dir=nowhere", small)
    with pytest.raises(input_error, match="has no TFRecords of ImageNet"):
        called(part("resnet50_tnt"), f"--data_dir={tmp_path}")


def test_the_rest_of_the_epochs_is_trained_and_evaluated(
    packed: Path, tmp_path: Path, part: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import keras

    def small(num_classes: int, image_size: int, synchronized: bool) -> keras.Model:
        layers = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(num_classes, "softmax")]
        return keras.Sequential([keras.Input((image_size, image_size, 3)), *layers])

    monkeypatch.setattr(part("resnet_model"), "resnet50", small)
    caplog.set_level("INFO")
    options = ("--batch_size=12", "--image_size=32", "--train_epochs=5", "--epochs_between_evals=2", "--verbose=0")
    places = (f"--data_dir={packed / 'tfds'}", f"--model_dir={tmp_path}")
    options += (*places, "--enable_checkpoint_and_export", "--resume")
    called(part("resnet50_tnt"), *options)
    said = [record.getMessage().split(":")[0] for record in caplog.records]
    assert [line for line in said if line.startswith("Epoch ")] == ["Epoch 2", "Epoch 4", "Epoch 5"]

    caplog.clear()
    called(part("resnet50_tnt"), *options)
    done = f"All 5 epochs are done: the newest checkpoint in {tmp_path} is of epoch 5"
    assert [record.getMessage() for record in caplog.records] == [done]


QUICKLY_BUILT = ("alexnet", "mobilenetV2", "resnet50", "vgg16", "efficientnetV2B0")
ARCHITECTURES = re.findall(r'^    "(\w+)": \(', (FOLDERS[2] / "train_imagenet_main.py").read_text(), re.M)
ARCHITECTURES += [f"efficientnetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L")]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICKLY_BUILT else pytest.mark.extended) for name in ARCHITECTURES],
)
def test_every_architecture_takes_its_smallest_images(name: str, part: Any) -> None:
    main = part("train_imagenet_main")
    assert set(main.ARCHITECTURES) == set(ARCHITECTURES)
    size = main.ARCHITECTURES[name][1]
    model = main.get_model(argparse.Namespace(model_arch=name, image_size=size))
    assert (model.input_shape, model.output_shape) == ((None, size, size, 3), (None, 1000))


@pytest.fixture(params=["fp32", "fp16"])
def dtype(request: pytest.FixtureRequest, part: Any) -> Iterator[str]:
    """What --dtype is, and the policy that follows from it."""
    import keras

    keras.mixed_precision.set_dtype_policy(part("resnet50_tnt").POLICIES[request.param])
    yield request.param
    keras.mixed_precision.set_dtype_policy("float32")


def test_a_checkpoint_brings_weights_optimizer_and_epoch(dtype: str, tmp_path: Path, part: Any) -> None:
    import keras

    restore, name = part("common.checkpoints").restore, part("resnet50_tnt").CHECKPOINT

    def model(units: int) -> keras.Model:
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units)])
        made.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        return made

    assert restore(model(2), tmp_path, name) == 0
    trained = model(2)
    callback = keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=True)
    trained.fit(np.ones((8, 3)), np.ones((8, 2)), batch_size=4, epochs=11, callbacks=[callback], verbose=0)
    other = model(2)
    assert restore(other, tmp_path, name) == 11
    assert hasattr(other.optimizer, "inner_optimizer") == (dtype == "fp16")  # the one that scales the loss
    # A step whose gradients overflow in float16 does not count.
    assert int(other.optimizer.iterations) == int(trained.optimizer.iterations) >= (22 if dtype == "fp32" else 11)
    for left, right in zip(trained.optimizer.variables, other.optimizer.variables, strict=True):
        assert np.array_equal(left, right)
    assert np.array_equal(trained.get_weights()[0], other.get_weights()[0])

    path = tmp_path / "model-0011.weights.h5"
    sentence = rf"^the checkpoint {path} is damaged or of another model \(.*\)$"
    with pytest.raises(part("common.errors").InputError, match=sentence):
        restore(model(3), tmp_path, name)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(part("common.errors").InputError, match=sentence):
        restore(model(2), tmp_path, name)
