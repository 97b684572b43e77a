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
from random import Random

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import numpy as np
import tensorflow as tf
from common import image_records
from common.downloads import on_all_ranks
from common.errors import InputError
from common.image_records import Files, Layout
from common.records import find_shards, listed, record_lengths

import tarantella as tnt

CLASSES = 5
SPLITS = ("train", "test")
CURE = "prepare or copy them again, or leave them out with --skip-broken"
STAND_IN = {"train": 160, "test": 40}


@dataclass(frozen=True)
class Info:
    """What is known of the data before any image is read."""

    origin: str
    num_examples: dict[str, int]
    num_classes: int


Datasets = dict[str, tf.data.Dataset]


def load(folder: Path | None, skip_broken: bool = False) -> tuple[Datasets, Info]:
    """Returns pairs of a JPEG (string) and its label (int64, from 0) of "train" and "test", in a fixed order.

    folder: where the data is. None takes `cassava` in the working directory if all ranks have it there, and otherwise
    made images. skip_broken: leave out images that are broken. Call it on all ranks.

    Raises InputError if the folder has no data, or has broken files.
    """
    if folder is None and not on_all_ranks((Path.cwd() / "cassava").is_dir()):
        return made()
    folder = folder or Path.cwd()
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} does not exist")
    prepared = find_shards(folder, ["cassava/*/cassava-train.tfrecord-*-of-*"])
    if prepared:
        return from_records(prepared[0].parent, skip_broken)
    if (folder / "train").is_dir():
        return from_images(folder, skip_broken)
    raise InputError(f"the data folder {folder} has neither cassava/<version>/*.tfrecord-* nor train/<class>/*.jpg")


def from_records(folder: Path, skip_broken: bool) -> tuple[Datasets, Info]:
    """Reads what TensorFlow Datasets has prepared in a folder of one version."""
    names = folder / "label.labels.txt"
    classes = len(names.read_text(encoding="utf-8").split()) if names.exists() else CLASSES
    layout = Layout("TensorFlow Datasets", "cassava-{split}.tfrecord-*-of-*", "image", "label", 0, classes)
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, features)
        return parsed["image"], parsed["label"]

    datasets, counts = {}, {}
    for split in SPLITS:
        paths = [str(path) for path in find_shards(folder, [layout.pattern.format(split=split)])]
        if not paths:
            raise InputError(f"the data folder {folder} has no cassava-{split}.tfrecord-*")
        files = Files(split, layout, paths)
        if skip_broken:
            records, counts[split] = whole_records(files)
        else:
            (counts[split],) = image_records.count([files], CURE)
            records = tf.data.TFRecordDataset(paths)
        datasets[split] = records.map(parse).apply(tf.data.experimental.assert_cardinality(counts[split]))
    return datasets, Info(str(folder), counts, classes)


def whole_records(files: Files) -> tuple[tf.data.Dataset, int]:
    """Returns the records whose image is whole, and their number. The master rank looks for them."""
    lengths = [len(record_lengths(path)[0]) for path in files.paths]

    def whole() -> list[bool]:
        faults = [fault for of_file in image_records.faults(files) for fault in of_file]
        say_left_out([fault for fault in faults if fault], f"{files.split} images")
        return [fault is None for fault in faults]

    kept = image_records.from_master(sum(lengths), whole).astype(bool)
    files_read = tf.data.Dataset.from_tensor_slices((files.paths, np.array(lengths, "int64")))
    # What follows the last whole record of a file is not read.
    records = files_read.flat_map(lambda path, length: tf.data.TFRecordDataset(path).take(length))
    records = tf.data.Dataset.zip(records, tf.data.Dataset.from_tensor_slices(kept))
    return records.filter(lambda _, is_whole: is_whole).map(lambda record, _: record), int(kept.sum())


def from_images(folder: Path, skip_broken: bool) -> tuple[Datasets, Info]:
    """Reads a folder of JPEGs for each class, below `train` and `test`.

    Those to train come in a random order that is always the same: in the order of classes, a buffer that shuffles fewer
    images than there are would give batches of one class.
    """
    names = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    images = [(split, path, label) for split in SPLITS for path, label in jpegs(folder / split, names)]
    with ThreadPoolExecutor(16) as threads:
        whole = image_records.from_master(len(images), lambda: threads.map(is_whole, [path for _, path, _ in images]))
    broken = [str(path) for (_, path, _), is_whole in zip(images, whole, strict=True) if not is_whole]
    if broken and not skip_broken:
        raise InputError(f"{listed(broken, f'files below {folder} are no whole JPEGs')}; {CURE}")
    say_left_out(broken, f"files below {folder}")
    datasets, counts = {}, {}
    for split in SPLITS:
        kept = [
            (str(path), label) for (of, path, label), good in zip(images, whole, strict=True) if good and of == split
        ]
        if not kept:
            raise InputError(f"the data folder {folder / split} has no <class>/*.jpg")
        counts[split] = len(kept)
        if split == "train":
            Random(0).shuffle(kept)
        paths, labels = zip(*kept, strict=True)
        datasets[split] = tf.data.Dataset.from_tensor_slices((list(paths), np.array(labels, "int64"))).map(
            lambda path, label: (tf.io.read_file(path), label), num_parallel_calls=tf.data.AUTOTUNE
        )
    return datasets, Info(str(folder), counts, len(names))


def is_whole(path: Path) -> bool:
    return image_records.is_jpeg(path.read_bytes())


def say_left_out(broken: list[str], what: str) -> None:
    if broken and tnt.is_master_rank():
        print(f"left out: {listed(broken, what)}")


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
