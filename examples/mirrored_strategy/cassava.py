"""Photographs of cassava leaves, with the disease that they show, as JPEGs.

`load` reads what TensorFlow Datasets prepares (cassava/<version>/*.tfrecord-*), or a folder train/<class>/*.jpg with
test/<class>/*.jpg beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import numpy as np
import tensorflow as tf
from common.downloads import on_all_ranks
from common.errors import InputError
from common.image_records import Files, Layout, count, from_master, is_jpeg
from common.records import find_shards, listed

CLASSES = 5
SPLITS = ("train", "test")
STAND_IN = {"train": 160, "test": 40}


@dataclass(frozen=True)
class Info:
    """What is known of the data before any image is read."""

    origin: str
    num_examples: dict[str, int]
    num_classes: int


Datasets = dict[str, tf.data.Dataset]


def load(folder: Path | None) -> tuple[Datasets, Info]:
    """Returns pairs of a JPEG (string) and its label (int64, from 0) of "train" and "test", in a fixed order.

    folder: where the data is. None takes `cassava` in the working directory if all ranks have it there, and otherwise
    made images. Call it on all ranks. Raises InputError if the folder has no data, or has broken files.
    """
    if folder is None and not on_all_ranks((Path.cwd() / "cassava").is_dir()):
        return made()
    folder = folder or Path.cwd()
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} does not exist")
    prepared = find_shards(folder, ["cassava/*/cassava-train.tfrecord-*-of-*"])
    if prepared:
        return from_records(prepared[0].parent)
    if (folder / "train").is_dir():
        return from_images(folder)
    raise InputError(f"the data folder {folder} has neither cassava/<version>/*.tfrecord-* nor train/<class>/*.jpg")


def from_records(folder: Path) -> tuple[Datasets, Info]:
    """Reads what TensorFlow Datasets has prepared in a folder of one version."""
    names = folder / "label.labels.txt"
    classes = len(names.read_text(encoding="utf-8").split()) if names.exists() else CLASSES
    layout = Layout("TensorFlow Datasets", "cassava-{split}.tfrecord-*-of-*", "image", "label", 0, classes)
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, features)
        return parsed["image"], parsed["label"]

    found = []
    for split in SPLITS:
        paths = find_shards(folder, [layout.pattern.format(split=split)])
        if not paths:
            raise InputError(f"the data folder {folder} has no cassava-{split}.tfrecord-*")
        found.append(Files(split, layout, [str(path) for path in paths]))
    counts = dict(zip(SPLITS, count(found), strict=True))
    datasets = {
        files.split: tf.data.TFRecordDataset(files.paths)
        .map(parse)
        .apply(tf.data.experimental.assert_cardinality(counts[files.split]))
        for files in found
    }
    return datasets, Info(str(folder), counts, classes)


def from_images(folder: Path) -> tuple[Datasets, Info]:
    """Reads a folder of JPEGs for each class, below `train` and `test`."""
    names = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    images = {split: list(jpegs(folder / split, names)) for split in SPLITS}
    datasets = {}
    for split, of_split in images.items():
        if not of_split:
            raise InputError(f"the data folder {folder / split} has no <class>/*.jpg")
        pairs = [str(path) for path, _ in of_split], np.array([label for _, label in of_split], "int64")
        datasets[split] = tf.data.Dataset.from_tensor_slices(pairs).map(
            lambda path, label: (tf.io.read_file(path), label), num_parallel_calls=tf.data.AUTOTUNE
        )
    check([path for of_split in images.values() for path, _ in of_split], folder)
    return datasets, Info(str(folder), {split: len(of_split) for split, of_split in images.items()}, len(names))


def check(paths: list[Path], folder: Path) -> None:
    """Raises InputError if files are no JPEGs. The master rank looks, the others wait."""
    with ThreadPoolExecutor(16) as threads:
        whole = from_master(len(paths), lambda: threads.map(lambda path: is_jpeg(path.read_bytes()), paths))
    broken = [str(path) for path, is_whole in zip(paths, whole, strict=True) if not is_whole]
    if broken:
        raise InputError(listed(broken, f"files below {folder} are no whole JPEGs; remove them"))


def jpegs(folder: Path, names: list[str]) -> Iterator[tuple[Path, int]]:
    for label, name in enumerate(names):
        for path in sorted((folder / name).glob("*")):
            if path.suffix.lower() in (".jpg", ".jpeg"):
                yield path, label


def made() -> tuple[Datasets, Info]:
    """Stands in for the photographs: noise with stripes, whose width is the class."""
    random = np.random.default_rng(0)

    def image(label: int) -> bytes:
        stripes = np.sin(np.arange(96) / (label + 1) + random.uniform(0, 6))[None, :, None]
        pixels = 128 + 60 * stripes + random.normal(0, 20, (96, 96, 3))
        return tf.io.encode_jpeg(np.clip(pixels, 0, 255).astype("uint8")).numpy()

    datasets = {}
    for split, count in STAND_IN.items():
        labels = random.integers(0, CLASSES, count)
        datasets[split] = tf.data.Dataset.from_tensor_slices(([image(label) for label in labels], labels))
    return datasets, Info("made images", dict(STAND_IN), CLASSES)
