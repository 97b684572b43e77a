"""Made photographs, on which programs for images are tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_photos(folder: Path) -> None:
    """Writes 320 JPEGs of 8 classes, each in a folder. Those of a class have about the same colours."""
    import keras

    random = np.random.default_rng(0)
    for label in range(8):
        colours = random.integers(256, size=(4, 4, 3))
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(40):
            pixels = np.clip(colours + random.normal(0, 30, size=(4, 4, 3)), 0, 255).astype("uint8")
            large = np.kron(pixels, np.ones((10 + number % 5, 12, 1), "uint8"))
            keras.utils.save_img(folder / f"class{label}/{number:03}.JPEG", large, scale=False)
