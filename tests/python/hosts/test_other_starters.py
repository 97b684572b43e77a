"""Ranks on two hosts that mpiexec, or torchrun in its place, has started without the launcher of Tarantella."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from jobs import of_torchrun
from needs import mpi_folder

pytestmark = pytest.mark.timeout(120)

MEET = """
    import os, sys, time
    import numpy as np
    import tarantella as tnt
    total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM).execute(np.array([10.0 ** tnt.get_rank()]))
    words = tnt.get_rank(), tnt.get_local_rank(), tnt.get_size(), *total, os.uname().nodename
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once: starters mix what ranks write in pieces
    sys.stdout.flush()
    if len(sys.argv) > 1:
        with open(f"new{tnt.get_rank()}", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"new{tnt.get_rank()}", f"up{tnt.get_rank()}")
        if tnt.get_rank() == 3:
            time.sleep(100)
        tnt.Barrier(tnt.Group()).execute()
"""
SUM = """
    import os
    import numpy as np
    import tarantella as tnt
    total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM)
    calls = 0
    try:
        while True:
            total.execute(np.ones(1 << 22, np.float32))
            calls += 1
            if calls == 3:
                open(f"new{tnt.get_rank()}", "w").close()
                os.rename(f"new{tnt.get_rank()}", f"up{tnt.get_rank()}")
    except tnt.PeerLostError:
        open(f"saved{tnt.get_rank()}", "w").close()
        raise
"""
KEEP = """
    import gc, os, weakref
    import numpy as np
    import tarantella as tnt
    from tarantella._job import runtime
    tnt.init()
    context, array, calls = runtime.context(), np.ones(1 << 22, np.float32), 0
    alive = weakref.ref(array)
    try:
        while True:
            context.allreduce(array, "")
            calls += 1
            if calls == 3:
                open(f"new{tnt.get_rank()}", "w").close()
                os.rename(f"new{tnt.get_rank()}", f"up{tnt.get_rank()}")
    except tnt.PeerLostError as error:
        error.__traceback__ = None
    del array
    gc.collect()
    open("kept" if alive() is not None else "freed", "w").close()
"""
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MET = [f"{rank} {rank % 2} 4 1111.0 node{1 + rank // 2}" for rank in range(4)]


def start_by_torchrun(hosts, *words: str, here: int = 2) -> list:
    """Two hosts with `here` ranks each. torchrun itself is not needed: it starts them so, and waits."""
    return [
        hosts.start(
            sys.executable,
            "train.py",
            *words,
            host=f"node{1 + rank // here}",
            env=of_torchrun(rank, 2 * here, here),
        )
        for rank in range(2 * here)
    ]


def mpiexec(hosts, *options: str):
    """Two hosts with two ranks each."""
    return ("mpiexec", "-launcher", "ssh", "-hosts", "node1,node2", *options, "-n", "4", sys.executable, "train.py")


def kill(hosts, rank: int, ranks: int = 4) -> None:
    """The rank is on another host: its number there is not that here."""
    hosts.wait_for_files(*(f"up{each}" for each in range(ranks)))
    mark = f"RANK={rank}".encode()
    found = [pid for pid in hosts.processes() if mark in _entries(pid, "environ") and b"up" in _entries(pid, "cmdline")]
    assert len(found) == 1
    os.kill(found[0], signal.SIGKILL)


def _entries(pid: int, file: str) -> list[bytes]:
    return [each.removeprefix(b"PMI_") for each in Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")]


def test_torchrun_on_two_hosts(hosts):
    hosts.script(MEET)
    jobs = [job.wait() for job in start_by_torchrun(hosts)]
    assert [(job.code, job.out.strip(), job.err) for job in jobs] == [(0, line, "") for line in MET]


def test_a_rank_of_torchrun_that_is_killed_ends_all(hosts):
    hosts.script(MEET)
    jobs = start_by_torchrun(hosts, "up")
    kill(hosts, 3)
    jobs = [job.wait(20) for job in jobs]
    assert [job.code for job in jobs] == [1, 1, 1, -signal.SIGKILL]
    assert all("rank 3 " in job.err for job in jobs[:3]), [job.err for job in jobs]
    hosts.wait_for_none()


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.full
def test_the_rank_that_moves_the_bytes_is_killed_in_the_midst(hosts, victim):
    hosts.script(SUM)
    jobs = start_by_torchrun(hosts, "up")
    kill(hosts, victim)
    jobs = [job.wait(20) for job in jobs]
    codes = [1] * 4
    codes[victim] = -signal.SIGKILL
    assert [job.code for job in jobs] == codes, [job.err for job in jobs]
    hosts.wait_for_files(*(f"saved{rank}" for rank in range(4) if rank != victim))
    hosts.wait_for_none()


def test_an_array_that_a_lost_machine_may_still_receive_is_kept(hosts):
    hosts.script(KEEP)
    jobs = start_by_torchrun(hosts, "up", here=1)
    kill(hosts, 1, ranks=2)
    for job in jobs:
        job.wait(20)
    hosts.wait_for_files("kept")
    hosts.wait_for_none()


@pytest.mark.full
def test_a_host_that_is_cut_off_ends_on_both_sides(hosts):
    hosts.script(MEET)
    jobs = start_by_torchrun(hosts, "up")
    hosts.wait_for_files("up0", "up1", "up2", "up3")
    hosts.cut("node2")
    hosts.wait_for_none(18)  # noticed within ten seconds, and gone five later; the rest is for a busy machine
    jobs = [job.wait() for job in jobs]
    assert [job.code for job in jobs] == [1] * 4, [job.err for job in jobs]
    wanted = "lost host 'node2' with ranks 2 to 3: its process has ended, or machine 1 cannot be reached"
    assert wanted in jobs[0].err, jobs[0].err
    assert "tarantella: rank 3 is terminated because its job has failed: " in jobs[3].err  # it was not in a call


def test_mpiexec_on_two_hosts(hosts):
    hosts.script(MEET)
    job = hosts.run(*mpiexec(hosts, "-ppn", "2"))
    assert (job.code, sorted(job.out.split()), job.err) == (0, sorted(" ".join(MET).split()), "")
    hosts.wait_for_none()


@pytest.mark.full
@pytest.mark.parametrize("given", [{}, {"TNT_TRANSPORT": "mpi-abi"}])
def test_mpirun_of_open_mpi_on_two_hosts(hosts, open_mpi_starter, given):
    """MPICH carries the data in any case, though another MPI starts the ranks."""
    folder = mpi_folder("openmpi", "Open MPI")
    hosts.script(MEET)
    where = ["--host", "node1:2,node2:2", "--map-by", "ppr:2:node", "--bind-to", "none"]
    passed = [word for name in ("TEST_MARK", *given) for word in ("-x", name)]
    words = (folder / "bin" / "mpirun", *where, *passed, sys.executable, "train.py")
    job = hosts.run(*words, env=ROOT_MAY | open_mpi_starter | given)
    assert (job.code, sorted(job.out.split())) == (0, sorted(" ".join(MET).split())), job.err
    hosts.wait_for_none()


def test_an_mpi_that_only_the_launcher_starts_is_refused(hosts):
    folder = mpi_folder("openmpi", "Open MPI")
    hosts.script(MEET)
    job = hosts.run(*mpiexec(hosts, "-ppn", "2"), env={"TNT_TRANSPORT": f"openmpi:{folder}/lib/libmpi.so"})
    assert job.code != 0
    assert "on several machines Open MPI carries data for `tarantella` only" in job.err
    assert "pip install 'tarantella[mpi]' on all of them brings MPICH, or start with `tarantella`" in job.err
    hosts.wait_for_none()


def test_a_rank_of_mpiexec_that_is_killed_ends_all(hosts):
    """By mpiexec itself, which kills all others at once, so that none can speak."""
    hosts.script(MEET)
    job = hosts.start(*mpiexec(hosts, "-ppn", "2"), "up")
    kill(hosts, 3)
    job.wait(20)
    assert job.code != 0
    assert "RUNNING AT node2" in job.out + job.err
    hosts.wait_for_none()


def test_ranks_that_are_not_numbered_host_by_host(hosts):
    hosts.script(MEET)
    job = hosts.run(*mpiexec(hosts, "-ppn", "1"))
    assert job.code != 0
    assert "mpiexec has not numbered the ranks machine by machine" in job.err
    assert "use mpiexec -ppn N" in job.err
    hosts.wait_for_none()
