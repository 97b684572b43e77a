#!/usr/bin/env python
"""Downloads the cassava data (4 GB) to this folder, and ResNet-50's weights for Keras. Run it once, before the job.

    python download_data_and_weights.py

It needs a network and `pip install tensorflow_datasets`. mnist_classify.py then needs neither.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

from common.downloads import download_once


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=".", help="where cassava/<version>/ goes (default: here)")
    return parser.parse_args()


def download(data_dir: Path) -> None:
    """Downloads what is missing, and ends the script with one sentence where that fails."""
    try:
        import tensorflow_datasets as tfds
    except ModuleNotFoundError:
        sys.exit("download_data_and_weights.py: tensorflow_datasets is missing: pip install tensorflow_datasets")
    import keras

    try:
        tfds.load(name="cassava", with_info=True, as_supervised=True, data_dir=str(data_dir))
        keras.applications.ResNet50(weights="imagenet", include_top=False)
    except Exception as error:  # of many classes: name servers, proxies, servers, disks
        sys.exit(f"download_data_and_weights.py: the download failed: {str(error).splitlines()[0]}")


def main() -> None:
    args = parse_args()
    download_once(lambda: download(args.data_dir))


if __name__ == "__main__":
    main()
