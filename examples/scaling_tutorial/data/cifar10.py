"""CIFAR-10, or other images in its format: 32x32 pixels, three colours, ten classes."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from utils.errors import InputError

from .pipeline import Arrays, Datasets, of_arrays

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`
from common.downloads import download_once

FOLDER = "cifar-10-batches-py"
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
VALID = ["test_batch"]


def get_datasets(
    batch_size: int, rank: int, n_ranks: int, *, data_dir: str | None = None, augment: bool = True
) -> Datasets:
    """Loads the images of `data_dir`, the folder with the files data_batch_1 … 5 and test_batch.

    Without `data_dir` they are those that Keras downloads. `augment` shifts training images by up to four pixels, and
    mirrors half of them.
    """
    if data_dir is None:
        download_once(download)
        folder = downloaded()
        assert folder is not None
    else:
        folder = Path(data_dir)
    train, valid = read(folder, TRAIN), read(folder, VALID)
    return of_arrays(train, valid, 10, batch_size, rank, n_ranks, shift_and_mirror if augment else None)


def downloaded() -> Path | None:
    """Returns the folder that `keras.datasets.cifar10.load_data` makes, if there is one."""
    cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets"
    places = (cache / f"{FOLDER}-target" / FOLDER, cache / FOLDER)  # of newer and of older versions of Keras
    return next((place for place in places if (place / VALID[0]).exists()), None)


def download() -> None:
    if downloaded() is None:
        try:
            keras.datasets.cifar10.load_data()
        except Exception as error:  # what Keras raises without a network has no class of its own
            raise InputError(
                f"CIFAR-10 is not in Keras's cache and cannot be downloaded ({error}); run scripts/setup.sh where "
                "there is a network, or name the folder in data.data_dir"
            ) from None


def read(folder: Path, names: list[str]) -> Arrays:
    """Returns the images and labels of some files: uint8 of shape (rows, 32, 32, 3), int64 of shape (rows,)."""
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} does not exist")
    images, labels = [], []
    for path in (folder / name for name in names):
        try:
            content = pickle.loads(path.read_bytes(), encoding="bytes")
            images.append(np.asarray(content[b"data"], "uint8").reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            labels.append(np.asarray(content[b"labels"], "int64"))
        except FileNotFoundError:
            raise InputError(f"the data folder {folder} has no file {path.name}") from None
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, LookupError, TypeError, ValueError):
            raise InputError(f"{path} is not a batch of CIFAR-10, or is incomplete") from None
    x, y = np.concatenate(images), np.concatenate(labels)
    if len(x) != len(y) or len(x) == 0 or not 0 <= y.min() <= y.max() < 10:
        raise InputError(f"{folder} has {len(x)} images and {len(y)} labels: each image needs one label from 0 to 9")
    return x, y


def shift_and_mirror(image: tf.Tensor) -> tf.Tensor:
    padded = tf.pad(image, [[4, 4], [4, 4], [0, 0]], mode="REFLECT")
    return tf.image.random_flip_left_right(tf.image.random_crop(padded, tf.shape(image)))
