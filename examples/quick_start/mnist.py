"""Loads handwritten digits: MNIST, or scikit-learn's smaller data set if MNIST cannot be downloaded."""

import hashlib
import http.client
import os
import threading
import urllib.request
from pathlib import Path

import numpy as np

import tarantella as tnt

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
CONNECT_SECONDS = 5
DOWNLOAD_SECONDS = 120


def load():
    """Returns `name, (x_train, y_train), (x_test, y_test)`, with images of shape (28, 28, 1) and values from 0 to 1.

    Call it on all ranks. Only the master downloads MNIST; the other ranks wait for it at the barrier.
    """
    cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets" / "mnist.npz"
    if tnt.is_master_rank() and not cache.exists():
        fetch(cache)
    tnt.Barrier().execute()
    if cache.exists():
        return "MNIST", *load_mnist(cache)
    train, test = load_digits()
    if tnt.is_master_rank():
        print(
            "MNIST is neither cached nor reachable: training on scikit-learn's handwritten digits at 28x28 "
            f"({len(train[0])} to train, {len(test[0])} to test)"
        )
    return "digits", train, test


def fetch(path):
    """Downloads MNIST to `path`, completely or not at all. Gives up if there is no connection within 5 s."""
    connected = threading.Event()
    done = threading.Event()
    given_up = threading.Event()

    def download():
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


def load_mnist(path):
    with np.load(path) as data:
        train = data["x_train"], data["y_train"]
        test = data["x_test"], data["y_test"]
    return [(images[..., np.newaxis].astype("float32") / 255, labels) for images, labels in (train, test)]


def load_digits(test_share=0.2, seed=0):
    """Returns 1,797 digits of 8x8 pixels, each enlarged to 3x3 with a margin of 2. A fifth of them is the test set."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.kron(digits.images, np.ones((3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))[..., np.newaxis].astype("float32") / 16
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [int(test_share * len(order))])
    return (images[train], digits.target[train]), (images[test], digits.target[test])
