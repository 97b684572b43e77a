"""Jobs of a real Slurm on one node: sbatch, salloc, plain srun, scancel, and a time limit with a signal before it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from needs import mpi_folder

pytestmark = pytest.mark.timeout(180)

SHOW = "import os\nprint('ranks', os.environ['TNT_SIZE'], 'on', os.environ['SLURMD_NODENAME'])\n"
SHOW_PLACE = """
    import os
    of = os.environ
    print(of["SLURMD_NODENAME"], of["TNT_RANK"], "of", of["TNT_SIZE"], "in", of["TNT_NODES"], "PMI_FD" in of)
"""
SAVES = """
    import os, signal, sys, time
    def save(number, frame):
        open("saved" + os.environ["TNT_RANK"], "w").write(signal.Signals(number).name)
        if sys.argv[1:] != ["goes-on"]:
            sys.exit(0)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, save)
    open("ready" + os.environ["TNT_RANK"], "w").close()
    time.sleep(100)
"""
SUMS = """
    import os
    import numpy as np
    import tarantella as tnt
    total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM).execute(np.array([10.0 ** tnt.get_rank()]))
    print(tnt.get_rank(), tnt.get_size(), *total, os.environ["SLURMD_NODENAME"])
"""


class Folder:
    """A user's folder with a script, and the launcher."""

    def __init__(self, slurm, path: Path, executable: str):
        self.slurm, self.path, self.executable = slurm, path, executable

    def write(self, source: str, name: str = "train.py") -> None:
        (self.path / name).write_text(textwrap.dedent(source))

    def run(self, *command: object, **options) -> subprocess.CompletedProcess:
        return self.slurm.run(*command, folder=self.path, **options)

    def batch(self, line: str, *options: str) -> tuple[int, str]:
        """Runs a batch script to its end: its exit code and output. `sbatch --wait` would look every ten seconds."""
        (self.path / "code").unlink(missing_ok=True)
        self.submit(f"({line})\necho $? > code.new\nmv code.new code", *options)
        self.wait_for("code")
        return int((self.path / "code").read_text()), (self.path / "out").read_text()

    def submit(self, line: str, *options: str) -> str:
        self.write(f"#!/bin/bash\n{line}\n", "job.sh")
        return self.run("sbatch", "--parsable", "--output=out", *options, "job.sh").stdout.strip()

    def wait_for(self, *names: str, seconds: float = 60) -> None:
        self.slurm.wait_until(
            lambda: all((self.path / name).exists() for name in names),
            lambda: sorted(each.name for each in self.path.iterdir()),
            seconds,
        )

    def wait_for_none(self, seconds: float = 30) -> None:
        """No process of this folder runs."""
        self.slurm.wait_until(lambda: not self._processes(), lambda: f"left behind: {self._processes()}", seconds)

    def _processes(self) -> list[Path]:
        return [each for each in Path("/proc").glob("[0-9]*/cwd") if self._is_here(each)]

    def _is_here(self, link: Path) -> bool:
        try:
            return link.readlink() == self.path
        except OSError:
            return False


@pytest.fixture
def folder(slurm, tmp_path, executable):
    made = Folder(slurm, tmp_path, executable)
    yield made
    made.wait_for_none()


@pytest.mark.parametrize(
    ("options", "arguments", "ranks"),
    [
        (["--nodes=1", "--ntasks=2"], "", 2),
        (["--nodes=1", "--exclusive"], "", 1),
        (["--nodes=1", "--ntasks=1", "--cpus-per-task=2"], "-n 2", 2),
    ],
)
def test_a_batch_job_needs_no_option(folder, options, arguments, ranks):
    folder.write(SHOW)
    code, out = folder.batch(f"{folder.executable} {arguments} -- train.py", *options)
    assert (code, out) == (0, f"ranks {ranks} on n1\n")


def test_a_batch_job_passes_the_exit_code_on(folder):
    folder.write("raise SystemExit(7)")
    code, out = folder.batch(f"exec {folder.executable} -- train.py", "--nodes=1", "--ntasks=2")
    assert code == 7
    assert "exit code 7" in out


def test_a_batch_job_on_several_nodes_needs_no_option(folder):
    folder.write(SHOW_PLACE)
    code, out = folder.batch(f"{folder.executable} --output-on-all-devices -- train.py", "--nodes=2", "--ntasks=2")
    assert code == 0, out
    host = socket.gethostname()
    assert sorted(out.splitlines()) == [f"[0@{host}] n1 0 of 2 in 1,1 True", f"[1@{host}] n2 1 of 2 in 1,1 True"]
    one_task = ["--nodes=2", "--ntasks-per-node=1"]  # which is no limit
    code, out = folder.batch(f"{folder.executable} --n-per-node=2 --log-level=INFO -- train.py", *one_task)
    assert code == 0
    assert "n1 0 of 4 in 2,2 True" in out
    assert "4 ranks on 2 hosts, started by srun --mpi=pmi2, which fits MPICH" in out


def test_the_shell_of_salloc_starts_on_several_nodes(folder):
    folder.write(SHOW_PLACE)
    done = folder.run("salloc", "--quiet", "--nodes=2", "--ntasks=2", folder.executable, "--", "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "n1 0 of 2 in 1,1 True\n", "")


@pytest.mark.parametrize("how", ["--gres=gpu:2", "--gpus-per-node=2"])
def test_the_shell_of_salloc_knows_the_gpus_of_several_nodes(folder, how):
    folder.write(SHOW)
    words = ["salloc", "--quiet", "--nodes=2", "--ntasks=2", how, folder.executable, "--dry-run", "--", "train.py"]
    done = folder.run(*words)
    assert done.returncode == 0, done.stderr
    assert "host n1: ranks 0-1\nhost n2: ranks 2-3\n" in done.stdout


def test_open_mpi_starts_through_srun_by_pmix(folder):
    folder.write(SUMS)
    folder_of_mpi = mpi_folder("openmpi", "Open MPI")
    choice = f"TNT_TRANSPORT=openmpi PATH={folder_of_mpi}/bin:$PATH"
    line = f"{choice} {folder.executable} --log-level=INFO --no-gpu -- train.py"
    code, out = folder.batch(line, "--nodes=2", "--ntasks=2")
    assert code == 0, out
    assert "started by srun --mpi=pmix, which fits Open MPI" in out
    assert "0 2 11.0 n1" in out


@pytest.mark.parametrize(("mpi", "name"), [(None, "MPICH"), ("openmpi", "Open MPI")])
def test_an_mpi_without_a_plugin_starts_by_its_own_mpiexec(folder, tmp_path, mpi, name):
    folder.write(SUMS)
    place = f"{mpi_folder(mpi, name)}/bin:" if mpi else ""
    (tmp_path / "bin").mkdir()
    only_none = '#!/bin/sh\n[ "$1" = --mpi=list ] && { echo none; exit; }\nexec /usr/bin/srun "$@"\n'
    folder.write(only_none, "bin/srun")
    (tmp_path / "bin" / "srun").chmod(0o755)
    choice = f"TNT_TRANSPORT={mpi or ''} PATH={tmp_path}/bin:{place}$PATH"
    line = f"{choice} {folder.executable} --log-level=INFO --no-gpu -- train.py"
    code, out = folder.batch(line, "--nodes=2", "--ntasks=2")
    assert code == 0, out
    assert f"started by mpiexec of {name}" in out
    assert "since srun has no plugin that fits it" in out
    assert "0 2 11.0 n1" in out


def test_a_failure_on_one_node_ends_the_batch_job(folder):
    folder.write("import os, sys, time\nif os.environ['TNT_RANK'] == '1': sys.exit(7)\ntime.sleep(100)")
    code, out = folder.batch(f"exec {folder.executable} -- train.py", "--nodes=2", "--ntasks=2")
    assert (code, out.count("\n")) == (7, 1), out
    assert "rank 1 (pid" in out
    folder.wait_for_none()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_killed_rank_starts_the_ranks_of_the_job_again(folder, nodes):
    folder.write("""
        import os
        import tarantella as tnt
        tnt.Barrier(tnt.Group()).execute()
        print("attempt", tnt.restart_count(), "of", tnt.get_size(), flush=True)
        if tnt.restart_count() < 1 and tnt.get_rank() == 1:
            os.kill(os.getpid(), 9)
        tnt.Barrier(tnt.Group()).execute()
    """)
    line = f"exec {folder.executable} --max-restarts=2 -- train.py"
    code, out = folder.batch(line, f"--nodes={nodes}", f"--ntasks-per-node={2 // nodes}")
    assert code == 0, out
    assert [each for each in out.splitlines() if each.startswith("attempt")] == ["attempt 0 of 2", "attempt 1 of 2"]
    assert out.count("tarantella: restart 1 of 2 in 1 s\n") == 1
    folder.wait_for_none()


@pytest.mark.parametrize("options", [["--batch", "--signal=TERM"], ["--signal=USR1"]])  # to the script; to the steps
def test_signals_reach_the_ranks_of_all_nodes(folder, options):
    folder.write(SAVES)
    job = folder.submit(f"exec {folder.executable} -- train.py", "--nodes=2", "--ntasks=2")
    folder.wait_for("ready0", "ready1")
    folder.run("scancel", *options, job)
    folder.wait_for("saved0", "saved1")
    said = {(folder.path / f"saved{rank}").read_text() for rank in (0, 1)}
    # a rank that has saved and ended may end the other before its own signal comes
    assert f"SIG{options[-1].removeprefix('--signal=')}" in said <= {"SIGTERM", "SIGUSR1"}
    folder.wait_for_none()


@pytest.mark.parametrize("nodes", [1, 2])
def test_python_starts_ranks_on_the_nodes_of_the_job(folder, nodes):
    folder.write("""
        import os
        import tarantella as tnt
        print(tnt.run(lambda: (os.environ["SLURMD_NODENAME"], tnt.get_rank()), n=2))
        try:
            tnt.run(lambda: 1 / (1 - tnt.get_rank()), n=2)
        except ZeroDivisionError as error:
            print(str(error.__cause__).splitlines()[-1].split(" (")[0])
    """)
    done = folder.run("salloc", "--quiet", f"--nodes={nodes}", "--ntasks=2", sys.executable, "train.py")
    found = re.fullmatch(r"\[\('(n\d)', 0\), \('(n\d)', 1\)\]\nrank 1\n", done.stdout)
    assert found, done.stdout + done.stderr
    assert len({found[1], found[2]}) == nodes  # one node may be any: that of the test before may still be completing
    assert list(folder.path.glob(".tarantella-run-*")) == []


def test_the_shell_of_salloc_starts_through_srun(folder):
    folder.write(SHOW)
    done = folder.run("salloc", "--quiet", "--nodes=1", "--ntasks=2", folder.executable, "--", "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ranks 2 on n1\n", "")
    folder.write("raise SystemExit(7)")
    done = folder.run("salloc", "--quiet", "--nodes=1", folder.executable, "--", "train.py")
    assert done.returncode == 7


def test_a_shell_that_srun_has_started_in_a_job_on_several_nodes(folder):
    """As `srun --pty bash`: there Slurm tells the tasks of that shell, but the nodes of the job."""
    folder.write(SHOW_PLACE)
    shell = ("salloc", "--quiet", "--nodes=2", "--ntasks=2", "srun", "--nodes=1", "--ntasks=1", folder.executable)
    done = folder.run(*shell, "--", "train.py")
    assert done.returncode == 2
    assert "the tasks of all 2 hosts of the job; give the number of ranks (-n or --n-per-node)" in done.stderr
    done = folder.run(*shell, "-n", "2", "--", "train.py")
    assert (done.returncode, done.stdout) == (0, "n1 0 of 2 in 1,1 True\n"), done.stderr


def test_srun_starts_ranks_by_itself(folder):
    folder.write("""
        import numpy as np
        import tarantella as tnt
        total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM).execute(np.array([tnt.get_rank() + 1.0]))
        print(tnt.get_rank(), tnt.get_size(), *total)
    """)
    done = folder.run("srun", "--quiet", "--nodes=1", "--ntasks=2", sys.executable, "train.py")
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, ["0 2 3.0", "1 2 3.0"], "")


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 2), (2, 4)])
def test_srun_with_a_rank_that_dies_ends_all(folder, nodes, tasks):
    last = tasks - 1
    folder.write(f"""
        import os, signal
        import tarantella as tnt
        tnt.init()
        if tnt.get_rank() == {last}:
            os.kill(os.getpid(), signal.SIGKILL)
        tnt.Barrier(tnt.Group()).execute()
    """)
    options = [f"--nodes={nodes}", f"--ntasks={tasks}", "--kill-on-bad-exit=0"]
    done = folder.run("srun", *options, sys.executable, "train.py", timeout=30)
    assert done.returncode != 0
    assert f"rank {last} " in done.stderr
    folder.wait_for_none()


ENDS = """
    import os, signal, sys
    import numpy as np
    import tarantella as tnt
    how, bad = sys.argv[1], int(sys.argv[2])
    def end():
        if tnt.get_rank() != bad:
            return
        if how == "raise":
            raise ValueError("the cause")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7) if how == "_exit" else sys.exit(3)
    if how == "early":
        if tnt.get_rank() == bad:
            while not os.path.exists("starts"):
                pass
            end()
        open("starts", "w").close()
    tnt.init()
    sums = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM)
    for step in range(30):
        if step == 20 and how != "late":
            end()
        sums.execute(np.ones(1000, np.float32))
    end()
"""


@pytest.mark.parametrize("kill", [pytest.param(0, marks=pytest.mark.full), 1])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("how", "bad", "code"),
    [
        ("exit", 0, 3),
        ("exit", 1, 3),
        ("_exit", 0, 7),
        ("_exit", 1, 7),
        ("kill", 0, 137),
        ("kill", 1, 137),
        ("raise", 0, 1),
        ("raise", 1, 1),
        ("early", 0, 3),
        ("early", 1, 3),
        ("late", 0, 3),
        ("late", 1, 3),
    ],
)
def test_srun_ends_with_the_code_of_the_rank_that_failed(folder, nodes, kill, how, bad, code):
    folder.write(ENDS)
    options = [f"--nodes={nodes}", "--ntasks=2", f"--kill-on-bad-exit={kill}"]
    folder.slurm.env["TNT_TIMEOUT"] = "5"
    done = folder.run("srun", "--quiet", *options, sys.executable, "train.py", how, bad)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 2), (2, 4)])
def test_srun_with_a_rank_that_is_stuck_ends_after_the_limit(folder, nodes, tasks):
    folder.write("""
        import ctypes
        import tarantella as tnt
        tnt.init()
        if tnt.get_rank() == 1:
            while True:
                ctypes.PyDLL(None).pause()  # with the lock of the interpreter
        tnt.Barrier(tnt.Group()).execute()
    """)
    options = [f"--nodes={nodes}", f"--ntasks={tasks}", "--overcommit", "--kill-on-bad-exit=0"]
    env = ["env", "TNT_STALL_TIMEOUT=1"]
    done = folder.run("srun", "--quiet", *options, *env, sys.executable, "train.py")
    assert done.returncode == 1, done.stderr
    assert "rank 0 waits in barrier: rank 1 did not arrive within" in done.stderr
    assert all(f"tarantella: stacks of rank {rank} (pid" in done.stderr for rank in range(tasks))
    assert "tarantella: rank 1 is terminated because its job has failed" in done.stderr


@pytest.mark.parametrize("nodes", [1, 2])
def test_srun_that_is_cancelled_ends_by_the_signal(folder, nodes):
    folder.write("""
        import signal
        import tarantella as tnt
        tnt.init()
        open(f"ready{tnt.get_rank()}", "w").close()
        signal.pause()
    """)
    step = f"srun --quiet --nodes={nodes} --ntasks=2 {sys.executable} train.py"
    job = folder.submit(f"{step}\necho $? > code.new\nmv code.new code", f"--nodes={nodes}", "--ntasks=2")
    folder.wait_for("ready0", "ready1")
    folder.run("scancel", "--signal=TERM", f"{job}.0")
    folder.wait_for("code")
    assert int((folder.path / "code").read_text()) == 143


@pytest.mark.parametrize("plugin", ["none", "pmi2"])
def test_srun_starts_ranks_on_several_nodes(folder, plugin):
    folder.write("""
        import os
        import numpy as np
        import tarantella as tnt
        total = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM).execute(np.array([10.0 ** tnt.get_rank()]))
        print(tnt.get_rank(), tnt.get_local_rank(), tnt.get_size(), *total, os.environ["SLURMD_NODENAME"])
    """)
    tasks = ["--ntasks=3", "--distribution=block"]  # two, and one
    done = folder.run("srun", "--quiet", "--nodes=2", *tasks, f"--mpi={plugin}", sys.executable, "train.py")
    met = ["0 0 3 111.0 n1", "1 1 3 111.0 n1", "2 0 3 111.0 n2"]
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, met, "")


def test_srun_that_numbers_tasks_in_turn_is_refused_in_one_line_a_machine(folder):
    folder.write("import tarantella\ntarantella.init()\nopen('ran', 'w')")
    tasks = ["--ntasks=4", "--distribution=cyclic"]
    done = folder.run("srun", "--nodes=2", *tasks, sys.executable, "train.py")
    said = [line for line in done.stderr.splitlines() if line.startswith("tarantella")]
    assert done.returncode != 0
    assert 1 <= len(said) <= 2
    assert "srun has not numbered the ranks machine by machine" in said[0]
    assert "use srun --distribution=block, or start them with tarantella" in said[0]
    assert not (folder.path / "ran").exists()


def test_srun_of_several_launchers_is_refused_in_one_line(folder):
    folder.write("open('ran', 'w')")
    done = folder.run("srun", "--nodes=1", "--ntasks=2", folder.executable, "--", "train.py")
    said = [line for line in done.stderr.splitlines() if line.startswith("tarantella")]
    assert done.returncode == 2
    assert len(said) == 1
    assert "srun has started tarantella 2 times" in said[0]
    assert not (folder.path / "ran").exists()


@pytest.mark.parametrize(("nodes", "options"), [(1, ["--full", "--signal=TERM"]), (1, []), (2, [])])
def test_scancel_lets_ranks_save_and_leaves_nothing(folder, nodes, options):
    folder.write(SAVES)
    job = folder.submit(f"exec {folder.executable} -- train.py", f"--nodes={nodes}", "--ntasks=2")
    folder.wait_for("ready0", "ready1")
    folder.run("scancel", *options, job)
    folder.wait_for("saved0", "saved1")
    assert (folder.path / "saved1").read_text() == "SIGTERM"
    folder.wait_for_none()


@pytest.mark.full
def test_a_signal_before_the_time_limit_reaches_every_rank(folder):
    folder.write(SAVES)
    options = ["--nodes=1", "--ntasks=2", "--time=1", "--signal=B:USR1@60"]
    folder.submit(f"exec {folder.executable} -- train.py", *options)
    folder.wait_for("saved0", "saved1", seconds=100)
    assert (folder.path / "saved0").read_text() == "SIGUSR1"
    folder.wait_for_none()


@pytest.mark.parametrize(("nodes", "argument"), [(1, ""), (2, "goes-on")])
@pytest.mark.full
def test_the_time_limit_lets_ranks_save_and_leaves_nothing(folder, nodes, argument):
    folder.write(SAVES)
    options = [f"--nodes={nodes}", "--ntasks=2", "--time=10"]
    job = folder.submit(f"exec {folder.executable} -- train.py {argument}", *options)
    folder.wait_for("ready0", "ready1")
    end = "EndTime=now+2seconds"  # a limit in minutes would last longer; the past is refused
    assert folder.run("scontrol", "update", f"JobId={job}", end).returncode == 0
    folder.wait_for("saved0", "saved1", seconds=100)
    assert [(folder.path / f"saved{rank}").read_text() for rank in range(2)] == ["SIGTERM"] * 2
    folder.wait_for_none()
