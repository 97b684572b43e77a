"""The parts of the scaling tutorial, without a job: configurations, models, data sets and the analysis."""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from example_modules import modules_of

FOLDER = Path(__file__).resolve().parents[3] / "examples/scaling_tutorial"
CONFIGS = sorted(path.name for path in (FOLDER / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def part() -> Iterator[Callable[[str], ModuleType]]:
    """`part("utils.config")`: a module of the tutorial, whose folder is in sys.path meanwhile."""
    with modules_of(FOLDER, FOLDER.parent) as found:
        yield found


def arguments(path: Path, **given: Any) -> argparse.Namespace:
    names = ("dropout", "optimizer", "batch_size", "n_epochs")
    flags = {"distributed": False, "verbose": False, "show_config": False, "interactive": False}
    return argparse.Namespace(config=str(path), **{**dict.fromkeys(names), **flags, **given})


@pytest.fixture
def load(part: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`load(change, **options)`: the dummy configuration after `change(config)`, as the script reads it."""
    for name in ("SCRATCH", "SLURM_JOB_ID", "IMAGENET_DIR"):
        monkeypatch.delenv(name, raising=False)

    def read(change: Callable[[Any], Any] = lambda config: None, **options: Any) -> Any:
        config = yaml.safe_load((FOLDER / "configs/dummy_cnn.yaml").read_text())
        change(config)
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(config))
        return part("utils.config").load_config(arguments(path, **options))

    return read


def put(section: str, **values: Any) -> Callable[[Any], Any]:
    return lambda config: config[section].update(values)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_configurations_of_the_tutorial_are_valid(
    name: str, part: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGENET_DIR", "/data/imagenet")
    config = part("utils.config").load_config(arguments(FOLDER / "configs" / name))
    assert config["data"]["name"] in ("cifar10", "imagenet", "dummy")
    assert config["optimizer"]["lr_scaling"] == "linear"


def test_values_of_the_configuration_are_read_and_overridden(load: Callable[..., Any], part: Any) -> None:
    def move_warmup(config: Any) -> None:
        del config["optimizer"]["lr_warmup_epochs"]
        config["training"]["lr_warmup_epochs"] = 4

    config = load(move_warmup, n_epochs=7, dropout=0.0)
    assert config["training"]["n_epochs"] == 7
    assert config["model"]["dropout"] == 0
    assert config["optimizer"]["lr_warmup_epochs"] == 4
    assert "lr_warmup_epochs" not in config["training"]
    pairs = part("utils.config").read_pairs("name=sgd,lr=1e-4,lr_scaling=SQRT,lr_warmup_epochs=2")
    optimizer = load(optimizer=pairs)["optimizer"]
    assert optimizer == {"name": "SGD", "lr": 1e-4, "lr_scaling": "sqrt", "lr_warmup_epochs": 2}
    assert load(put("optimizer", lr_scaling=None))["optimizer"]["lr_scaling"] == "linear"
    without = load(put("training", lr_schedule=[{"multiplier": 1, "start_epoch": None}]))
    assert without["training"]["lr_schedule"] == [{"multiplier": 1.0}]
    training = load(put("training", loss="Categorical_Crossentropy", metrics=["Accuracy", "AUC"]))["training"]
    assert training["loss"] == "categorical_crossentropy"
    assert training["metrics"] == ["Accuracy", "AUC"]
    # Text for YAML, which wants a point in such numbers.
    assert load(put("optimizer", weight_decay="1e-4", clipnorm=None))["optimizer"]["weight_decay"] == 1e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("model", name="resnet_smal"),
            "model.name 'resnet_smal' is unknown; did you mean 'resnet_small'? Known: cnn",
        ),
        (put("data", name="cifar"), "data.name 'cifar' is unknown; did you mean 'cifar10'?"),
        (put("model", n_clases=3), "model: the key 'n_clases' is unknown; did you mean 'n_classes'?"),
        (put("training", batchsize=3), "training: the key 'batchsize' is unknown; did you mean 'batch_size'?"),
        (put("training", Batch_Size=3), "training: write the key 'Batch_Size' in lower case"),
        (lambda config: config.update(trainig={}), "the key 'trainig' is unknown; did you mean 'training'?"),
        (lambda config: config.pop("output_dir"), "the key 'output_dir' is missing"),
        (lambda config: config["training"].pop("loss"), "training: the key 'loss' is missing"),
        (lambda config: config.update(data={"name": "imagenet"}), "data: the key 'data_dir' is missing"),
        (lambda config: config.update(device=[1]), "device must be a mapping (got [1])"),
        (put("optimizer", name="Adm"), "optimizer.name 'Adm' is unknown; did you mean 'Adam'?"),
        (put("optimizer", momentm=0.9), "optimizer: the key 'momentm' is unknown"),
        (put("optimizer", lr="fast"), "optimizer.lr must be a number (got 'fast')"),
        (put("optimizer", lr_scaling="lineal"), "optimizer.lr_scaling 'lineal' is unknown; did you mean 'linear'?"),
        (put("training", lr_warmup_epochs=2), "lr_warmup_epochs is in both sections, optimizer and training"),
        (put("training", batch_size=0), "training.batch_size must be at least 1 (got 0)"),
        (put("training", n_epochs=1.5), "training.n_epochs must be a whole number (got 1.5)"),
        (put("training", loss="categorical_crosentropy"), "did you mean 'categorical_crossentropy'?"),
        (put("training", metrics=["acuracy"]), "training.metrics 'acuracy' is unknown; did you mean 'accuracy'?"),
        (put("training", metrics="accuracy"), "training.metrics must be a list, such as [accuracy] (got 'accuracy')"),
        (put("training", metrics=["MeanIoU"]), "training.metrics 'MeanIoU' needs arguments"),
        (put("training", metrics=[{"name": "AUC"}]), "training.metrics must be a name (got {'name': 'AUC'})"),
        (put("training", loss="get"), "training.loss 'get' is unknown"),
        (put("training", loss=["mse"]), "training.loss must be a name (got ['mse'])"),
        (put("training", batch_size="x"), "training.batch_size must be a number (got 'x')"),
        (put("training", batch_size=True), "training.batch_size must be a number (got True)"),
        (put("training", batch_size=10**400), "training.batch_size must be a number (got 1000"),
        (put("training", n_epochs=-1), "training.n_epochs must be at least 1 (got -1)"),
        (put("training", n_epochs=float("nan")), "training.n_epochs must be a number (got nan)"),
        (put("training", lr_schedule="cosine"), "lr_schedule must be a list, such as [{start_epoch: 30, multiplier"),
        (put("training", lr_schedule=["cosine"]), "lr_schedule, entry 1 must be a mapping (got 'cosine')"),
        (put("training", lr_schedule=[{"multiplier": "x"}]), "entry 1: multiplier must be a number (got 'x')"),
        (
            put("training", lr_schedule=[{"multiplier": 1, "start_epoch": 5, "end_epoch": 5}]),
            "lr_schedule, entry 1: end_epoch must be above start_epoch, 5 (got 5)",
        ),
        (
            put("training", lr_schedule=[{"multiplier": 1, "momentum_correction": "maybe"}]),
            "entry 1: momentum_correction must be true or false (got 'maybe')",
        ),
        (put("optimizer", lr=True), "optimizer.lr must be a number (got True)"),
        (put("optimizer", lr={"name": "CosineDecay"}), "optimizer.lr must be a number (got {'name': 'CosineDecay'})"),
        (put("optimizer", weight_decay="much"), "optimizer.weight_decay must be a number (got 'much')"),
        (put("optimizer", beta_1=[1]), "optimizer.beta_1 must be a number (got [1])"),
        (put("optimizer", amsgrad="maybe"), "optimizer.amsgrad must be true or false (got 'maybe')"),
        (put("optimizer", lr_warmup_epochs="soon"), "optimizer.lr_warmup_epochs must be a number (got 'soon')"),
        (put("model", width=2.5), "model.width must be a whole number (got 2.5)"),
        (put("model", n_classes="ten"), "model.n_classes must be a number (got 'ten')"),
        (put("model", dropout="much"), "model.dropout must be a number (got 'much')"),
        (put("data", image_shape=[32, 32]), "data.image_shape must be [height, width, channels] (got [32, 32])"),
        (put("data", image_shape=[32, 32, "x"]), "data.image_shape must be a number (got 'x')"),
        (lambda config: config.update(data={"name": "cifar10", "augment": 1}), "data.augment must be true or false"),
        (lambda config: config.update(data={"name": "cifar10", "data_dir": 5}), "data.data_dir must be text"),
        (put("device", intra_threads=10**9), "device.intra_threads must be at most 4096 (got 1000000000)"),
        (lambda config: config.update(seed=2**32), "seed must be at most 2147483647 (got 4294967296)"),
        (lambda config: config.update(description=["x"]), "description must be text"),
        (
            lambda config: config.update(output_dir=2026),
            "output_dir must be text, in quotes where YAML reads",
        ),
        (lambda config: config.update(output_dir="run-{epoch}"), "output_dir: write variables as ${N_RANKS}"),
        (put("training", lr_schedule=[{"multiplier": 1, "end": 3}]), "lr_schedule, entry 1: the key 'end' is unknown"),
        (put("training", lr_schedule=[{"end_epoch": 3}]), "lr_schedule, entry 1: the key 'multiplier' is missing"),
        (put("data", n_train="all"), "data.n_train must be a number (got 'all')"),
        (put("data", n_valid=0), "data.n_valid must be at least 1 (got 0)"),
        (put("device", intra_threads=-1), "device.intra_threads must be at least 0 (got -1)"),
        (put("model", dropout=1), "model.dropout must be below 1 (got 1)"),
        (put("model", input_shape=[32, 32]), "model.input_shape must be [height, width, channels] (got [32, 32])"),
        (lambda config: config.update(device={"threads": 2}), "device: the key 'threads' is unknown"),
        (lambda config: config.update(output_dir="$NOWHERE/x"), "the environment variable NOWHERE in '$NOWHERE/x'"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_sentence(
    change: Callable[[Any], Any], message: str, load: Callable[..., Any], part: Any
) -> None:
    with pytest.raises(part("utils.errors").InputError) as error:
        load(change)
    assert message in str(error.value)
    assert "run.yaml: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the configuration"),
        ("a: [1", "is not YAML"),
        ("a: 2026-13-45", "is not YAML"),
        ("- 1", "is not a mapping of the sections"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_sentence(
    text: str | None, message: str, tmp_path: Path, part: Any
) -> None:
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(part("utils.errors").InputError, match=message) as error:
        part("utils.config").load_config(arguments(tmp_path / "x.yaml"))
    assert "\n" not in str(error.value)


def test_an_unknown_key_of_the_option_optimizer_is_an_error(part: Any) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="the key 'learning_rat' is unknown"):
        part("utils.config").read_pairs("learning_rat=1")
    with pytest.raises(argparse.ArgumentTypeError, match="did you mean 'lr_scaling'"):
        part("utils.config").read_pairs("lr_scalin=none")


def test_learning_rates_scale_with_the_ranks(part: Any) -> None:
    scale_lr = part("utils.optimizers").scale_lr
    assert [scale_lr(0.1, name, 4) for name in ("linear", "sqrt", "none")] == pytest.approx([0.4, 0.2, 0.1])
    optimizer = part("utils.optimizers").get_optimizer(
        {"name": "SGD", "lr": 1, "momentum": 0.5}, 0.25, distributed=False
    )
    assert float(optimizer.learning_rate) == 0.25
    assert optimizer.momentum == 0.5


def test_what_keras_refuses_is_one_sentence(part: Any) -> None:
    error = part("utils.errors").InputError
    with pytest.raises(error, match=r"^optimizer: Keras does not take \{'momentum': 'much'\}: .*momentum"):
        part("utils.optimizers").get_optimizer({"name": "SGD", "lr": 1, "momentum": "much"}, 0.25, distributed=False)
    options = {"name": "SGD", "lr": 1, "loss_scale_factor": {"a": 1}}  # which Keras reads in the first step
    with pytest.raises(error, match=r"^optimizer: Keras does not take \{'loss_scale_factor': \{'a': 1\}\}"):
        part("utils.optimizers").get_optimizer(options, 0.25, distributed=False)
    with pytest.raises(error, match=r"^model: Keras does not take .*'width': 0.*filters"):
        part("models").get_model("cnn", width=0)


def test_a_folder_that_cannot_be_made_is_one_sentence(load: Any, part: Any, tmp_path: Path) -> None:
    load(lambda config: config.update(output_dir="/dev/null/run", device={}))
    with pytest.raises(part("utils.errors").InputError, match="cannot make the folder /dev/null/run: Not a directory"):
        part("train_horovod").main(arguments(tmp_path / "run.yaml"))


def test_a_schedule_multiplies_the_scaled_rate_by_a_constant(load: Callable[..., Any], part: Any) -> None:
    entries = [{"multiplier": 0.1, "start_epoch": 3, "end_epoch": 6}, {"multiplier": 0.01, "start_epoch": 6}]
    first, second = part("train_horovod").get_callbacks(load(put("training", lr_schedule=entries)), 0.4, 0, False)
    assert [first.multiplier(epoch) for epoch in (3, 5)] == [0.1, 0.1]
    assert (first.initial_lr, first.start_epoch, first.end_epoch) == (0.4, 3, 6)
    assert (second.multiplier(9), second.end_epoch) == (0.01, None)


def test_residual_networks_have_the_layers_of_their_names(part: Any) -> None:
    def depth(model: Any) -> int:
        kinds = [type(layer).__name__ for layer in model.layers if not layer.name.endswith("_shortcut")]
        return kinds.count("Conv2D") + kinds.count("Dense")

    get_model = part("models").get_model
    small = get_model("resnet_small", input_shape=[32, 32, 3], n_classes=10)
    large = get_model("resnet50", input_shape=[224, 224, 3], n_classes=1000, dropout=0.1)
    assert (depth(small), depth(large)) == (26, 50)
    assert sum(int(np.prod(weight.shape)) for weight in large.trainable_weights) == 25_557_032  # as published
    assert large.layers[-5].output.shape == (None, 7, 7, 2048)
    assert small.output_shape == (None, 10)
    cnn = get_model("cnn", input_shape=[28, 28, 1], n_classes=4, dropout=0.5)
    assert cnn.output_shape == (None, 4)
    assert [layer.rate for layer in cnn.layers if "dropout" in layer.name] == [0.5, 0.5, 0.5]


def batches(dataset: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = zip(*((x.numpy(), y.numpy()) for x, y in dataset.take(count)), strict=True)
    return np.concatenate(x), np.concatenate(y)


def write_cifar10(folder: Path) -> None:
    """Writes 50 images to train and 6 to test. Image number n is all n, of class n % 10."""
    folder.mkdir()
    names = [f"data_batch_{number}" for number in range(1, 6)]
    values = np.arange(50)
    for name, part_of in [("test_batch", values[:6]), *zip(names, np.split(values, 5), strict=True)]:
        rows = np.repeat(part_of[:, None], 3072, axis=1).astype("uint8")
        (folder / name).write_bytes(pickle.dumps({b"data": rows, b"labels": (part_of % 10).tolist()}))


def test_cifar10_is_read_shuffled_by_each_rank_and_split_for_validation(tmp_path: Path, part: Any) -> None:
    import keras

    write_cifar10(tmp_path / "data")
    trained, validated = [], []
    for rank in range(2):
        keras.utils.set_random_seed(7 + rank)
        datasets = part("data").get_datasets(
            "cifar10", data_dir=str(tmp_path / "data"), batch_size=5, rank=rank, n_ranks=2
        )
        assert (datasets.steps_per_epoch, datasets.image_shape, datasets.n_classes) == (5, (32, 32, 3), 10)
        x, y = batches(datasets.train, 10)
        assert (x.dtype, x.shape, y.shape) == ("float32", (50, 32, 32, 3), (50, 10))
        numbers = np.rint((x[:, 0, 0, 0] + 1) * 127.5).astype(int)
        assert sorted(numbers) == list(range(50))
        assert (y.argmax(axis=1) == numbers % 10).all()
        trained.append(numbers)
        validated.append(batches(datasets.valid, 9)[1].argmax(axis=1))
    assert (trained[0] != trained[1]).any()
    assert [part_of.tolist() for part_of in validated] == [[0, 2, 4], [1, 3, 5]]


def test_training_images_are_shifted_and_mirrored(part: Any) -> None:
    import keras

    keras.utils.set_random_seed(1)
    image = np.arange(32 * 32 * 3, dtype="uint8").reshape(32, 32, 3)
    changed = [part("data.cifar10").shift_and_mirror(image).numpy() for _ in range(8)]
    assert all(each.shape == image.shape for each in changed)
    assert len({each.tobytes() for each in changed}) > 4


def test_missing_or_broken_data_is_one_sentence(tmp_path: Path, part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = part("data")

    def message(name: str, n_ranks: int = 1, **options: Any) -> str:
        with pytest.raises(part("utils.errors").InputError) as error:
            data.get_datasets(name, batch_size=2, rank=0, n_ranks=n_ranks, **options)
        return str(error.value)

    folder = tmp_path / "data"
    assert message("cifar10", data_dir=str(folder)) == f"the data folder {folder} does not exist"
    assert message("imagenet", data_dir=str(folder)) == f"the data folder {folder} does not exist"
    assert "7 ranks: each needs one" in message("dummy", n_valid=6, n_ranks=7)
    write_cifar10(folder)
    assert "has no TFRecords of ImageNet (imagenet2012-train.tfrecord-*" in message("imagenet", data_dir=str(folder))
    (folder / "data_batch_4").write_bytes((folder / "data_batch_4").read_bytes()[:99])
    assert message("cifar10", data_dir=str(folder)).startswith(f"{folder}/data_batch_4 is not a batch of CIFAR-10")
    (folder / "data_batch_4").unlink()
    assert message("cifar10", data_dir=str(folder)) == f"the data folder {folder} has no file data_batch_4"

    def no_network() -> None:
        raise RuntimeError("no route")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setattr("keras.datasets.cifar10.load_data", no_network)
    assert "cannot be downloaded (no route); run scripts/setup.sh" in message("cifar10")


def write_imagenet(folder: Path, layout: Any, count: int) -> None:
    """Writes two files for training and one for validation, with JPEGs of several sizes. Image n is of class n % 4."""
    import tensorflow as tf

    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for split, files in (("train", 2), ("validation", 1)):
        for number in range(files):
            name = layout.pattern.format(split=split).replace("*", f"{number:05}", 1).replace("*", f"{files:05}")
            with tf.io.TFRecordWriter(str(folder / name)) as writer:
                for n in range(count):
                    pixels = random.integers(256, size=(40 + n, 64 - n, 3)).astype("uint8")
                    jpeg = tf.io.encode_jpeg(pixels).numpy()
                    features = {
                        layout.image: tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                        layout.label: tf.train.Feature(
                            int64_list=tf.train.Int64List(value=[n % 4 + layout.first_label])
                        ),
                    }
                    example = tf.train.Example(features=tf.train.Features(feature=features))
                    writer.write(example.SerializeToString())


def test_imagenet_is_read_in_either_layout_and_trained_on(
    tmp_path: Path, part: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tfds, garden = part("data.imagenet").imagenet.LAYOUTS
    write_imagenet(tmp_path / "tfds/imagenet2012/5.1.0", tfds, 6)
    write_imagenet(tmp_path / "garden", garden, 6)
    options = {"batch_size": 2, "image_size": 32, "n_classes": 4, "n_train": 12, "n_valid": 6, "n_ranks": 2}
    for folder in ("tfds", "garden"):
        found = []
        for rank in range(2):
            datasets = part("data").get_datasets("imagenet", data_dir=str(tmp_path / folder), rank=rank, **options)
            x, y = batches(datasets.valid, 9)
            assert (x.shape, x.dtype) == ((3, 32, 32, 3), "float32")
            assert abs(x.mean()) < 1.5
            found.append(y.argmax(axis=1).tolist())
        assert found == [[0, 2, 0], [1, 3, 1]]
        assert datasets.steps_per_epoch == 3
        x, y = batches(datasets.train, 6)
        assert sorted(y.argmax(axis=1)) == sorted(2 * [0, 1, 2, 3, 0, 1])

    config = yaml.safe_load((FOLDER / "configs/imagenet_resnet.yaml").read_text())
    config["data"] |= {
        "data_dir": "$IMAGENET_DIR",
        **{key: options[key] for key in ("image_size", "n_train", "n_valid")},
    }
    config["data"]["n_classes"] = 4
    config["model"] = {"name": "cnn", "width": 4}
    config |= {"output_dir": "$SCRATCH/run", "device": {}}
    config["training"]["metrics"] = ["accuracy"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("IMAGENET_DIR", str(tmp_path / "garden"))
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    caplog.set_level("INFO")
    part("train_horovod").main(arguments(tmp_path / "run.yaml", batch_size=6, n_epochs=1))
    assert "Best validation accuracy" in caplog.text
    assert (tmp_path / "run/checkpoints/checkpoint-1.keras").exists()


def test_a_model_that_does_not_fit_the_data_is_one_sentence(part: Any) -> None:
    config = part("utils.config")
    datasets = part("data").get_datasets("dummy", batch_size=2, rank=0, n_ranks=1, n_train=4, n_valid=4)
    model = {"name": "cnn"}
    config.check_shapes(model, datasets)
    assert model == {"name": "cnn", "input_shape": [32, 32, 3], "n_classes": 10}
    with pytest.raises(
        part("utils.errors").InputError, match=r"model.input_shape is \[28, 28, 1\], but the images are of shape"
    ):
        config.check_shapes({"input_shape": [28, 28, 1]}, datasets)
    with pytest.raises(part("utils.errors").InputError, match=r"model\.n_classes is 7, but the data has 10 classes"):
        config.check_shapes({"n_classes": 7}, datasets)


def test_a_loss_or_metric_that_does_not_fit_the_labels_is_one_sentence(part: Any) -> None:
    check = part("utils.config").check_loss_and_metrics
    check({"loss": "categorical_crossentropy", "metrics": ["accuracy", "AUC", "top_k_categorical_accuracy"]}, 10)
    for loss in ("sparse_categorical_crossentropy", "Loss"):
        with pytest.raises(part("utils.errors").InputError, match=f"for one-hot labels: Keras does not take {loss}: "):
            check({"loss": loss, "metrics": []}, 10)
    with pytest.raises(part("utils.errors").InputError, match=r"training\.metrics.* does not take Metric: "):
        check({"loss": "mse", "metrics": ["Metric"]}, 10)


def test_a_gpu_that_is_not_there_is_one_sentence(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = part("utils.device")
    monkeypatch.setattr(device.tf.config, "list_physical_devices", lambda kind: ["a", "b"])
    with pytest.raises(part("utils.errors").InputError, match="gpu is 2, but this process sees 2 GPUs, numbered from"):
        device.configure_device(gpu=2)


def test_a_job_of_several_ranks_without_d_is_one_sentence(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = part("train_horovod")
    monkeypatch.setattr(script.tnt, "get_size", lambda: 2)
    with pytest.raises(script.InputError, match="the job has 2 ranks, and without -d each would train on its own"):
        script.init_workers(distributed=False)


def test_the_analysis_leaves_out_the_first_epoch(tmp_path: Path, part: Any) -> None:
    analysis = part("analysis")
    for ranks, seconds in ((1, [9, 4, 4]), (2, [9, 2, 2]), (4, [8, 1, 1.5])):
        (tmp_path / f"n{ranks}").mkdir()
        np.savez(tmp_path / f"n{ranks}/history.npz", n_ranks=ranks, epoch_seconds=seconds, loss=[3, 2, 1])
    runs = analysis.load_runs(tmp_path)
    assert [run.n_ranks for run in runs] == [1, 2, 4]
    assert analysis.speed_ups(runs) == {1: 1.0, 2: 2.0, 4: 3.2}
    assert len(analysis.draw_learning_curves(runs).axes[0].lines) == 3
    assert len(analysis.draw_speed_up(runs).axes[0].lines) == 2
    with pytest.raises(FileNotFoundError, match="train first"):
        analysis.load_runs(tmp_path / "n9")


def test_the_digits_are_files_of_cifar10(tmp_path: Path, part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.modules.get("sklearn", True) is None:  # hidden by lean/sitecustomize.py
        monkeypatch.delitem(sys.modules, "sklearn")
    part("compare_ranks").write_digits(tmp_path)
    x, y = part("data.cifar10").read(tmp_path, part("data.cifar10").TRAIN)
    assert (x.shape, x.dtype, y.shape) == ((1437, 32, 32, 3), "uint8", (1437,))
    assert x.max() == 255
    assert set(y) == set(range(10))
