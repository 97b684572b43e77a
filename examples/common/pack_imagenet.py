#!/usr/bin/env python
"""Packs a folder of JPEGs into TFRecords that the ImageNet examples read.

The folder has one folder for each class, or `train` and `validation` (or `val`) with such folders. Classes are numbered
in the order of their names:

    pack_imagenet.py photos /data/photos --layout=tfds

A PNG that is named as a JPEG, as ImageNet has one, is packed as a JPEG of its pixels.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import tensorflow as tf

from common import imagenet
from common.errors import InputError
from common.image_records import Layout, is_jpeg
from common.records import listed

LAYOUTS = dict(zip(("tfds", "garden"), imagenet.LAYOUTS, strict=True))
FOLDERS = {"tfds": "imagenet2012/5.1.0", "garden": "."}
EXTRA = {"tfds": "file_name", "garden": "image/filename"}
PNG = b"\x89PNG\r\n\x1a\n"  # how its files begin
Images = list[tuple[Path, int]]  # with their class


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="the folder of JPEGs")
    parser.add_argument("target", type=Path, help="the folder for the TFRecords")
    parser.add_argument("--layout", choices=LAYOUTS, default="tfds", help="of TensorFlow Datasets or the Model Garden")
    parser.add_argument("--images_per_file", type=int, default=1000)
    parser.add_argument(
        "--validation_share", type=float, default=0.1, help="of each class, if there are no two folders"
    )
    parser.add_argument("--skip_broken", action="store_true", help="leave out broken images (default: stop)")
    args = parser.parse_args()
    if args.images_per_file < 1 or not 0 < args.validation_share < 1:
        parser.error("--images_per_file must be at least 1, and --validation_share between 0 and 1")
    return args


def list_images(source: Path, share: float) -> tuple[dict[str, Images], list[str]]:
    """Returns the images of both splits in a random order that is always the same, and the names of the classes."""
    if not source.is_dir():
        raise InputError(f"the folder {source} does not exist")
    folders = source / "train", source / ("val" if (source / "val").is_dir() else "validation")
    if folders[0].is_dir() != folders[1].is_dir():
        raise InputError(f"the folder {source} has images to train or to validate, but not both")
    if folders[0].is_dir():
        train, validation = map(list_jpegs, folders)
    else:
        both = list_jpegs(source)
        apart = {name: max(round(len(paths) * share), 1) for name, paths in both.items()}
        train = {name: paths[apart[name] :] for name, paths in both.items()}
        validation = {name: paths[: apart[name]] for name, paths in both.items()}
    names = sorted({*train, *validation})
    splits = {}
    for split, classes in (("train", train), ("validation", validation)):
        splits[split] = [(path, names.index(name)) for name, paths in classes.items() for path in paths]
        if not splits[split]:
            raise InputError(f"the folder {source} has no JPEGs in folders of classes for {split}")
        random.Random(split).shuffle(splits[split])
    return splits, names


def list_jpegs(folder: Path) -> dict[str, list[Path]]:
    """Returns the JPEGs of each class, in a random order that is always the same."""
    classes = {}
    for each in sorted(each for each in folder.iterdir() if each.is_dir()):
        classes[each.name] = sorted(path for path in each.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
        random.Random(each.name).shuffle(classes[each.name])
    return classes


def without_broken(images: Images, skip: bool) -> Images:
    """Returns the images that can be decoded. Raises InputError if some cannot, unless `skip`."""
    paths = [path for path, _ in images]
    with ThreadPool(16) as threads:
        found = dict(zip(paths, threads.imap(format_of, paths, chunksize=8), strict=True))
    broken = {path for path in paths if found[path] is None}
    if broken and not skip:
        what = f"of {len(images):,} images are broken (--skip_broken leaves them out)"
        raise InputError(listed(sorted(map(str, broken)), what))
    for path in sorted(broken):
        print(f"left out: {path} is no whole JPEG")
    for path in sorted(path for path in paths if found[path] == "png"):
        print(f"packed as a JPEG: {path} is a PNG")
    return [(path, label) for path, label in images if path not in broken]


def format_of(path: Path) -> str | None:
    """Returns "jpeg" or "png", or None if the file cannot be decoded."""
    data = path.read_bytes()
    if not data.startswith(PNG):
        return "jpeg" if is_jpeg(data) else None
    try:
        as_jpeg(data)
    except tf.errors.InvalidArgumentError:
        return None
    return "png"


def as_jpeg(data: bytes) -> bytes:
    """Returns what a file has, or the pixels of a PNG as a JPEG."""
    if not data.startswith(PNG):
        return data
    return tf.io.encode_jpeg(tf.io.decode_png(data, channels=3), quality=100).numpy()


def write(images: Images, pattern: str, layout: Layout, extra: str, images_per_file: int) -> int:
    """Writes the images into files of about equal size, named as `pattern` says. Returns the number of files."""
    count = -(-len(images) // images_per_file)
    for number in range(count):
        with tf.io.TFRecordWriter(pattern.replace("*", f"{number:05}", 1).replace("*", f"{count:05}")) as writer:
            for path, label in images[number::count]:
                values = {layout.image: as_jpeg(path.read_bytes()), extra: path.name.encode()}
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                    for name, value in values.items()
                }
                label_list = tf.train.Int64List(value=[label + layout.first_label])
                features[layout.label] = tf.train.Feature(int64_list=label_list)
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return count


def main(args: argparse.Namespace) -> None:
    layout, folder = LAYOUTS[args.layout], args.target / FOLDERS[args.layout]
    splits, names = list_images(args.source, args.validation_share)
    if len(names) > imagenet.NUM_CLASSES:
        raise InputError(f"{len(names)} classes are more than the {imagenet.NUM_CLASSES} of ImageNet")
    splits = {split: without_broken(images, args.skip_broken) for split, images in splits.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    for split, images in splits.items():
        pattern = str(folder / layout.pattern.format(split=split))
        count = write(images, pattern, layout, EXTRA[args.layout], args.images_per_file)
        print(f"{split}: {len(images):,} images of {len(names):,} classes in {count:,} files, {pattern}")


if __name__ == "__main__":
    try:
        main(parse_args())
    except InputError as error:
        raise SystemExit(f"pack_imagenet.py: {error}") from None
