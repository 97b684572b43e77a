"""`make gpu-check`: do the examples train on all GPUs of this machine as plain Keras trains on one of them?

Starts `tarantella -- example` without -n, so that every GPU gets a rank, and `python example` on one GPU with the same
global batch. Both use float32 without TensorFloat-32. The losses of each epoch must agree. LeNet-5 reads handwritten
digits, those of scikit-learn, and ResNet-50 made photographs. It normalizes the images of all ranks together, and
trains by SGD: Adam makes large steps of the rounding of small gradients.

tools/gpu_check.py --cpus 2     rehearses it on two ranks on CPUs
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from draw_curves import epochs
from made_photos import write_photos

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BATCH = 48  # of all ranks; a multiple of 1, 2, 3, 4, 6 and 8 ranks
PRINTED = 1e-4  # Keras prints losses with four digits


class Example(NamedTuple):
    """A program, its arguments with {batch}, that of all ranks, and {data}, and how far losses may lie apart.

    tolerance: relative; rounding grows with the layers.
    """

    program: str
    arguments: str
    tolerance: float


CHECKED = {
    "lenet5": Example("quick_start/model.py", "--batch_size={batch} --train_epochs=2", 1e-4),
    "resnet50": Example(
        "models/resnet/resnet50_tnt.py",
        "--data_dir={data} --batch_size={batch} --train_epochs=2 --epochs_between_evals=2 --image_size=64"
        " --sync_batch_norm --verbose=2",
        2e-3,
    ),
}


def find_gpus() -> int:
    """Returns the number of GPUs that TensorFlow sees here."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


def see(folder: Path) -> None:
    """What each rank runs first: writes which GPUs it sees, and whether their memory grows."""
    import tensorflow as tf

    import tarantella as tnt

    tnt.init()
    gpus = tf.config.list_physical_devices("GPU")
    names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    seen = {
        "gpu": os.environ["CUDA_VISIBLE_DEVICES"],
        "names": names,
        "growth": os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH"),
    }
    (folder / f"{tnt.get_rank()}.json").write_text(json.dumps(seen), encoding="utf-8")


def run(command: list[str], environment: dict[str, str], **changes: str) -> str:
    """Prints the command, runs it, and returns what it prints. Ends this script where it fails."""
    print("$", *(f"{name}={value}" for name, value in changes.items()), shlex.join(command), flush=True)
    done = subprocess.run(command, env={**environment, **changes}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\ngpu_check: {shlex.join(command)} failed")
    return done.stdout


def ranks_of(launcher: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    """Returns what each rank of a job sees."""
    with tempfile.TemporaryDirectory() as folder:
        run([*launcher, __file__, "--see", folder], environment)
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).iterdir())]


def judge_ranks(ranks: list[dict[str, Any]], gpus: int) -> None:
    """Ends the script unless every GPU has a rank, which sees no other one and takes its memory as it needs it."""
    one_each = len({rank["gpu"] for rank in ranks}) == len(ranks) == gpus
    if not one_each or any(len(rank["names"]) != 1 or rank["growth"] != "true" for rank in ranks):
        sys.exit(f"gpu_check: expected {gpus} ranks with one GPU and memory growth each, but got {ranks}")
    for number, rank in enumerate(ranks):
        print(f"rank {number}: GPU {rank['gpu']}, {rank['names'][0]}, memory growth on")


def judge_losses(name: str, ours: list[float], plain: list[float]) -> None:
    """Prints the losses, and ends the script where they are not close."""
    print(f"{name}: losses {ours}, of plain Keras {plain}")
    if not ours or len(ours) != len(plain):
        sys.exit(f"gpu_check: {name} printed {len(ours)} losses, and plain Keras {len(plain)}")
    pairs = list(zip(ours, plain, strict=True))
    apart = max(abs(a - b) for a, b in pairs)
    if not all(abs(a - b) <= PRINTED + CHECKED[name].tolerance * abs(b) for a, b in pairs):
        sys.exit(f"gpu_check: the losses of {name} differ by {apart:.4f}")
    print(f"  they differ by {apart:.4f} at most")


def make_data(environment: dict[str, str]) -> str:
    """Writes photographs as TFRecords to a folder below KERAS_HOME. Returns it."""
    folder = Path(environment["KERAS_HOME"])
    write_photos(folder / "photos")
    pack = EXAMPLES / "common/pack_imagenet.py"
    run([sys.executable, str(pack), str(folder / "photos"), str(folder / "data")], environment)
    return str(folder / "data")


def compare(name: str, ranks: int, launcher: list[str], environment: dict[str, str], one: dict[str, str]) -> None:
    """Trains an example on the ranks and, in the environment `one`, as plain Keras with the same global batch."""
    example = CHECKED[name]
    data = make_data(environment) if "{data}" in example.arguments else ""
    arguments = example.arguments.format(batch=max(1, BATCH // ranks) * ranks, data=data).split()

    def losses(program: list[str], **changes: str) -> list[float]:
        said = run([*program, str(EXAMPLES / example.program), *arguments], environment, **changes)
        return [epoch["loss"] for epoch in epochs(said)]

    judge_losses(name, losses(launcher), losses([sys.executable], **one))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, metavar="N", help="rehearse on N ranks on CPUs, on a machine without GPUs")
    parser.add_argument("--only", nargs="+", choices=CHECKED, default=list(CHECKED), metavar="EXAMPLE")
    parser.add_argument("--see", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.see:
        return see(options.see)
    launcher = str(Path(sys.executable).parent / "tarantella")
    ranks = options.cpus or find_gpus()
    if ranks == 0:
        sys.exit(
            "gpu_check: TensorFlow sees no GPU here; run it on a machine with NVIDIA GPUs and `pip install "
            "'tensorflow[and-cuda]'`"
        )
    with tempfile.TemporaryDirectory() as folder:
        # No MNIST and no weights: the data are small, and the same with and without a network.
        small = {"KERAS_HOME": folder, "https_proxy": "http://127.0.0.1:9", "NVIDIA_TF32_OVERRIDE": "0"}
        environment = {**os.environ, **small}
        if options.cpus:
            command, one = [launcher, "-n", str(ranks), "--no-gpu", "--"], {"CUDA_VISIBLE_DEVICES": "-1"}
        else:
            command, first = [launcher, "--"], os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            one = {"CUDA_VISIBLE_DEVICES": first, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
            judge_ranks(ranks_of(command, environment), ranks)
        for name in options.only:
            compare(name, ranks, command, environment, one)
    print(f"ok: {ranks} {'ranks on CPUs' if options.cpus else 'GPUs'}")
    return None


if __name__ == "__main__":
    main()
