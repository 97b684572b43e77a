#!/usr/bin/env python
"""Trains on real images with 1, 2 and 4 ranks and several seeds: does linear scaling reach one rank's accuracy?

    python compare_ranks.py

The images are scikit-learn's handwritten digits, written in the format of CIFAR-10. Each rank keeps its batch size, so
N ranks train on batches N times as large, with a learning rate N times as high after the warm-up, in the same epochs.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import yaml

HERE = Path(__file__).parent


def write_digits(folder: Path) -> None:
    """Writes 1,437 digits to train and 360 to validate, enlarged from 8x8 to 32x32 pixels, as files of CIFAR-10."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.kron(digits.images * 255 / 16, np.ones((4, 4))).astype("uint8")
    rows = np.repeat(images.reshape(-1, 1, 32 * 32), 3, axis=1).reshape(len(images), -1)  # three equal colours
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[360:], order[:360]
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    for name, part in [("test_batch", test), *zip(names, np.array_split(train, 5), strict=True)]:
        batch = {b"data": rows[part], b"labels": digits.target[part].tolist()}
        (folder / name).write_bytes(pickle.dumps(batch))


def last_accuracy(ranks: int, seed: int, base: dict, output: Path) -> float:
    """Trains with one seed. Returns the validation accuracy of the last epoch."""
    folder = output / f"digits-n{ranks}-seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    data = {**base["data"], "data_dir": str(output / "data")}
    config = {**base, "seed": 1000 * seed, "output_dir": str(folder), "data": data}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    launcher = [str(Path(sys.executable).parent / "tarantella"), "-n", str(ranks), "--no-gpu", "--"]
    done = subprocess.run(
        [*launcher, str(HERE / "train_horovod.py"), str(path), "-d"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"training on {ranks} ranks failed:\n{done.stderr}")
    with np.load(folder / "history.npz") as history:
        return float(history["val_accuracy"][-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, default=3, help="runs for each number of ranks (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/digits"))
    args = parser.parse_args()
    base = yaml.safe_load((HERE / "configs/digits_cnn.yaml").read_text())
    write_digits(args.output / "data")

    one: np.ndarray | None = None
    reached = True
    print("ranks  validation accuracy of each seed   mean    deviation")
    for ranks in args.ranks:
        found = np.array([last_accuracy(ranks, seed, base, args.output) for seed in range(args.seeds)])
        one = found if one is None else one
        print(
            f"{ranks:5}  {'  '.join(f'{each:.4f}' for each in found):33}  {found.mean():.4f}  {found.std(ddof=1):.4f}"
        )
        reached &= abs(found.mean() - one.mean()) <= 2 * one.std(ddof=1)
    limit = f"two standard deviations of {args.ranks[0]} rank's ({2 * one.std(ddof=1):.4f})"
    print(f"All means are {'' if reached else 'NOT '}within {limit}.")
    raise SystemExit(not reached)


if __name__ == "__main__":
    main()
