"""A training on two hosts ends as a calm one, however often a rank, the launcher of a host or a host is killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

# node1 has the user's launcher and no rank. Each step takes a moment, so that kills meet all parts of an attempt.
SCRIPT = """
    import sys, time, zlib, keras, numpy as np
    import tarantella as tnt
    class Pause(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(float(sys.argv[2]))
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(7, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    model = tnt.Model(keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(1)]))
    model.compile("adam", "mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(61, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
    calls = [tnt.keras.callbacks.Snapshot(7), Pause()]
    history = model.fit(x, y, batch_size=4, epochs=int(sys.argv[1]), verbose=0, callbacks=calls)
    if tnt.is_master_rank():
        kept = [np.asarray(v) for v in [*model.variables, *model.optimizer.variables]]
        print([zlib.crc32(each.tobytes()) for each in kept], history.history)
"""


def kill(hosts, choice: random.Random, host: str, what: str) -> bool:
    """Whether there was a process to kill on the host."""
    with contextlib.suppress(OSError, ProcessLookupError, ValueError):  # it is gone, or has not come
        if what == "host":
            down = hosts.folder / f"down-{host}"
            down.touch()
            threading.Timer(choice.uniform(0, 6), down.unlink, [True]).start()
            hosts.kill(host)  # last: there may be no process
            return True
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in hosts.processes(host)}
        for pid, command in commands.items():
            is_agent = command[0].endswith(b"/tarantella")
            if is_agent if what == "agent" else b"train.py" in command and not is_agent:
                os.kill(pid, signal.SIGKILL)
                return True
    return False


@pytest.mark.parametrize(
    ("seconds", "epochs"),
    [pytest.param(60, 20, marks=pytest.mark.full), pytest.param(900, 300, marks=pytest.mark.extended)],
)
@pytest.mark.timeout(2500)
def test_ranks_agents_and_hosts_that_are_killed_at_random(hosts, executable, seconds, epochs):
    seed = int(os.environ.get("TARANTELLA_SEED", random.randrange(10**6)))
    print("repeat with TARANTELLA_SEED", seed)
    choice = random.Random(seed)
    hosts.script(SCRIPT)
    (hosts.folder / "hosts").write_text("node2 slots=1\nnode3 slots=1\n")
    command = (executable, "--hostfile=hosts", "--max-restarts=1000", "--", "train.py", epochs)
    calm = hosts.run(*command, 0, timeout=120)
    assert calm.code == 0, calm.err
    job = hosts.start(*command, 0.1, stderr=(hosts.folder / "err").open("w"))
    killed, wait = [], choice.uniform(5, 15)
    host, what = "node2", choice.choice(["rank", "agent", "host"])
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.process.poll() is None:
        time.sleep(wait)
        if not kill(hosts, choice, host, what):
            wait = 0.5  # it is being started
            continue
        killed.append((what, host))
        # The same host twice in a row, without a snapshot between, would end the job.
        host, what = "node3" if host == "node2" else "node2", choice.choice(["rank", "agent", "host"])
        wait = choice.uniform(5, 15)
    job.wait(600)
    said = (hosts.folder / "err").read_text()
    assert (job.code, job.out) == (0, calm.out), (killed, said)
    assert said.count("tarantella: restart ") >= seconds / 30, (killed, said)
    hosts.wait_for_none()
    for record in hosts.folder.glob("tarantella/*"):  # of hosts that died, with the watchdogs of their launchers
        record.unlink()
