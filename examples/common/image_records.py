"""Labelled JPEGs in TFRecords: are the files whole, do their records have JPEGs and labels?

Programs that train check every image of up to 1 GiB of files. Of more, they check the ends of all records, and 1,024
images spread evenly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

import tarantella as tnt

from .errors import InputError
from .records import FOOTER, HEADER, listed, record_lengths

CHECKED_BYTES, CHECKED_IMAGES = 1 << 30, 1024


@dataclass(frozen=True)
class Layout:
    """How one program names its files and the parts of a record."""

    name: str
    pattern: str
    image: str
    label: str
    first_label: int
    num_classes: int


@dataclass(frozen=True)
class Files:
    """The files of one split."""

    split: str
    layout: Layout
    paths: list[str]


def count(found: Sequence[Files], cure: str) -> list[int]:
    """Checks the images of each split on the master rank, and returns their numbers on every rank.

    Call it on all ranks. Raises InputError on the master, with what to do about broken images.
    """

    def checked(files: Files) -> int:
        try:
            return check(files)
        except InputError as error:
            raise InputError(f"{error}; {cure}") from None

    return [int(count) for count in from_master(len(found), lambda: map(checked, found))]


def from_master(size: int, compute: Callable[[], Iterable[int]]) -> np.ndarray:
    """Returns `size` numbers, which the master rank computes, on every rank. Call it on all ranks."""
    numbers = np.zeros(size, np.int64)
    if tnt.is_master_rank():
        numbers[:] = list(compute())
    return tnt.broadcast(numbers)


def check(files: Files, every_image: bool = False) -> int:
    """Returns the number of images. Raises InputError, which names files or images that are broken."""
    with ThreadPoolExecutor(16) as threads:
        lengths = list(threads.map(whole_lengths, files.paths))
        broken = [path for path, each in zip(files.paths, lengths, strict=True) if not each]
        if broken:
            what = f"of {len(files.paths):,} {files.split} files are empty, truncated, or no TFRecords"
            raise InputError(listed(broken, what))
        records = [record for path, each in zip(files.paths, lengths, strict=True) for record in places(path, each)]
        few = every_image or sum(length for *_, length in records) <= CHECKED_BYTES
        chosen = records if few else records[:: -(-len(records) // CHECKED_IMAGES)]
        faults = threads.map(lambda record: fault_of(files.layout, *record), chosen)
        broken = [fault for fault in faults if fault]
    if broken:
        raise InputError(listed(broken, f"of {len(chosen):,} {files.split} images are broken"))
    return len(records)


def faults(files: Files) -> list[list[str | None]]:
    """Checks every record that the files have in full. Returns for each file what is wrong with each one, or None."""
    with ThreadPoolExecutor(16) as threads:
        records = [places(path, record_lengths(path)[0]) for path in files.paths]
        return [list(threads.map(lambda record: fault_of(files.layout, *record), each)) for each in records]


def repair(files: Files) -> list[str]:
    """Writes files that have faults anew without them. The old ones stay, as *.broken. Returns what is left out."""
    left_out = []
    for path, of_file in zip(files.paths, faults(files), strict=True):
        lengths, is_whole = record_lengths(path)
        left_out += [fault for fault in of_file if fault] + ([] if is_whole else [f"{path} (its cut-off end)"])
        if not is_whole or any(of_file):
            with open(path, "rb") as file, tf.io.TFRecordWriter(f"{path}.new") as writer:
                for (_, _, offset, length), fault in zip(places(path, lengths), of_file, strict=True):
                    if fault is None:
                        writer.write(os.pread(file.fileno(), length, offset))
            os.rename(path, f"{path}.broken")
            os.rename(f"{path}.new", path)
    return left_out


def places(path: str, lengths: Sequence[int]) -> list[tuple[str, int, int, int]]:
    """Returns the file, number, offset and length of each record of a file."""
    ends = np.cumsum(np.add(lengths, HEADER + FOOTER, dtype=np.int64))
    pairs = zip(lengths, ends, strict=True)
    return [(path, number, int(end) - length - FOOTER, length) for number, (length, end) in enumerate(pairs)]


def whole_lengths(path: str) -> list[int]:
    """Returns the lengths of the records, or none if the file ends within one."""
    lengths, whole = record_lengths(path)
    return lengths if whole else []


def fault_of(layout: Layout, path: str, number: int, offset: int, length: int) -> str | None:
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
    last_label = layout.first_label + layout.num_classes - 1
    if not layout.first_label <= labels[0] <= last_label:
        return f"{place} (the label {labels[0]} is not in {layout.first_label} to {last_label})"
    return None if is_jpeg(jpegs[0]) else f"{place} (no whole JPEG)"


@contextmanager
def broken_ends(cure: str) -> Iterator[None]:
    """Raises InputError, with what to do about broken images, where TensorFlow meets one or a damaged file."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        reason = re.search(r"Invalid JPEG data[^\n\[.]*", str(error))
        if reason is None:
            raise
        raise InputError(f"an image is broken ({reason[0].strip()}); {cure}") from None
    except tf.errors.DataLossError as error:
        reason = re.search(r"(corrupted|truncated) record at \d+", str(error))
        if reason is None:
            raise
        raise InputError(f"a TFRecord file is damaged ({reason[0]}); prepare or copy the files again") from None


def is_jpeg(data: bytes) -> bool:
    """Whether TensorFlow can decode all of it as a JPEG."""
    try:
        tf.io.extract_jpeg_shape(data)
        tf.io.decode_jpeg(data, channels=3, ratio=8)
    except tf.errors.InvalidArgumentError:
        return False
    return True
