"""Where ranks run: hostfiles and batch jobs, read before anything starts."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

COUNT = "import os\nprint(os.environ['TNT_SIZE'])\n"


def slurm(hosts: str, **variables: str) -> dict[str, str]:
    """What Slurm sets in a batch script on the host n1."""
    return {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": hosts, "SLURMD_NODENAME": "n1", **variables}


@pytest.mark.parametrize(
    ("content", "options", "part"),
    [
        (None, [], "cannot read hostfile 'hosts': No such file"),
        ("", [], "hostfile 'hosts' names no host"),
        ("# nobody\n", [], "hostfile 'hosts' names no host"),
        ("a\nb\na\n", [], "hostfile 'hosts', line 3, column 1: host 'a' is already in line 1"),
        ("a b\n", [], "line 1, column 3: only slots=N may follow a name"),
        ("n[1-\n", [], "line 1, column 5: a number is missing"),
        ("a slots=2\nb slots=3\n", [], "line 2, column 3: slots=3 here, but slots=2 in line 1"),
        ("\xff\n", [], "line 1, column 1: '?' stands where a name belongs"),
        ("a slots=2\nb slots=2\n", ["-n5"], "5 ranks are more than the 4 slots of the 2 hosts"),
        ("localhost slots=2\n", ["--n-per-node=3"], "3 ranks per node are more than the 2 slots of host 'localhost'"),
    ],
)
def test_a_wrong_hostfile_gives_one_line_and_starts_nothing(launcher, content, options, part):
    launcher.script("open('ran', 'w')")
    if content is not None:
        (launcher.folder / "hosts").write_text(content, encoding="latin-1")
    result = launcher.run("--hostfile", "hosts", *options, "script.py")
    assert (result.returncode, result.out, result.err.count("\n")) == (2, "", 1)
    assert part in result.err
    assert not (launcher.folder / "ran").exists()


def test_variables_that_a_shell_has_inherited_from_mpirun_are_named(launcher):
    env = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    launcher.script("open('ran', 'w')")
    result = launcher.run("-c", f"{launcher.executable} script.py; exit $?", program="bash", env=env)
    assert result.returncode == 2
    assert "if this is a job of its own, unset OMPI_COMM_WORLD_SIZE" in result.err


def test_a_hostfile_with_this_host_alone(launcher):
    launcher.script(COUNT)
    hosts = launcher.folder / "hosts"
    for name in ("localhost", socket.gethostname()):
        hosts.write_text(f"{name}  # this one\n")
        assert launcher.run("--hostfile=hosts", "script.py").out == "1\n"
        assert launcher.run("--hostfile=hosts", "--n-per-node=3", "--no-gpu", "script.py").out == "3\n"
    hosts.write_text("localhost slots=2\n")
    assert launcher.run("--hostfile=hosts", "script.py").out == "2\n"
    hosts.write_text("localhost slots=2\nanother slots=2\n")
    assert launcher.run("--hostfile=hosts", "-n2", "script.py").out == "2\n"  # they fill the first host


@pytest.mark.parametrize(
    ("options", "variables", "size"),
    [
        ([], {}, 1),
        ([], {"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "3"}, 3),
        ([], {"SLURM_TASKS_PER_NODE": "64"}, 1),  # the cores of the node: nobody asked for tasks
        (["-n2"], {"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "3"}, 2),
        (["--n-per-node=2"], {"SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1"}, 2),
    ],
)
def test_a_batch_job_on_one_host_needs_no_options(launcher, options, variables, size):
    launcher.script(COUNT)
    result = launcher.run(*options, "script.py", env=slurm("n1", **variables))
    assert (result.returncode, result.out, result.err) == (0, f"{size}\n", "")


@pytest.mark.parametrize(
    "env",
    [
        {"PBS_JOBID": "7.server", "PBS_NODEFILE": "nodes"},
        {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": "nodes"},
        {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "localhost 2"},
        {"LSB_JOBID": "7", "LSB_HOSTS": "localhost localhost"},
    ],
)
def test_pbs_and_lsf_name_a_host_for_each_rank(launcher, env):
    launcher.script(COUNT)
    (launcher.folder / "nodes").write_text("localhost\nlocalhost\n")
    result = launcher.run("script.py", env=env)
    assert (result.returncode, result.out, result.err) == (0, "2\n", "")
    assert launcher.run("-n3", "script.py", env=env).out == "3\n"  # the entries are no limit


@pytest.mark.parametrize(
    ("env", "part"),
    [
        (slurm("n[1-"), "cannot read the hosts of Slurm job 12: SLURM_JOB_NODELIST ('n[1-'): column 5:"),
        ({"PBS_JOBID": "7", "PBS_NODEFILE": "no"}, "PBS_NODEFILE ('no'): cannot read this file; --hostfile names them"),
        ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 1 b"}, "cannot read the hosts of LSF job 7: LSB_MCPU_HOSTS"),
    ],
)
def test_a_batch_job_that_cannot_run_gives_one_line(launcher, env, part):
    launcher.script("open('ran', 'w')")
    result = launcher.run("script.py", env=env)
    assert (result.returncode, result.out, result.err.count("\n")) == (2, "", 1)
    assert part in result.err
    assert not (launcher.folder / "ran").exists()


def test_launchers_of_torchrun_are_refused_in_one_line(launcher):
    launcher.script("open('ran', 'w')")
    said = []
    for rank in ("0", "1"):
        result = launcher.run("script.py", env={"WORLD_SIZE": "2", "RANK": rank, "TORCHELASTIC_RUN_ID": "none"})
        assert (result.returncode, result.out) == (2, "")
        said += result.err.splitlines()
    assert len(said) == 1
    cure = "leave out torchrun, or let it start the ranks itself (torchrun model.py)"
    assert said[0].endswith(f"{cure}; if this is a job of its own, unset WORLD_SIZE")
    assert not (launcher.folder / "ran").exists()


def test_a_hostfile_overrides_the_batch_job(launcher):
    launcher.script(COUNT)
    (launcher.folder / "hosts").write_text("localhost\n")
    assert launcher.run("--hostfile=hosts", "-n2", "script.py", env=slurm("n[1-2]")).out == "2\n"


@pytest.fixture
def without_mpi(launcher):
    """The launcher in a folder of its own, with a Python and nothing else beside it or in PATH."""
    folder = launcher.folder / "bin"
    folder.mkdir()
    shutil.copy(launcher.executable, folder)
    (folder / "python3").symlink_to(sys.executable)
    launcher.executable = str(folder / "tarantella")
    launcher.env["PATH"] = str(folder)
    return launcher


def mpiexec(folder: Path, version: str) -> None:
    (folder / "mpiexec").write_text(f"#!/bin/sh\necho '{version}'\n")
    (folder / "mpiexec").chmod(0o755)


@pytest.mark.parametrize(
    ("version", "env", "part"),
    [
        (None, {}, "no mpiexec beside this Python or in PATH; pip install 'tarantella[mpi]' on all hosts brings one"),
        ("HYDRA build details:\n Version: 4.1.2", {}, "MPICH 4.1.2 ("),
        ("HYDRA build details:\n Version: 4.1.2", {}, "lacks the library libmpi_abi.so.1 of MPICH 5 or newer"),
        ("mpiexec (Open MPI) 5.0.3", {"TNT_TRANSPORT": "mpi-abi"}, "TNT_TRANSPORT wants mpi-abi, but no such mpiexec"),
        (
            "mpiexec (Open MPI) 5.0.3",
            {"TNT_TRANSPORT": "openmpi:/no/lib"},
            "TNT_TRANSPORT names a library that does not exist: '/no/lib'",
        ),
        ("who knows", {}, "no mpiexec beside this Python"),
        (None, {"TNT_TRANSPORT": "tcp"}, "TNT_TRANSPORT is mpi-abi (MPICH 5, Intel MPI) or openmpi"),
    ],
)
def test_several_hosts_need_an_mpi(without_mpi, version, env, part):
    without_mpi.script("open('ran', 'w')")
    (without_mpi.folder / "hosts").write_text("a\nb\n")
    if version:
        mpiexec(without_mpi.folder / "bin", version)
    result = without_mpi.run("--hostfile=hosts", "script.py", env=env)
    assert (result.returncode, result.out, result.err.count("\n")) == (2, "", 1)
    assert part in result.err
    assert not (without_mpi.folder / "ran").exists()


@pytest.mark.parametrize(
    ("version", "library", "part"),
    [
        ("HYDRA build details:\n Version: 5.0.2", "libmpi_abi.so.1", "-launcher ssh -hosts n1,n2 -n 2 -ppn 1"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "libmpi_abi.so.1", "-launcher ssh -hosts n1,n2 -n 2"),
        ("mpiexec (Open MPI) 5.0.3", "libmpi.so.40", "--map-by ppr:1:node --bind-to none"),
    ],
)
def test_dry_run_shows_hosts_and_the_command(without_mpi, version, library, part):
    without_mpi.script("open('ran', 'w')")
    (without_mpi.folder / "hosts").write_text("n[1-2]\n")
    (without_mpi.folder / "lib").mkdir()
    (without_mpi.folder / "lib" / library).touch()
    mpiexec(without_mpi.folder / "bin", version)
    result = without_mpi.run("--dry-run", "--hostfile=hosts", "--n-per-node=2", "script.py")
    # this mpiexec reaches no host
    assert (result.returncode, result.err.count("\n")) == (1, 1)
    assert "cannot start hosts n1, n2" in result.err
    assert result.out.startswith("host n1: ranks 0-1\nhost n2: ranks 2-3\n")
    assert f"/lib/{library}\n" in result.out
    assert part in result.out
    assert "\nremote launcher: mpiexec of " in result.out
    assert not (without_mpi.folder / "ran").exists()
