"""`make gpu-check`: trains on each GPU of this machine, and as plain Keras on one of them, and compares the losses.

It starts `tarantella -- script` without -n, so that every GPU gets a rank. Both trainings use float32 without
TensorFloat-32. LeNet-5 reads handwritten digits, ResNet-50 made images.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOLERANCE = {"lenet5": 1e-4, "resnet50": 2e-3}  # relative, of the loss of each epoch; rounding grows with the layers
STEPS = 8
SEED = 42


def find_gpus() -> int:
    """Returns the number of GPUs that TensorFlow sees here."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


def images(name: str) -> tuple[Any, int]:
    """Returns a dataset of global batches of made images, and the number of their classes."""
    import numpy as np
    import tensorflow as tf

    shape, classes = ((28, 28, 1), 10) if name == "lenet5" else ((224, 224, 3), 1000)
    batch = 48  # a multiple of 1, 2, 3, 4, 6 and 8 ranks
    random = np.random.default_rng(SEED)
    x = random.normal(size=(STEPS * batch, *shape)).astype("float32")
    y = random.integers(0, classes, STEPS * batch)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch), classes


def lenet5(classes: int) -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples/quick_start"))
    from model import lenet5_model_generator

    return lenet5_model_generator()


def resnet50(classes: int) -> Any:
    """ResNet-50 that normalizes the whole batch, as one process does."""
    import keras

    model = keras.applications.ResNet50(weights=None, classes=classes)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
    return model


def train(name: str, out: str) -> None:
    """What each rank and the plain process run: two epochs, their losses to the file `out`."""
    import keras
    import tensorflow as tf

    import tarantella as tnt

    tnt.init()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    keras.utils.set_random_seed(SEED)
    gpus = tf.config.list_physical_devices("GPU")
    growth = [bool(tf.config.experimental.get_memory_growth(gpu)) for gpu in gpus]
    details = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    dataset, classes = images(name)
    model = tnt.Model({"lenet5": lenet5, "resnet50": resnet50}[name](classes))
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", jit_compile=False)
    losses = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    if tnt.is_master_rank():
        report = {"ranks": tnt.get_size(), "losses": losses, "gpus": details, "growth": growth}
        Path(out).write_text(json.dumps(report), encoding="utf-8")


def started(command: list[str], name: str, **environment: str) -> dict[str, Any]:
    """Runs this script by `command`, and returns what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        line = [*command, __file__, "train", name, str(out)]
        print("$", " ".join(line), flush=True)
        if subprocess.run(line, env={**os.environ, **environment}, check=False).returncode:
            sys.exit(f"gpu_check: the training of {name} failed")
        return json.loads(out.read_text(encoding="utf-8"))


def check(name: str, gpus: int) -> None:
    """Trains `name` in both ways, prints the losses, and ends the script where they are not close."""
    launcher = str(Path(sys.executable).parent / "tarantella")
    ranks = started([launcher, "--"], name)
    plain = started(
        [sys.executable],
        name,
        CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
        TF_FORCE_GPU_ALLOW_GROWTH="true",
    )
    print(f"{name}: {ranks['ranks']} ranks on {ranks['gpus'][0] if ranks['gpus'] else 'CPUs'}, memory growth on")
    print(f"  losses {ranks['losses']}, of plain Keras on one GPU {plain['losses']}")
    if ranks["ranks"] != gpus or len(ranks["gpus"]) != 1 or ranks["growth"] != [True]:
        sys.exit(f"gpu_check: expected {gpus} ranks with one GPU and memory growth each, but got {ranks}")
    apart = max(abs(a - b) / abs(b) for a, b in zip(ranks["losses"], plain["losses"], strict=True))
    if not apart <= TOLERANCE[name]:
        sys.exit(f"gpu_check: the losses of {name} differ by {apart:.1e}, more than {TOLERANCE[name]:.0e}")
    print(f"  the losses differ by {apart:.1e} at most")


def main() -> None:
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], sys.argv[3])
        return
    gpus = find_gpus()
    if gpus == 0:
        sys.exit(
            "gpu_check: TensorFlow sees no GPU here; run it on a machine with NVIDIA GPUs and `pip install "
            "'tensorflow[and-cuda]'`"
        )
    for name in TOLERANCE:
        check(name, gpus)
    print(f"ok: {gpus} GPUs")


if __name__ == "__main__":
    main()
