#!/usr/bin/env python
"""Checks the TFRecords of ImageNet: are the files whole, do their records have JPEGs and labels?

Programs that train check every image of up to 1 GiB of files. Of more, they check the ends of all records, and 1,024
images spread evenly. As a script this file checks every image: `imagenet_check.py /data/imagenet`.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import numpy as np
import tensorflow as tf

import tarantella as tnt
from common import imagenet
from common.errors import InputError

CHECKED_BYTES, CHECKED_IMAGES = 1 << 30, 1024
HEADER, FOOTER = 12, 4  # bytes around a record: its length with a checksum, and a checksum of its data
NAMED = 3


def count_images(data_dir: str, splits: Sequence[str] = ("train", "validation")) -> list[int]:
    """Checks the images of each split on the master rank, and returns their numbers on every rank.

    Prints the layout that was found. Call it on all ranks. Raises InputError.
    """
    counts = np.zeros(len(splits), np.int64)
    found = [imagenet.find(Path(data_dir), split) for split in splits]
    if tnt.is_master_rank():
        for number, files in enumerate(found):
            counts[number] = check(files)
            print(
                f"{data_dir}: {counts[number]:,} {files.split} images in {len(files.paths):,} files, "
                f"in the layout of {files.layout.name}",
                flush=True,
            )
    return [int(count) for count in tnt.Broadcast().execute(counts)]


def check(files: imagenet.Files, every_image: bool = False) -> int:
    """Returns the number of images. Raises InputError, which names files or images that are broken."""
    with ThreadPoolExecutor(16) as threads:
        lengths = list(threads.map(record_lengths, files.paths))
        broken = [path for path, each in zip(files.paths, lengths, strict=True) if not each]
        if broken:
            raise error_of(broken, f"of {len(files.paths):,} {files.split} files are empty, truncated, or no TFRecords")
        records = [
            (path, number, end - length - FOOTER, length)
            for path, each in zip(files.paths, lengths, strict=True)
            for number, (length, end) in enumerate(zip(each, np.cumsum(np.add(each, HEADER + FOOTER)), strict=True))
        ]
        few = every_image or sum(length for *_, length in records) <= CHECKED_BYTES
        chosen = records if few else records[:: -(-len(records) // CHECKED_IMAGES)]
        faults = threads.map(lambda record: fault_of(files.layout, *record), chosen)
        broken = [fault for fault in faults if fault]
    if broken:
        raise error_of(broken, f"of {len(chosen):,} {files.split} images are broken")
    return len(records)


def error_of(broken: Sequence[str], what: str) -> InputError:
    more = ", …" if len(broken) > NAMED else ""
    return InputError(f"{len(broken):,} {what}: {', '.join(broken[:NAMED])}{more}")


def record_lengths(path: str) -> list[int]:
    """Returns the lengths of the records, which may be none if the file ends within one."""
    size, offset, lengths = os.path.getsize(path), 0, []
    with open(path, "rb", buffering=0) as file:
        while offset < size:
            header = os.pread(file.fileno(), HEADER, offset)
            if len(header) < HEADER:
                return []
            lengths.append(struct.unpack_from("<Q", header)[0])
            offset += HEADER + lengths[-1] + FOOTER
    return lengths if offset == size else []


def fault_of(layout: imagenet.Layout, path: str, number: int, offset: int, length: int) -> str | None:
    """Returns what is wrong with one record, or None."""
    with open(path, "rb", buffering=0) as file:
        record = os.pread(file.fileno(), length, offset)
    place = f"{path} record {number}"
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception:
        return f"{place} (no tf.train.Example)"
    jpegs, labels = features[layout.image].bytes_list.value, features[layout.label].int64_list.value
    if len(jpegs) != 1 or len(labels) != 1:
        return f"{place} (without '{layout.image}' or '{layout.label}')"
    if not 0 <= labels[0] - layout.first_label < imagenet.NUM_CLASSES:
        return f"{place} (the label {labels[0]} is not in {layout.first_label} to {layout.first_label + 999})"
    return None if is_jpeg(jpegs[0]) else f"{place} (no whole JPEG)"


def is_jpeg(data: bytes) -> bool:
    """Whether TensorFlow can decode all of it as a JPEG."""
    try:
        tf.io.extract_jpeg_shape(data)
        tf.io.decode_jpeg(data, channels=3, ratio=8)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_dir", type=Path, help="the folder with the TFRecords of both splits")
    folder = parser.parse_args().data_dir
    for split in ("train", "validation"):
        files = imagenet.find(folder, split)
        print(f"{split}: {check(files, every_image=True):,} images in {len(files.paths):,} files are whole")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(f"imagenet_check.py: {error}") from None
