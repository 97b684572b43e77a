"""Handwritten digits to train on: MNIST, or scikit-learn's smaller set where MNIST can not be had."""

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
    """Returns `name, (x_train, y_train), (x_test, y_test)`, images of 28x28x1 in 0 ... 1; collective.

    Only the master looks for MNIST on the network; the others wait for it at the barrier.
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
    """Downloads MNIST to `path`, whole or not at all; gives up without a connection in 5 s."""
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
            pass  # no network, or a cache that can't be written: load() says what is used instead
        finally:
            connected.set()
            done.set()

    # In a thread of its own, since nothing else puts an end to a name server that does not answer.
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
    """1,797 real digits of 8x8: a pixel becomes 3x3, with a margin of 2; a fifth is the test."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.kron(digits.images, np.ones((3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))[..., np.newaxis].astype("float32") / 16
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [int(test_share * len(order))])
    return (images[train], digits.target[train]), (images[test], digits.target[test])
