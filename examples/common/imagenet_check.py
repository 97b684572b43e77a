#!/usr/bin/env python
"""Checks the TFRecords of ImageNet: are the files whole, do their records have JPEGs and labels?

As a script this file checks every image: `imagenet_check.py /data/imagenet`. With `--repair` it leaves out the broken
ones: files that have some are written anew, and the old ones stay beside them, as *.broken.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import tarantella as tnt
from common import image_records, imagenet
from common.errors import InputError

CURE = "leave them out with examples/common/imagenet_check.py --repair"


def count_images(data_dir: str, splits: Sequence[str] = ("train", "validation")) -> list[int]:
    """Checks the images of each split on the master rank, and returns their numbers on every rank.

    Prints the layout that was found. Call it on all ranks. Raises InputError.
    """
    found = [imagenet.find(Path(data_dir), split) for split in splits]
    counts = image_records.count(found, CURE)
    if tnt.is_master_rank():
        for count, files in zip(counts, found, strict=True):
            print(
                f"{data_dir}: {count:,} {files.split} images in {len(files.paths):,} files, "
                f"in the layout of {files.layout.name}",
                flush=True,
            )
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data_dir", type=Path, help="the folder with the TFRecords of both splits")
    parser.add_argument("--repair", action="store_true", help="leave out broken images (default: stop)")
    args = parser.parse_args()
    for split in ("train", "validation"):
        files = imagenet.find(args.data_dir, split)
        for fault in image_records.repair(files) if args.repair else []:
            print(f"left out: {fault}")
        count = image_records.check(files, every_image=True)
        print(f"{split}: {count:,} images in {len(files.paths):,} files are whole")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(f"imagenet_check.py: {error}") from None
