"""Where ranks run: hostfiles and batch jobs, read before anything starts."""

from __future__ import annotations

import socket

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
    ("env", "part"),
    [
        (slurm("n[1-2]"), "Slurm job 12 has 2 hosts (n1, n2), but several machines are not supported yet"),
        (slurm("n[1-"), "cannot read the hosts of Slurm job 12: SLURM_JOB_NODELIST ('n[1-'): column 5:"),
        ({"PBS_JOBID": "7", "PBS_NODEFILE": "no"}, "PBS_NODEFILE ('no'): cannot read this file; --hostfile names them"),
        ({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "a 1 b 1"}, "LSF job 7 has 2 hosts (a, b)"),
    ],
)
def test_a_batch_job_that_cannot_run_gives_one_line(launcher, env, part):
    launcher.script("open('ran', 'w')")
    result = launcher.run("script.py", env=env)
    assert (result.returncode, result.out, result.err.count("\n")) == (2, "", 1)
    assert part in result.err
    assert not (launcher.folder / "ran").exists()


def test_a_hostfile_overrides_the_batch_job(launcher):
    launcher.script(COUNT)
    (launcher.folder / "hosts").write_text("localhost\n")
    assert launcher.run("--hostfile=hosts", "-n2", "script.py", env=slurm("n[1-2]")).out == "2\n"


def test_dry_run_shows_hosts_even_of_a_job_that_cannot_run_yet(launcher):
    launcher.script("open('ran', 'w')")
    result = launcher.run("--dry-run", "--n-per-node=2", "script.py", env=slurm("n[1-2]"))
    assert (result.returncode, result.out) == (2, "host n1: ranks 0-1\nhost n2: ranks 2-3\n")
    assert "several machines are not supported yet" in result.err
