"""Photographs of cassava leaves, with the disease that they show, as JPEGs.

`load` reads what TensorFlow Datasets prepares (cassava/<version>/*.tfrecord-*), or a folder train/<class>/*.jpg with
test/<class>/*.jpg beside it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import numpy as np
import tensorflow as tf
from common.downloads import on_all_ranks
from common.errors import InputError

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
    prepared = sorted(folder.glob("cassava/*/cassava-train.tfrecord-*"))
    if prepared:
        return from_records(prepared[-1].parent)  # of the newest version
    if (folder / "train").is_dir():
        return from_images(folder)
    raise InputError(f"the data folder {folder} has neither cassava/<version>/*.tfrecord-* nor train/<class>/*.jpg")


def from_records(folder: Path) -> tuple[Datasets, Info]:
    """Reads what TensorFlow Datasets has prepared in a folder of one version."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, features)
        return parsed["image"], parsed["label"]

    datasets, counts = {}, {}
    for split in SPLITS:
        paths = sorted(folder.glob(f"cassava-{split}.tfrecord-*"))
        if not paths:
            raise InputError(f"the data folder {folder} has no cassava-{split}.tfrecord-*")
        counts[split] = sum(count_records(path) for path in paths)
        records = tf.data.TFRecordDataset([str(path) for path in paths])
        datasets[split] = records.map(parse).apply(tf.data.experimental.assert_cardinality(counts[split]))
    names = folder / "label.labels.txt"
    classes = len(names.read_text(encoding="utf-8").split()) if names.exists() else CLASSES
    return datasets, Info(str(folder), counts, classes)


def count_records(path: Path) -> int:
    """Counts the records of a file without reading them. Raises InputError if the file ends within one."""
    size, position, count = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            length = file.read(8)
            position += 16 + (struct.unpack("<Q", length)[0] if len(length) == 8 else size)  # two checksums of 4 bytes
            count += 1
    if position != size:
        raise InputError(f"{path} ends within a record: prepare it again")
    return count


def from_images(folder: Path) -> tuple[Datasets, Info]:
    """Reads a folder of JPEGs for each class, below `train` and `test`."""
    names = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    datasets, counts, broken = {}, {}, []
    for split in SPLITS:
        images = list(jpegs(folder / split, names))
        if not images:
            raise InputError(f"the data folder {folder / split} has no <class>/*.jpg")
        broken += [path for path, _ in images if not is_whole(path)]
        pairs = [str(path) for path, _ in images], np.array([label for _, label in images], "int64")
        counts[split] = len(images)
        datasets[split] = tf.data.Dataset.from_tensor_slices(pairs).map(
            lambda path, label: (tf.io.read_file(path), label), num_parallel_calls=tf.data.AUTOTUNE
        )
    if broken:
        raise InputError(f"{len(broken)} files below {folder} are no whole JPEGs; remove them: {listed(broken)}")
    return datasets, Info(str(folder), counts, len(names))


def jpegs(folder: Path, names: list[str]) -> Iterator[tuple[Path, int]]:
    for label, name in enumerate(names):
        for path in sorted((folder / name).glob("*")):
            if path.suffix.lower() in (".jpg", ".jpeg"):
                yield path, label


def is_whole(path: Path) -> bool:
    """Whether a file begins and ends as a JPEG does."""
    with path.open("rb") as file:
        begins = file.read(2) == b"\xff\xd8"
        file.seek(max(path.stat().st_size - 2, 0))
        return begins and file.read(2) == b"\xff\xd9"


def listed(paths: list[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (", …" if len(paths) > 3 else "")


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
