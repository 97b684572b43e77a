"""--max-restarts on several hosts: after a rank or a host is lost, with the hosts that are left or after a wait."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(150)

SCRIPT = """
    import os, signal, time
    import tarantella as tnt
    place, attempt = f"{tnt.get_rank()} of {tnt.get_size()}", tnt.restart_count()
    tnt.init()
    open(f"up {attempt} {place}", "w").close()
    while not os.path.exists(f"end {attempt}"):
        if os.path.exists(f"kill {attempt} {place}"): os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
    tnt.Barrier(tnt.Group()).execute()
"""


def start(hosts, executable, count: int, *options: str, **environment):
    hosts.script(SCRIPT)
    job = hosts.start(
        executable, hosts.hostfile(count, 1), "--max-restarts=2", *options, "--", "train.py", **environment
    )
    wait_for_ranks(hosts, 0, count)
    return job


def wait_for_ranks(hosts, attempt: int, count: int) -> None:
    hosts.wait_for_files(*(f"up {attempt} {rank} of {count}" for rank in range(count)), seconds=40)


def lose(hosts, host: str) -> None:
    (hosts.folder / f"down-{host}").touch()
    hosts.kill(host)


def forget_records(hosts) -> None:
    """Of hosts that died at once, with the watchdogs of their launchers."""
    for record in hosts.folder.glob("tarantella/*"):
        record.unlink()


def said_until(job, part: str) -> str:
    """What the launcher says on stderr, up to a line with `part`."""
    said = ""
    while part not in said.split("\n")[-2:][0]:
        line = job.process.stderr.readline().decode()
        assert line, said
        said += line
    return said


def ends_well(hosts, job, attempt: int) -> list[str]:
    """The job's lines of restarts."""
    (hosts.folder / f"end {attempt}").touch()
    assert job.wait().code == 0, job.err
    hosts.wait_for_none()
    return [line for line in job.err.splitlines() if "restart" in line or "next try" in line]


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi", "intel_mpi"], indirect=True)
def test_a_killed_rank_starts_all_hosts_again(hosts, executable, mpi):
    job = start(hosts, executable, 2, env=mpi)
    (hosts.folder / "kill 0 1 of 2").touch()
    wait_for_ranks(hosts, 1, 2)
    assert ends_well(hosts, job, 1) == ["tarantella: restart 1 of 2 in 1 s"]
    assert "tarantella: rank 1 (pid " in job.err


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi"], indirect=True)
@pytest.mark.parametrize("host", ["node2", "node3"])
def test_the_hosts_that_are_left_go_on_if_they_are_enough(hosts, executable, mpi, host):
    job = start(hosts, executable, 3, "--min-hosts=2", env=mpi)
    lose(hosts, host)
    said = said_until(job, "restart")
    assert f"tarantella: lost host '{host}' with rank " in said
    assert said.endswith(f"\ntarantella: restart 1 of 2 in 1 s, without host '{host}'\n")
    # its prted of before was killed, and that of the next attempt has the same number on a host of a test
    for folder in Path(mpi.get("PRTE_MCA_prte_tmpdir_base", "/nowhere")).glob("*"):
        shutil.rmtree(folder)
    wait_for_ranks(hosts, 1, 2)
    ends_well(hosts, job, 1)
    forget_records(hosts)


def test_the_last_host_goes_on_alone(hosts, executable):
    job = start(hosts, executable, 2, "--min-hosts=1")
    lose(hosts, "node2")
    wait_for_ranks(hosts, 1, 1)
    assert ends_well(hosts, job, 1) == ["tarantella: restart 1 of 2 in 1 s, without host 'node2'"]
    forget_records(hosts)


def test_a_lost_host_is_waited_for(hosts, executable):
    job = start(hosts, executable, 2, "--host-timeout=60")
    lose(hosts, "node2")
    said_until(job, "next try in 5 s")
    (hosts.folder / "down-node2").unlink()
    wait_for_ranks(hosts, 1, 2)
    ends_well(hosts, job, 1)
    forget_records(hosts)


TRAINS = """
    import sys, keras, numpy as np
    import tarantella as tnt
    model = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    backup = keras.callbacks.BackupAndRestore(sys.argv[1])
    model.fit(np.ones((8, 2)), np.ones(8), batch_size=4, verbose=0, callbacks=[backup])
    print("trained")
"""


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_backup_that_hosts_do_not_share_is_found_before_training(hosts, executable, is_shared):
    folder = hosts.folder / "backup"
    folder.mkdir()
    if not is_shared:
        hosts.mount("-t", "tmpfs", "none", folder)
    hosts.script(TRAINS)
    job = hosts.run(executable, hosts.hostfile(2, 1), "--max-restarts=1", "--", "train.py", "backup", timeout=120)
    assert (job.code, job.out) == ((0, "trained\n") if is_shared else (1, "")), job.err
    assert ("is not shared with node2, so that a restart after the loss of a host" in job.err) is not is_shared
    assert not folder.exists() if is_shared else [*folder.iterdir()] == []


def test_a_host_that_does_not_come_back_ends_the_job(hosts, executable):
    job = start(hosts, executable, 2, "--host-timeout=2")
    lose(hosts, "node2")
    assert job.wait().code == 1
    said = [line for line in job.err.splitlines() if "restart" in line]
    wait = "restart 1 of 2 in 1 s, and a wait of up to 2 s for host 'node2' (--host-timeout)"
    assert said[0] == f"tarantella: {wait}"
    assert said[-1] == "tarantella: not restarted: host 'node2' did not come back within 2 s (--host-timeout)"
    hosts.wait_for_none()
    forget_records(hosts)


SNAPSHOTS = """
    import os, sys, time, zlib, keras, numpy as np
    import tarantella as tnt
    keras.utils.set_random_seed(1)
    place, attempt = f"{tnt.get_rank()} of {tnt.get_size()}", tnt.restart_count()
    class Wait(keras.callbacks.Callback):
        begun = False
        def on_train_batch_end(self, batch, logs=None):
            if not self.begun:
                self.begun = True
                print("attempt", attempt, "begins with step", int(self.model.optimizer.iterations), flush=True)
            if int(self.model.optimizer.iterations) == 14 and attempt == 0 and len(sys.argv) > 1:
                open(f"up {place}", "w").close()
                time.sleep(100)
    class Counts(keras.callbacks.Callback):  # on rank 0 only, with an array
        count = np.zeros(1)
        def on_train_batch_end(self, batch, logs=None):
            self.count = self.count + 1
        def get_state(self):
            return {"count": self.count}
        def set_state(self, state):
            self.count = state["count"]
    counts = Counts()
    units = 400_000 if "large" in sys.argv else 7
    layers = [keras.layers.Dense(units, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    model = tnt.Model(keras.Sequential([keras.Input((5,)), *layers, keras.layers.Dense(1)]))
    model.compile("adam", "mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(61, 5)).astype("float32"); y = x[:, :1] - x[:, 1:2]
    wait = tnt.keras.callbacks.Callback(Wait(), run_on_all_ranks=True)
    calls = [tnt.keras.callbacks.Snapshot(5), wait, tnt.keras.callbacks.Callback(counts, run_on_all_ranks=False)]
    history = model.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=calls)
    if tnt.is_master_rank():
        kept = [np.asarray(v) for v in [*model.variables, *model.optimizer.variables]]
        print("result", [zlib.crc32(each.tobytes()) for each in kept], history.history, counts.count[0])
"""


def trained(job) -> tuple[list[str], str]:
    lines = job.out.splitlines()
    return [each for each in lines if each.startswith("attempt")], lines[-1]


@pytest.mark.parametrize("host", ["node2", pytest.param("node3", marks=pytest.mark.full)])
def test_a_training_goes_on_from_memory_after_a_host_is_lost(hosts, executable, host):
    """node2 has rank 0, so that the launcher has no rank of its own."""
    hosts.script(SNAPSHOTS)
    (hosts.folder / "hosts").write_text("node2 slots=1\nnode3 slots=1\n")
    command = (executable, "--hostfile=hosts", "--max-restarts=2", "--host-timeout=60", "--", "train.py")
    unbroken = hosts.run(*command, timeout=60)
    assert unbroken.code == 0, unbroken.err
    job = hosts.start(*command, "killed")
    hosts.wait_for_files("up 0 of 2", "up 1 of 2", seconds=40)
    lose(hosts, host)
    said_until(job, "next try in 5 s")
    (hosts.folder / f"down-{host}").unlink()
    assert job.wait(90).code == 0, job.err
    hosts.wait_for_none()
    attempts, result = trained(job)
    assert attempts == ["attempt 0 begins with step 1", "attempt 1 begins with step 11"]
    assert result == trained(unbroken)[1]
    forget_records(hosts)


def test_an_interrupt_while_a_snapshot_is_fetched_ends_the_job(hosts, executable):
    hosts.script(SNAPSHOTS)
    (hosts.folder / "hosts").write_text("node2 slots=1\nnode3 slots=1\n")
    job = hosts.start(executable, "--hostfile=hosts", "--max-restarts=2", "--", "train.py", "large")
    hosts.wait_for_files("up 0 of 2", "up 1 of 2", seconds=60)
    hosts.limit("20mbit")  # for 43 MB
    (rank,) = [pid for pid in hosts.processes("node2") if is_rank(pid)]
    os.kill(rank, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(is_rank(pid) for pid in hosts.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    job.process.send_signal(signal.SIGINT)
    assert job.wait(20).code == -signal.SIGINT, job.err
    assert "tarantella: stopped by signal 2 (SIGINT)" in job.err
    assert job.out.count("attempt") == 1
    hosts.wait_for_none()


def is_rank(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"train.py" in words and not words[0].endswith(b"/tarantella")
