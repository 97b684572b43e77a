"""What a snapshot costs between two steps, in networks of several sizes: the copy, and the steps while it is written.

Starts two ranks for each size, and prints a line: `python bench/snapshots.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, sys, time
import keras, numpy as np
import tarantella as tnt
from tarantella.keras.snapshots import session

width, layers, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None
taken, take = [], session.Session._take
def timed(self, **options):
    start = time.perf_counter()
    take(self, **options)
    taken.append(time.perf_counter() - start)
session.Session._take = timed
class Steps(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()
    def on_epoch_end(self, epoch, logs=None):
        epochs.append(time.perf_counter() - self.start)
keras.utils.set_random_seed(1)
model = tnt.Model(keras.Sequential([keras.Input((width,)), *(keras.layers.Dense(width) for _ in range(layers))]))
model.compile("adam", "mse")
x = np.random.default_rng(0).normal(size=(640, width)).astype("float32")
rates = {}
for name, callbacks in {"plain": [], "snapshots": [tnt.keras.callbacks.Snapshot(10, folder)]}.items():
    epochs = []
    model.fit(x, x, batch_size=16, epochs=4, verbose=0, callbacks=[Steps(), *callbacks])
    rates[name] = min(epochs[1:]) / 40
if tnt.is_master_rank():
    size = sum(np.asarray(v).nbytes for v in [*model.variables, *model.optimizer.variables])
    print(json.dumps({"bytes": size, "taken": taken[1:-1], **rates}))
"""
SIZES = ((128, 2), (512, 4), (2048, 2), (2048, 6))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="", help="where to keep snapshots (default: the launcher's memory)")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many sizes, from the smallest")
    given = parser.parse_args()
    print("state, MB | copy, ms: median, worst | step, ms: without, with one snapshot in ten")
    launcher = Path(sys.executable).parent / "tarantella"
    for width, layers in SIZES[: given.sizes]:
        command = [launcher, "-n", "2", "--max-restarts", "1", "--", "-c", WORKER, width, layers, given.folder]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        copies = [1000 * each for each in found["taken"]]
        print(
            f"{found['bytes'] / 1e6:8.1f} | {statistics.median(copies):6.1f} {max(copies):6.1f} | "
            f"{1000 * found['plain']:6.1f} {1000 * found['snapshots']:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
