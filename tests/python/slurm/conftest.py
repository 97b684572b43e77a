"""A real Slurm on this machine: munge, a controller and two node daemons, n1 and n2, of one core and two GPUs each.

Slurm does not look for the GPUs: two files of the machine stand for them.

The names of the nodes are known to what runs on them, as on a cluster, and PMIx has a folder on each.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import give_up

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "unshare")
ON_NODE = 'mount --bind "$0" /etc/hosts && mount -t tmpfs pmix "$1" && shift && exec "$@"'
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=20
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmctldPort={ports[0]}
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=1000 Gres=gpu:2
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=120 State=UP OverSubscribe=YES
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm:
    """The daemons, as children of this process, and commands that talk to them."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "state").mkdir()
        ours = ("SLURM", "TNT_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.env.update(SLURM_CONF=str(folder / "slurm.conf"), XDG_RUNTIME_DIR=str(folder))
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(host=host, folder=folder, ports=free_ports(3))
        (folder / "slurm.conf").write_text(text)
        (folder / "pmix").mkdir()
        (folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder}/pmix\n")
        (folder / "gres.conf").write_text("NodeName=n1,n2 Name=gpu File=/dev/null,/dev/zero\n")
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        names = ("socket", "pid", "log", "seed")
        files = {name: str(folder / f"munge.{name}") for name in names}
        munge = ["--foreground", "--force", f"--key-file={key}", f"--socket={files['socket']}"]
        munge += [f"--pid-file={files['pid']}", f"--log-file={files['log']}", f"--seed-file={files['seed']}"]
        self.daemons = [self._start("munged", *munge)]
        self._wait(lambda: Path(files["socket"]).exists(), "munged")
        self.daemons.append(self._start("slurmctld", "-D"))
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + "\n127.0.0.1 n1 n2\n")
        on_node = ("unshare", "--mount", "sh", "-c", ON_NODE, str(folder / "hosts"), str(folder / "pmix"))
        self.daemons += [self._start(*on_node, "slurmd", "-D", "-N", node) for node in ("n1", "n2")]
        self._wait(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T").stdout, "slurmctld and slurmd")

    def _start(self, *command: str) -> subprocess.Popen:
        log = (self.folder / f"{command[0]}.out").open("a")
        return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _wait(self, is_ready, what: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline or any(each.poll() is not None for each in self.daemons):
                self.stop()
                pytest.fail(f"{what} did not start: {self.folder}")
            time.sleep(0.1)

    @staticmethod
    def wait_until(holds: Callable[[], object], what: Callable[[], object], seconds: float = 60) -> None:
        """Blocks until the condition holds; the test fails with `what()` if it does not in this time."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"{what()}")
            time.sleep(0.05)

    def run(self, *command: object, folder: Path | None = None, timeout: float = 60) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(word) for word in command],
            env=self.env,
            cwd=folder or self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--user=root", timeout=10)
            deadline = time.monotonic() + 30
            while self.run("squeue", "-h", timeout=10).stdout and time.monotonic() < deadline:
                time.sleep(0.2)  # what watches the ranks of a job never ends without the daemons
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    """Skips where Slurm is not installed or this user may not start it; with TARANTELLA_NEEDS=slurm it fails there."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if os.geteuid() != 0:
        missing.append("root, who starts the daemons")
    if missing:
        give_up("slurm", f"Slurm needs {', '.join(missing)} (tools/setup.sh --dev installs it)")
    os.environ["PATH"] += ":/usr/sbin"
    started = Slurm(tmp_path_factory.mktemp("slurm"))
    yield started
    started.stop()
