"""Training on several hosts: what one process gives, and the same bits in each run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytestmark = pytest.mark.timeout(300)

TRAIN = """
    import sys
    import keras
    import numpy as np
    import tarantella as tnt

    keras.utils.set_random_seed(1)
    keras.config.set_floatx("float64")
    rows = np.random.default_rng(2)
    x, y = rows.normal(size=(50, 6)), rows.normal(size=(50, 1))
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(40, "tanh"), keras.layers.Dense(1)])
    if len(sys.argv) > 2:
        model = tnt.Model(model)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    result = [np.ravel(each) for each in model.get_weights()] + list(history.history.values())
    result += [model.evaluate(x, y, verbose=0, batch_size=16), np.ravel(model.predict(x, verbose=0))]
    if len(sys.argv) == 2 or tnt.is_master_rank():
        np.save(sys.argv[1], np.concatenate([np.ravel(each) for each in result]))
"""


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """What plain Keras computes."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "train.py", "plain.npy"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=120)
    return np.load(folder / "plain.npy")


@pytest.mark.parametrize(("count", "slots", "runs"), [(2, 1, 2), (2, 2, 1), (3, 1, 1)])
def test_training_equals_one_process(hosts, executable, one_process, count, slots, runs):
    hosts.script(TRAIN)
    results = []
    for run in range(runs):
        job = hosts.run(executable, hosts.hostfile(count, slots), "--", "train.py", f"{run}.npy", "tnt", timeout=200)
        assert job.code == 0, job.err
        results.append(np.load(hosts.folder / f"{run}.npy"))
        np.testing.assert_allclose(results[-1], one_process, rtol=0, atol=1e-9)
    assert len({result.tobytes() for result in results}) == 1
    hosts.wait_for_none()
