"""The least time of a step of the MLP on ranks that share a node, from counted bytes and the measured bandwidth.

As a script it is a row of bench/training.py: one process that copies memory on its core, while others do the same.

A step of a rank is that of a silent process and, on the same core, what the exchange of gradients moves.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

BYTES = 64 << 20  # of a buffer: more than the caches hold
SECONDS = 1.5


def moved(gradients: float, ranks: int) -> dict[str, float]:
    """Returns the bytes that one rank reads and writes in a step, for `gradients` bytes of gradients.

    It copies all but its own slice into the node's memory, reads its slice of each rank's gradients, and writes the
    sums of that slice.
    """
    return {
        "copy in": 2 * gradients * (1 - 1 / ranks),
        "sums": gradients * (1 + 1 / ranks),
    }


def floor(silent: float, ranks: float, gradients: float, size: int, bandwidth: float) -> dict[str, float]:
    """Returns the floor of a step in seconds, its ratio to the silent step, and how much of it the ranks reach.

    `silent` and `ranks` are seconds a step; `bandwidth` is the bytes per second that one core reads and writes.
    """
    bytes_moved = moved(gradients, size)
    least = silent + (bytes_moved["copy in"] + bytes_moved["sums"]) / bandwidth
    return {"seconds": least, "share of silent": silent / least, "reached": least / ranks}


def copies(seconds: float) -> float:
    """Returns the bytes per second that are read and written while a buffer is copied, over at least `seconds`."""
    source, target = np.ones(BYTES // 8), np.ones(BYTES // 8)
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        np.copyto(target, source)
        count += 1
    return 2 * BYTES * count / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--output", type=Path, required=True, help="a folder, which gets a file a process")
    options = parser.parse_args()
    copies(options.seconds / 3)  # until the other processes have started
    (options.output / f"{os.getpid()}.json").write_text(json.dumps({"copy": [copies(options.seconds)]}))


if __name__ == "__main__":
    main()
