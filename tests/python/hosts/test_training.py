"""Training on several hosts: what one process gives, and the same bits in each run, also over a slow link."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from needs import is_needed

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
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(4000, "tanh"), keras.layers.Dense(1)])
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


def check_timeline(hosts, ahead: int, said: str) -> None:
    """Ranks of both hosts are in the file, on one clock, though that of node2 is `ahead` seconds ahead."""
    trace = json.loads((hosts.folder / "t.json").read_text())
    events = trace["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0 on node1", "rank 1 on node1", "rank 2 on node2", "rank 3 on node2"]
    clocks = {clock["host"]: clock for clock in trace["otherData"]["clocks"]}
    for host, true in (("node1", 0), ("node2", ahead * 1e6)):
        for measured in ("ahead_us", "ahead_at_end_us"):
            assert abs(clocks[host][measured] - true) <= clocks[host]["within_us"], clocks
    assert trace["otherData"]["missing"] == []
    assert "INFO: clocks, compared with the one of the launcher: node1's is " in said
    assert "; node2's is " in said
    # A bucket ends when the gradients of all ranks are in it, so each one overlaps with the same bucket of every rank.
    slack = sum(clock["within_us"] for clock in clocks.values())
    buckets = [
        [(event["ts"], event["ts"] + event["dur"]) for event in events if event["pid"] == rank and is_bucket(event)]
        for rank in range(4)
    ]
    assert [len(mine) for mine in buckets] == [8] * 4  # a step each
    for same in zip(*buckets, strict=True):
        assert max(begin for begin, _ in same) <= min(end for _, end in same) + slack


def is_bucket(event: dict) -> bool:
    return event["ph"] == "X" and event["cat"] == "bucket"


@pytest.mark.parametrize(
    ("count", "slots"), [(2, 1), *(pytest.param(*layout, marks=pytest.mark.full) for layout in ((2, 2), (3, 1)))]
)
def test_training_equals_one_process(hosts, executable, one_process, count, slots):
    hosts.script(TRAIN)
    has_timeline, is_slow = slots == 2, count * slots == 2  # a second time
    ahead = hosts.set_clock("node2", 4321) if has_timeline else 0
    assert ahead or not has_timeline or not is_needed("hosts"), "the kernel has no namespaces of time"
    results = []
    for run in range(2):
        if is_slow and run == 1:
            hosts.limit("10mbit")
        more = ["--timeline=t.json", "--log-level=INFO"] if has_timeline and run == 0 else []
        words = [hosts.hostfile(count, slots), *more, "--", "train.py", f"{run}.npy", "tnt"]
        job = hosts.run(executable, *words, timeout=200)
        assert job.code == 0, job.err
        if more:
            check_timeline(hosts, ahead, job.err)
        results.append(np.load(hosts.folder / f"{run}.npy"))
        np.testing.assert_allclose(results[-1], one_process, rtol=0, atol=1e-9)
    assert results[0].tobytes() == results[1].tobytes()
    assert hosts.times_limited() > 0 or not is_slow
    hosts.wait_for_none()


@pytest.mark.full
def test_training_started_by_mpiexec_equals_one_process(hosts, one_process):
    hosts.script(TRAIN)
    ranks = ["-hosts", "node1,node2", "-ppn", "1", "-n", "2"]
    job = hosts.run("mpiexec", "-launcher", "ssh", *ranks, sys.executable, "train.py", "0.npy", "tnt", timeout=200)
    assert job.code == 0, job.err
    np.testing.assert_allclose(np.load(hosts.folder / "0.npy"), one_process, rtol=0, atol=1e-9)
    hosts.wait_for_none()


def test_ranks_of_different_hosts_that_disagree(hosts, executable):
    """All in one job: each is caught on both ranks."""
    hosts.script("""
        import keras
        import numpy as np
        import tensorflow as tf
        import tarantella as tnt

        rank = tnt.get_rank()
        x, y = np.arange(16.0)[:, None] / 16, np.ones((16, 1))
        other = y + rank * (x == 0.5)

        class Nudge(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if rank == 1 and batch == 1:
                    self.model.layers[-1].kernel.assign_add([[1.0]])

        def batches(*arrays):
            return (tf.data.Dataset.from_tensor_slices(arrays).batch(4),)

        for x_and_y, callbacks in (((x, other), []), (batches(x, other), []), (batches(x, y), [Nudge()])):
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            model = tnt.Model(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
            model.compile("sgd", "mse")
            try:
                model.fit(*x_and_y, callbacks=callbacks, verbose=0)
            except tnt.MismatchError as error:
                print("caught:", error)
    """)
    job = hosts.run(executable, hosts.hostfile(2, 1), "--output-on-all-devices", "--", "train.py", timeout=200)
    assert job.code == 0, job.err
    parts = (
        "training data: part 1 with the fingerprint",
        "rank 1 read other data than rank 0",
        "rank 1 differs from rank 0 in trained weights: rank 0 has 'sequential/dense/kernel' with the checksum",
    )
    for place in ("[0@node1] caught: ", "[1@node2] caught: "):
        lines = [line for line in job.out.splitlines() if line.startswith(place)]
        assert len(lines) == len(parts), job.out
        assert all(part in line for part, line in zip(parts, lines, strict=True)), job.out
    hosts.wait_for_none()


LEAVES_OUT = """
    import sys
    import keras
    import numpy as np
    import tensorflow as tf
    import tarantella as tnt

    class Model(keras.Model):
        tnt_reduction = "mean"

        def taken(self, x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            return tape.gradient(loss, self.trainable_variables)

        def applied(self, gradients):
            self.optimizer.apply(gradients, self.trainable_variables)
            return 0.0

        def train_step(self, data):
            x, y = data
            is_good = tf.reduce_max(x) < 9
            if sys.argv[1] == "gradient":
                tf.cond(is_good, lambda: self.applied(self.taken(x, y)), lambda: 0.0)
            else:
                gradients = self.taken(x, y)
                tf.cond(is_good, lambda: self.applied(gradients), lambda: 0.0)
            return {"zero": 0.0}

    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd")
    x = np.ones((48, 4), "float32")
    x[17] = 10  # in step 3, on rank 0
    tnt.Model(model).fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("update", "rank 0 sums the updates of training step 3, rank 1 those of step 4"),
        pytest.param("gradient", "which waits in the updates; make the same calls", marks=pytest.mark.full),
    ],
)
def test_a_rank_that_leaves_out_a_gradient_or_an_update_ends_the_job_in_that_step(what, said, hosts, executable):
    hosts.script(LEAVES_OUT)
    job = hosts.run(executable, hosts.hostfile(2, 1), "--", "train.py", what, timeout=200)
    assert job.code == 1, job.err
    assert any("tarantella.MismatchError" in line and said in line for line in job.err.splitlines()), job.err
    hosts.wait_for_none()
