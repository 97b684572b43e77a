"""How jobs on several hosts end: with one line, the exit code of the cause, and nothing left on any host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

WAITS = """
    import os, signal, sys, time
    rank = os.environ["TNT_RANK"]
    def save(number, frame):
        open("saved" + rank, "w").write(signal.Signals(number).name)
        if number not in (signal.SIGUSR1, signal.SIGUSR2):
            sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, save)
    open("up" + rank + ".new", "w").write(f"{os.getpid()}")
    os.rename("up" + rank + ".new", "up" + rank)
    time.sleep(100)
"""
CHILD = """
    import subprocess
    subprocess.Popen(["sleep", "200"])  # as a worker of a data loader
"""
FAILS = """
    import os, sys, time
    rank = os.environ["TNT_RANK"]
    {}
    time.sleep(100)
"""
ALL = ["up0", "up1", "up2", "up3"]


@pytest.fixture
def waiting(hosts, executable):
    """A job of 2 x 2 ranks that wait."""
    return start_waiting(hosts, executable, "--timeline=t.json")


def start_waiting(hosts, executable, *options: str, script: str = WAITS, **streams):
    hosts.script(script)
    words = [hosts.hostfile(2, 2), "--grace-seconds=3", *options, "--", "train.py"]
    job = hosts.start(executable, *words, **streams)
    hosts.wait_for_files(*ALL)
    return job


def forget_record(hosts) -> None:
    """Of a host that died at once, with the guard of its ranks."""
    for record in (hosts.folder / "tarantella").iterdir():
        assert record.suffix == ".1"
        record.unlink()


def head_of(job) -> int:
    """The launcher: `ip netns exec` and `unshare` have become it."""
    return job.process.pid


def child_named(hosts, name: str) -> list[int]:
    return [
        pid for pid in hosts.processes() if name in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[0]
    ]


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("if rank == '3': sys.exit(5)", 5, "rank 3 (pid"),
        ("if rank == '0': sys.exit(5)", 5, "on node1) ended with exit code 5; the other ranks were stopped"),
        ("if rank == '2': os.kill(os.getpid(), 9)", 137, "on node2) was killed by signal 9 (SIGKILL)"),
        ("if rank == '3': raise ValueError('on rank 3')", 1, "ValueError: on rank 3\ntarantella: rank 3"),
        ("if rank == '3': time.sleep(1)\n    sys.exit(7 if rank == '3' else 86)", 7, "rank 3"),
        ("sys.exit(86)", 86, "it lost another rank"),
    ],
)
def test_the_first_failure_ends_the_job_everywhere(hosts, executable, line, code, part):
    hosts.script(FAILS.format(line))
    job = hosts.run(executable, hosts.hostfile(2, 2), "--", "train.py")
    assert job.code == code
    assert part in job.err
    assert job.err.count("tarantella: ") == 1
    assert job.seconds < 30
    hosts.wait_for_none()


@pytest.mark.parametrize(("bad", "awaited"), [(3, "rank 3"), (2, "rank 2")])
def test_a_rank_that_is_stuck_ends_the_job_after_the_limit(hosts, executable, bad, awaited):
    hosts.script(f"""
        import threading
        import tarantella as tnt
        tnt.init()
        if tnt.get_rank() == {bad}:
            threading.Event().wait()
        tnt.Barrier(tnt.Group()).execute()
    """)
    job = hosts.run(executable, hosts.hostfile(2, 2), "--stall-timeout=1", "--grace-seconds=3", "--", "train.py")
    assert job.code == 1
    assert f" waits in barrier: {awaited} did not arrive within " in job.err
    assert all(f"tarantella: stacks of rank {rank} (pid" in job.err for rank in range(4)), job.err
    hosts.wait_for_none()


def test_the_same_error_of_all_ranks_is_shown_once(hosts, executable):
    hosts.script("raise ValueError('of all')")
    job = hosts.run(executable, hosts.hostfile(2, 2), "--", "train.py")
    assert job.code == 1
    assert job.err.count("Traceback") == job.err.count("ValueError: of all") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_ranks_and_leaves_time_to_save(hosts, waiting, number):
    os.kill(head_of(waiting), number)
    waiting.wait()
    assert waiting.code == -number
    assert waiting.err == f"tarantella: stopped by signal {int(number)} (SIG{number.name[3:]})\n"
    assert [(hosts.folder / f"saved{rank}").read_text() for rank in range(4)] == [number.name] * 4
    hosts.wait_for_none()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_user_signal_reaches_all_ranks_and_ends_nothing(hosts, waiting, number):
    os.kill(head_of(waiting), number)
    hosts.wait_for_files(*(f"saved{rank}" for rank in range(4)))
    time.sleep(0.5)
    assert waiting.process.poll() is None
    os.kill(head_of(waiting), signal.SIGTERM)
    assert waiting.wait().code == -signal.SIGTERM


def test_ranks_that_ignore_the_signal_are_killed(hosts, executable):
    hosts.script(WAITS.replace("sys.exit(0)", "pass"))
    job = hosts.start(executable, hosts.hostfile(2, 2), "--grace-seconds=1", "--", "train.py")
    hosts.wait_for_files(*ALL)
    sent = time.monotonic()
    os.kill(head_of(job), signal.SIGTERM)
    job.wait()
    assert job.code == -signal.SIGTERM
    assert time.monotonic() - sent < 15
    hosts.wait_for_none()


def test_a_signal_before_all_hosts_are_ready(hosts, executable):
    hosts.script("")
    (hosts.folder / "silent-node2").touch()
    job = hosts.start(executable, hosts.hostfile(2, 1), "--", "train.py")
    time.sleep(1)
    os.kill(head_of(job), signal.SIGINT)
    assert job.wait(10).code == -signal.SIGINT
    hosts.wait_for_none()


def test_the_launcher_is_killed(hosts, waiting):
    os.kill(head_of(waiting), signal.SIGKILL)
    hosts.wait_for_none()
    assert waiting.wait().code == -signal.SIGKILL


def test_mpiexec_is_killed(hosts, waiting):
    for pid in child_named(hosts, "mpiexec"):
        os.kill(pid, signal.SIGKILL)
    hosts.wait_for_none()
    waiting.wait()
    assert waiting.code != 0
    assert waiting.err.count("\n") == 1, waiting.err


def test_hosts_that_are_through_stay_until_the_last_one_is(hosts, executable):
    """When a host ends, MPICH's mpiexec tells all others, and dies of SIGPIPE if another has ended meanwhile."""
    script = """
        import os
        import tarantella as tnt
        tnt.init()
        with open(f"end{tnt.get_rank()}") as pipe:
            os._exit(int(pipe.read()))
    """
    hosts.script(script)
    ends = [hosts.folder / f"end{rank}" for rank in range(4)]
    for end in ends:
        os.mkfifo(end)
    job = hosts.start(executable, hosts.hostfile(4, 1), "--", "train.py")
    pipes = [end.open("w") for end in ends]
    (mpiexec,) = child_named(hosts, "mpiexec")

    def end(rank):
        pipes[rank].write("0")
        pipes[rank].close()

    os.kill(mpiexec, signal.SIGSTOP)
    for rank in (1, 2, 3):
        end(rank)
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(1)
    os.kill(mpiexec, signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(0.5)
    end(0)
    job.wait()
    assert (job.code, job.complaints) == (0, "")
    hosts.wait_for_none()


def test_the_proxy_of_a_host_is_killed(hosts, waiting):
    for pid in child_named(hosts, "hydra_pmi_proxy")[-1:]:
        os.kill(pid, signal.SIGKILL)
    hosts.wait_for_none()
    waiting.wait()
    assert waiting.code != 0
    # a machine under load may need longer than the half second after which ranks are killed, which is said, too
    said = [line for line in waiting.err.splitlines() if "tarantella: " in line and "sent SIGKILL" not in line]
    assert len(said) == 1, waiting.err


def test_all_processes_of_a_host_die(hosts, waiting):
    hosts.kill("node2")
    hosts.wait_for_none()
    waiting.wait()
    assert waiting.code == 1
    lost, warning = waiting.err.splitlines()
    assert "lost host 'node2' with ranks 2-3" in lost
    assert warning == "tarantella: WARNING: the timeline lacks records of node2: they did not arrive"
    trace = json.loads((hosts.folder / "t.json").read_text())
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == ["rank 0 on node1", "rank 1 on node1"]
    assert trace["otherData"]["missing"] == [{"host": "node2", "why": "they did not arrive"}]
    forget_record(hosts)


@pytest.mark.parametrize("mpi", ["open_mpi", "intel_mpi"], indirect=True)
def test_all_processes_of_a_host_die_under_another_mpi(hosts, executable, mpi):
    job = start_waiting(hosts, executable, env=mpi)
    hosts.kill("node2")
    hosts.wait_for_none()
    assert job.wait().code == 1
    assert job.err.count("tarantella: ") == 1, job.err
    assert "lost host 'node2' with ranks 2-3" in job.err
    forget_record(hosts)


def test_a_signal_ends_the_wait_for_timelines(hosts, executable):
    hosts.script("""
        import os
        import tarantella
        from tarantella import _core
        for _ in range(1 << 18):
            _core.timeline_end(_core.timeline_begin(1, "call"))
        open("up" + os.environ["TNT_RANK"], "w")
    """)
    hosts.limit("1mbit")  # more than two minutes for 16 MiB
    job = hosts.start(executable, hosts.hostfile(2, 1), "--timeline=t.json", "--", "train.py")
    hosts.wait_for_files("up0", "up1")
    time.sleep(1.5)
    os.kill(head_of(job), signal.SIGINT)
    sent = time.monotonic()
    job.wait(110)
    assert time.monotonic() - sent < 40  # the wait has a minute
    assert "WARNING: the timeline lacks records of node2: they did not arrive" in job.err
    events = json.loads((hosts.folder / "t.json").read_text())["traceEvents"]
    assert sum(event["pid"] == 0 and event["ph"] == "X" for event in events) == 1 << 18
    hosts.wait_for_none()


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi", "intel_mpi"], indirect=True)
def test_a_host_falls_silent(hosts, executable, mpi):
    waiting = start_waiting(hosts, executable, script=CHILD + WAITS, env=mpi)
    began = time.monotonic()
    hosts.cut("node2")
    # noticed within ten seconds and gone five later, also from the host that nobody can reach: it ends its ranks and
    # their children itself
    hosts.wait_for_none(began + 15 - time.monotonic())
    waiting.wait()
    assert waiting.code == 1
    assert "lost host 'node2' with ranks 2-3" in waiting.err


def test_a_silent_host_is_noticed_while_it_is_told_something(hosts, waiting):
    began = time.monotonic()
    hosts.cut("node2")
    os.kill(head_of(waiting), signal.SIGUSR1)
    hosts.wait_for_none(began + 15 - time.monotonic())
    waiting.wait()
    assert "lost host 'node2'" in waiting.err


def test_a_stopped_job_goes_on(hosts, executable, mpi):
    """Though its hosts are stopped and resumed at different moments."""
    hosts.script("""
        import os
        import numpy as np
        import tarantella as tnt
        total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM)
        while total.execute(np.array([float(os.path.exists("enough"))]))[0] == 0:
            open("up" + os.environ["TNT_RANK"], "w")
    """)
    job = hosts.start(executable, hosts.hostfile(2, 1), "--", "train.py", env={"TNT_TIMEOUT": "8", **mpi})
    hosts.wait_for_files("up0", "up1")
    apart, longer_than_limits = 5, 11
    for number, pause in ((signal.SIGSTOP, longer_than_limits), (signal.SIGCONT, 1)):
        for host, wait in (("node2", apart), ("node1", pause)):
            for pid in hosts.processes(host):
                os.kill(pid, number)
            time.sleep(wait)
    (hosts.folder / "enough").touch()
    job.wait()
    assert (job.code, job.complaints) == (0, "")


def test_output_that_cannot_be_written_fails_the_job(hosts, executable):
    hosts.script("print('a line')")
    with open("/dev/full", "w") as full:
        job = hosts.start(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py", stdout=full).wait()
    said = "tarantella: cannot write to stdout what the ranks have printed: No space left on device\n"
    assert (job.code, job.err) == (1, said)


def test_a_stop_key_stops_the_ranks_of_all_hosts(hosts, waiting):
    pids = [
        pid
        for pid in hosts.processes()
        if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes() and "python" in os.readlink(f"/proc/{pid}/exe")
    ]

    def states() -> set[str]:
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}

    assert len(pids) == 4
    pids.append(head_of(waiting))  # the last to stop: a shell resumes it only then
    os.kill(head_of(waiting), signal.SIGTSTP)
    deadline = time.monotonic() + 15
    while states() != {"T"} and time.monotonic() < deadline:
        time.sleep(0.02)
    assert states() == {"T"}
    os.kill(head_of(waiting), signal.SIGCONT)
    while "T" in states() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "T" not in states()
    os.kill(head_of(waiting), signal.SIGTERM)
    assert waiting.wait().code == -signal.SIGTERM


def test_a_host_that_never_joins_is_named_and_ends_the_wait_of_the_others(hosts, executable):
    hosts.script("""
        import os, sys, time
        import tarantella as tnt
        from tarantella._job import runtime
        runtime.WARN_EVERY = 1.0
        if str(tnt.get_rank()) in sys.argv[1]:
            while not os.path.exists("go"):
                time.sleep(0.02)
            sys.exit(0)
        tnt.init()
    """)
    said, go = hosts.folder / "said", hosts.folder / "go"
    for first, absent in [("rank 0", "2, 3"), ("rank 2", "0, 1"), ("rank 0", "3")]:
        line = f"{first} has waited 1 s for rank {absent} to join the job\n"
        go.unlink(missing_ok=True)
        with said.open("wb") as err:
            job = hosts.start(executable, hosts.hostfile(2, 2), "--", "train.py", absent, stderr=err)
        deadline = time.monotonic() + 30
        while line not in said.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        go.touch()
        began = time.monotonic()
        assert job.process.wait(30) == 86, said.read_text()
        assert time.monotonic() - began < 15
        words = said.read_text()
        assert words.count(line) == 1, words  # of the first rank that waits
        assert " ended (exit code 0) before it joined, and rank " in words
        assert "tarantella: rank " in words
        hosts.wait_for_none()


SUMS = """
    import os
    import numpy as np
    import tarantella as tnt
    total = tnt.Allreduce()
    rank = tnt.get_rank()
    while total.execute(np.array([float(os.path.exists("over"))]))[0] < tnt.get_size():
        if not os.path.exists(f"up{rank}"):
            open(f"up{rank}", "w").close()
    print("summed", flush=True)
"""


def start_summing(hosts, executable, **variables: str):
    """A job of 2 x 2 ranks that sum until there is a file "over"."""
    hosts.script(SUMS)
    with (hosts.folder / "err").open("wb") as err:
        job = hosts.start(executable, hosts.hostfile(2, 2), "--", "train.py", env=variables, stderr=err)
    hosts.wait_for_files(*ALL)
    return job


def wait_for_line(hosts, part: str) -> None:
    """Until the job has said it."""
    end = time.monotonic() + 30
    while part not in (hosts.folder / "err").read_text():
        assert time.monotonic() < end, (hosts.folder / "err").read_text()
        time.sleep(0.05)


def pause(hosts, host: str) -> list[int]:
    """Stops all processes of a host, whose kernel still answers."""
    stopped = hosts.processes(host)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    return stopped


@pytest.mark.full
def test_a_host_that_is_paused_is_named_and_awaited(hosts, executable):
    job = start_summing(hosts, executable)
    stopped = pause(hosts, "node2")
    wait_for_line(hosts, "WARNING: rank 0 has received nothing from host 'node2' with ranks 2 to 3 for 8 s")
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    wait_for_line(hosts, "host 'node2' with ranks 2 to 3 responds again")
    (hosts.folder / "over").touch()
    job.wait()
    assert (job.code, job.out) == (0, "summed\n")


def test_a_host_that_stays_paused_is_lost(hosts, executable):
    job = start_summing(hosts, executable, TNT_TIMEOUT="3")
    pause(hosts, "node2")
    job.wait()
    assert job.code == 1
    said = (hosts.folder / "err").read_text()
    assert "tarantella: lost host 'node2' with ranks 2-3: it has not answered for " in said, said
    assert "it is paused, stopped or swapping; the other ranks were stopped" in said, said
    hosts.end_all()
    forget_record(hosts)
