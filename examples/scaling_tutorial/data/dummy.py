"""Made-up images, to try a configuration without any data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .pipeline import Arrays, Datasets, of_arrays


def get_datasets(
    batch_size: int,
    rank: int,
    n_ranks: int,
    *,
    image_shape: Sequence[int] = (32, 32, 3),
    n_classes: int = 10,
    n_train: int = 1024,
    n_valid: int = 256,
) -> Datasets:
    """Returns images that are noise over a pattern of their class, so that a model can learn them."""
    random = np.random.default_rng(0)  # the same images on every rank
    patterns = random.integers(0, 128, size=(n_classes, *image_shape))

    def images(count: int) -> Arrays:
        labels = random.integers(n_classes, size=count)
        noise = random.integers(0, 128, size=(count, *image_shape))
        return (patterns[labels] + noise).astype("uint8"), labels

    return of_arrays(images(n_train), images(n_valid), n_classes, batch_size, rank, n_ranks)
