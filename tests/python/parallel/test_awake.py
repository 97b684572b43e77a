"""Cores that are kept from going idle: on in calls only, and never at the cost of others. Times are CPU times."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import give_up

from tarantella.scaling import trace

pytestmark = [pytest.mark.full, pytest.mark.real_start]

HEAD = """
import os, signal, subprocess, sys, threading, time
import tarantella as tnt
from tarantella._job import runtime
from tarantella._job.awake import kept
tnt.init()
core = runtime.context()

def used_in(seconds):
    before = core.awake_seconds()
    time.sleep(seconds)
    return core.awake_seconds() - before

def work(seconds):
    "Short waits between short computations."
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.003)
        until = time.process_time() + 0.001
        while time.process_time() < until:
            pass
"""


@pytest.fixture
def ranks(scripts: Any) -> Any:
    """Runs a piece of Python on two ranks of one CPU each, where the machine permits to keep it awake."""
    if len(os.sched_getaffinity(0)) < 2:
        give_up("awake", "two ranks need two CPUs")

    def run(source: str, **options: Any) -> Any:
        ended = scripts.ranks(2, HEAD + source, **{"TNT_LOG_LEVEL": "INFO", **options})
        if "TNT_KEEP_AWAKE" not in options and "cores are not kept from going idle" in ended.err:
            give_up("awake", ended.lines[0])
        return ended

    return run


FIT = """
import keras, numpy as np
from tarantella.keras import training
model = tnt.Model(keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)]))
model.compile("sgd", "mse")
x, y = np.ones((512, 64)), np.ones((512, 1))
def fit():
    model.fit(x, y, 16, epochs=2, verbose=0)
"""


def test_cores_are_kept_awake_in_fit_only(ranks: Any, tmp_path: Path) -> None:
    source = (
        FIT
        + """
before, grown, end = core.awake_seconds(), False, time.monotonic() + 100
while True:  # beside strangers it rests for up to a second
    fit()
    grown = core.awake_seconds() > before
    last = np.array([grown or OFF or time.monotonic() > end], np.int32)
    if core.allreduce(last, "", "min")[0]:
        break
print(grown)
time.sleep(0.1)
assert used_in(0.5) < 0.005
"""
    )
    options = {"TNT_OUTPUT_ON_ALL_DEVICES": "1", "TNT_TIMELINE": str(tmp_path / "trace.json")}
    ended = ranks("OFF = False" + source, TNT_KEEP_AWAKE="1", **options)
    assert ended.code == 0, ended.err
    assert ended.out.count("True") == 2 or "cores are not kept from going idle" in ended.err, ended.out
    used = {rank.awake > 0 for rank in trace.read(tmp_path / "trace.json").ranks}
    assert used == {"True" in ended.out}
    off = ranks("OFF = True" + source, TNT_OUTPUT_ON_ALL_DEVICES="1", TNT_KEEP_AWAKE="0")
    assert off.code == 0, off.err
    assert off.out.count("False") == 2, off.out


def test_a_trial_tells_whether_cores_are_kept_awake(ranks: Any) -> None:
    ended = ranks(
        FIT
        + """
fit()  # 64 of 111 steps
trial = training.of(model.keras_model).awake_trial
assert trial.choice is None
fit()
fit()
assert trial.choice is not None
off, on = [(2.0, 1.0), (1.0, 9.0)][tnt.get_rank()]  # rank 0 alone would choose the other way
trial._means = [off, on, on, off] * 3
trial._choose()
assert trial.choice is False
time.sleep(0.1)
before = core.awake_seconds()
fit()
assert core.awake_seconds() - before < 0.001  # beside strangers, the thread may go to sleep as late as here
"""
    )
    assert ended.code == 0, ended.err
    said, made_up = [line for line in ended.lines if "training steps" in line]
    assert "ms a step with cores kept awake" in said
    assert "not kept awake in training steps: 5000.00 ms a step with cores kept awake, 1500.00 ms without" in made_up


def test_calls_in_calls_end_with_the_outermost(ranks: Any) -> None:
    ended = ranks("""
with kept():
    with kept():
        work(0.2)
    before = core.awake_seconds()
    end = time.monotonic() + 200
    while core.awake_seconds() - before < 0.001 and time.monotonic() < end:
        work(0.1)
    assert core.awake_seconds() - before >= 0.001
time.sleep(0.1)
assert used_in(0.5) < 0.005
""")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.extended)])
def test_a_long_wait_and_a_stopped_rank_use_nothing(ranks: Any, seconds: int) -> None:
    ended = ranks(
        f"seconds = {seconds}"
        """
def look(file):
    return f"cat /proc/{os.getpid()}/stat > {sys.argv[0]}.{file};"
def seen(file):
    "The state of this process, and its ticks of CPU time."
    fields = open(f"{sys.argv[0]}.{file}").read().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])
with kept():
    work(0.5)
    tnt.Barrier().execute()
    before, process_before, began = core.awake_seconds(), time.process_time(), time.monotonic()
    if tnt.get_rank() == 1:
        commands = f"sleep 0.5; {look('first')} sleep {seconds}; {look('last')} kill -CONT {os.getpid()}"
        subprocess.Popen(["sh", "-c", commands], start_new_session=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        assert seen("first") == seen("last") and seen("last")[0] == "T"
    tnt.Barrier().execute()
    used, process_used = core.awake_seconds() - before, time.process_time() - process_before
    print(f"{used:.3f} s of {process_used:.3f} s of {time.monotonic() - began:.1f}")
    if tnt.get_rank() == 0:
        assert time.monotonic() - began > seconds - 1
        assert used < 0.2, used  # a wait is long after 0.05 s
        assert process_used < 0.3, process_used
""",
        TNT_OUTPUT_ON_ALL_DEVICES="1",
    )
    assert ended.code == 0, ended.err + ended.out


def test_a_forked_child_has_nothing_of_it(ranks: Any) -> None:
    ended = ranks("""
with kept():
    work(0.1)
    child = os.fork()
    if child == 0:
        assert len(os.listdir("/proc/self/task")) == 1
        try:
            core.keep_awake()
        except ValueError as error:
            assert "forked child" in str(error)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
""")
    assert ended.code == 0, ended.err


def test_an_error_in_a_call_lets_cores_sleep(ranks: Any) -> None:
    ended = ranks("""
try:
    with kept():
        work(0.1)
        raise KeyError
except KeyError:
    pass
time.sleep(0.1)
assert used_in(0.5) < 0.005
core.keep_awake()
began = time.monotonic()
runtime.close()
assert time.monotonic() - began < 2
""")
    assert ended.code == 0, ended.err


def test_ranks_that_share_cores_say_so(scripts: Any) -> None:
    source = HEAD + "with kept(): work(0.1)\nwith kept(): pass\nassert core.awake_seconds() == 0\n"
    ranks = 2 * len(os.sched_getaffinity(0))
    said = "cores are not kept from going idle, because ranks share cores"
    for setting, level, level_of_line in (("auto", "INFO", "INFO"), ("1", "WARNING", "WARNING")):
        ended = scripts.ranks(ranks, source, TNT_LOG_LEVEL=level, TNT_KEEP_AWAKE=setting)
        assert ended.code == 0, ended.err
        assert [line for line in ended.lines if "idle" in line] == [f"tarantella: {level_of_line}: {said}"]
    assert "idle" not in scripts.ranks(ranks, source).err


@pytest.fixture
def quota() -> Iterator[Path]:
    """A cgroup with a quota of ten CPUs."""
    for top, name, value in (("cpu", "cpu.cfs_quota_us", "1000000"), ("", "cpu.max", "1000000 100000")):
        folder = Path("/sys/fs/cgroup", top, f"tarantella-test-{uuid.uuid4().hex}")
        try:
            folder.mkdir()
            (folder / name).write_text(value)
        except OSError:
            if folder.exists():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    give_up("cgroup", "no cgroup can be made here")


def test_with_a_quota_nothing_spins(scripts: Any, quota: Path, executable: str) -> None:
    source = HEAD + FIT + "with kept(): work(0.2)\nfit()\nfit()\nassert core.awake_seconds() == 0\n"
    command = f"echo $$ > {quota}/cgroup.procs && exec {executable} -n 2 --no-gpu -- {scripts.write(source)}"
    environment = {**os.environ, "TNT_LOG_LEVEL": "INFO", "TNT_KEEP_AWAKE": "1"}
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "idle" in line]
    if len(os.sched_getaffinity(0)) > 1:
        assert f"because the cgroup has a CPU quota ({quota}" in line


REASONS = (
    "the cgroup has a CPU quota (/sys/fs/cgroup/cpu.max)",
    "CPU 6, on the same core as CPU 0, is not this rank's",
    "idle priority for a thread: Operation not permitted",
)


def test_what_speaks_against_it_is_one_line_and_training_goes_on(scripts: Any) -> None:
    """Reasons that tests of the core make out of quotas, foreign hardware threads and refused priorities."""
    source = (
        HEAD
        + FIT
        + f"reasons = {REASONS}"
        + """
permits = type(core).keep_awake
for reason in reasons:
    type(core).keep_awake = lambda self, several=False: reason
    fit()
    fit()
assert core.awake_seconds() == 0
os.environ["TNT_KEEP_AWAKE"] = "auto"
if tnt.is_master_rank():
    type(core).keep_awake = permits
fit()
print("trained", training.of(model.keras_model).awake_trial)
"""
    )
    ended = scripts.ranks(2, source, TNT_KEEP_AWAKE="1")
    assert ended.code == 0, ended.err
    said = "tarantella: WARNING: cores are not kept from going idle, because "
    assert ended.lines == [said + reason for reason in REASONS]
    assert "trained" in ended.out


@pytest.mark.parametrize(("pairs", "least"), [(4, 0.9), pytest.param(12, 0.95, marks=pytest.mark.extended)])
def test_a_busy_stranger_keeps_his_core(ranks: Any, pairs: int, least: float) -> None:
    """Another session is another scheduling group, to which idle priority does not yield. Other tests may disturb."""
    if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() != "1":
        give_up("awake", "autogroup is off: a session is no scheduling group")
    ended = ranks(
        f"pairs, least = {pairs}, {least}"
        """
stranger = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
def ticks():
    fields = open(f"/proc/{stranger.pid}/stat").read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
def share():
    before, began = ticks(), time.monotonic()
    work(1)
    return (ticks() - before) / (time.monotonic() - began)
time.sleep(0.5)
for attempt in range(3):
    off, on = [], []
    for _ in range(pairs):
        off.append(share())
        with kept():
            on.append(share())
    print(f"{sum(on) / sum(off):.3f} {core.awake_seconds():.3f}", on, off)
    if sum(on) > least * sum(off):
        break
stranger.kill()
stranger.wait()
assert core.awake_seconds() > 0
assert sum(on) > least * sum(off), (on, off)
""",
        TNT_OUTPUT_ON_ALL_DEVICES="1",
    )
    print(ended.out)
    assert ended.code == 0, ended.err + ended.out
