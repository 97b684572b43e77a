"""Loads handwritten digits: MNIST, or scikit-learn's smaller data set if MNIST cannot be downloaded."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import threading
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder `examples`

import numpy as np
from common.downloads import download_once, on_all_ranks

import tarantella as tnt

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
CONNECT_SECONDS = 5
DOWNLOAD_SECONDS = 120

Arrays = tuple[np.ndarray, np.ndarray]  # images and labels


def load() -> tuple[str, Arrays, Arrays]:
    """Returns `name, (x_train, y_train), (x_test, y_test)`, with images of shape (28, 28, 1) and values from 0 to 1.

    Call it on all ranks: they get the same data. MNIST is downloaded once, or once a node if nodes share no cache.
    """
    cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets" / "mnist.npz"
    download_once(lambda: fetch(cache))
    if on_all_ranks(cache.exists()):
        return "MNIST", *load_mnist(cache)
    train, test = load_digits()
    if tnt.is_master_rank():
        print(
            "MNIST is neither cached nor reachable: training on scikit-learn's handwritten digits at 28x28 "
            f"({len(train[0])} to train, {len(test[0])} to test)"
        )
    return "digits", train, test


def fetch(path: Path) -> None:
    """Downloads MNIST to `path`, completely or not at all. Gives up if there is no connection within 5 s."""
    if path.exists():
        return
    connected = threading.Event()
    done = threading.Event()
    given_up = threading.Event()

    def download() -> None:
        try:
            with urllib.request.urlopen(URL, timeout=CONNECT_SECONDS) as response:
                connected.set()
                content = response.read()
            if hashlib.sha256(content).hexdigest() == SHA256:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(f".{os.getpid()}")
                partial.write_bytes(content)
                if not given_up.is_set():
                    partial.replace(path)
        except (OSError, http.client.HTTPException):
            pass  # no network, or the cache is not writable: load() prints which data it uses instead
        finally:
            connected.set()
            done.set()

    # In a thread, because a name server that does not answer cannot be interrupted otherwise.
    threading.Thread(target=download, daemon=True).start()
    if connected.wait(CONNECT_SECONDS):
        done.wait(DOWNLOAD_SECONDS)
    given_up.set()


def load_mnist(path: Path) -> list[Arrays]:
    with np.load(path) as data:
        train = data["x_train"], data["y_train"]
        test = data["x_test"], data["y_test"]
    return [(images[..., np.newaxis].astype("float32") / 255, labels) for images, labels in (train, test)]


def load_digits(test_share: float = 0.2, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Returns 1,797 digits of 8x8 pixels, each enlarged to 3x3 with a margin of 2. A fifth of them is the test set."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.kron(digits.images, np.ones((3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))[..., np.newaxis].astype("float32") / 16
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [int(test_share * len(order))])
    return (images[train], digits.target[train]), (images[test], digits.target[test])
