"""Jobs over ssh itself, where only its configuration knows a host's user, port, key and jump host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import give_up, mpi_folder

pytestmark = pytest.mark.timeout(120)

USER, PORT = "alice", 2222
SERVER = """
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
SetEnv {mark}
"""
CLIENT = """
Host node2 node3
  User {user}
  Port {port}
  IdentityFile {folder}/user_key
  UserKnownHostsFile {folder}/known_hosts
Host node2
  ProxyJump node3
"""
SUM = """
    import os
    import numpy as np
    import tarantella as tnt
    tnt.init()
    print(os.uname().nodename, *tnt.TensorAllreducer(np.ones(2)).allreduce(np.ones(2)))
"""


class Servers:
    """From node1, ssh reaches node2 only over node3. Both have a user that node1 lacks, with the rights of root."""

    def __init__(self, hosts) -> None:
        self.hosts = hosts
        self.running: list[subprocess.Popen] = []
        for key in ("host_key", "user_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hosts.folder / key]
            subprocess.run(words, check=True, capture_output=True, timeout=20)
        key = (hosts.folder / "host_key.pub").read_text()
        self.known = hosts.folder / "known_hosts"
        self.known.write_text("".join(f"[{name}]:{PORT} {key}" for name in ("node2", "node3")))
        client = CLIENT.format(folder=hosts.folder, user=USER, port=PORT)
        for name in ("node1", "node3"):
            (hosts.etc(name) / "ssh").mkdir()
            (hosts.etc(name) / "ssh" / "ssh_config").write_text(client)
        for name in ("node2", "node3"):
            users = Path("/etc/passwd").read_text() + f"{USER}:x:0:0::/root:/bin/sh\n"
            (hosts.etc(name) / "passwd").write_text(users)
        self.start("node3", origin="node1")

    def start(self, host: str, origin: str, more: str = "") -> None:
        """Starts the server of a host that hears only the host `origin`. `more`: lines of its configuration."""
        folder = self.hosts.folder
        text = SERVER.format(folder=folder, port=PORT, mark=self.hosts.mark)
        text += f"AllowUsers {USER}@{self.hosts.address(origin)}\n{more}"
        (folder / f"sshd-{host}").write_text(text)
        log = folder / f"sshd-{host}.log"
        words = [shutil.which("sshd"), "-D", "-f", folder / f"sshd-{host}", "-E", log]
        alone = ("--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")  # its end is that of the host
        self.running.append(subprocess.Popen(self.hosts.on(host, *words, separate=alone)))
        deadline = time.monotonic() + 10
        while "listening" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def end(self) -> None:
        for server in self.running:
            server.kill()
            server.wait()
        for name in self.hosts.names:
            shutil.rmtree(self.hosts.etc(name) / "ssh", ignore_errors=True)
            (self.hosts.etc(name) / "passwd").unlink(missing_ok=True)


@pytest.fixture
def servers(hosts) -> Iterator[Servers]:
    if shutil.which("sshd") is None or shutil.which("ssh") is None:
        give_up("ssh", "sshd or ssh is missing (tools/setup.sh --dev installs them for root)")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    made = Servers(hosts)
    yield made
    made.end()


def run(hosts, executable, **environment: str):
    everything = {"HYDRA_LAUNCHER_EXEC": None, **environment}
    return hosts.run(executable, hosts.hostfile(2, 1), "--output-on-all-devices", "--", "train.py", env=everything)


@pytest.mark.parametrize("mpi", ["MPICH", "Open MPI"])
def test_a_job_over_ssh(hosts, servers, executable, mpi):
    hosts.script(SUM)
    servers.start("node2", origin="node3")
    environment = {}
    if mpi == "Open MPI":
        folder = mpi_folder("openmpi", "Open MPI")
        environment = {"TNT_TRANSPORT": "openmpi", "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    job = run(hosts, executable, **environment)
    assert (job.code, job.complaints) == (0, "")
    assert sorted(job.out.splitlines()) == [f"[{rank}@node{rank + 1}] node{rank + 1} 2.0 2.0" for rank in range(2)]
    hosts.wait_for_none()


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["start", "dry run"])
def test_a_host_without_an_address(hosts, servers, executable, options):
    hosts.script("open('ran', 'w')")
    file = hosts.folder / "hostfile"
    file.write_text("node1\nnode9.invalid\n")
    words = [*options, "--hostfile", file, "--", "train.py"]
    job = hosts.run(executable, *words, env={"HYDRA_LAUNCHER_EXEC": None})
    assert job.code != 0
    assert "node9.invalid" in job.err
    # mpiexec may end before it has passed on what ssh said
    assert re.search("resolve|try ssh to (each of these|this) host", job.err), job.err
    assert job.err.count("\n") == 1, job.err
    assert job.seconds < 15
    assert not (hosts.folder / "ran").exists()
    hosts.wait_for_none()


@pytest.mark.parametrize("asks_for", ["password", "a host key to be confirmed"])
def test_a_host_that_asks_the_user(hosts, servers, executable, asks_for):
    """Nobody may be there to answer: one line, in time, and no question."""
    hosts.script("")
    ask = hosts.script("#!/bin/sh\ntouch asked\nsleep 60\n", "ask")
    ask.chmod(0o755)
    if asks_for == "password":
        servers.start("node2", origin="node3", more="AuthenticationMethods password\n")
        part = f"{USER}@node2: Permission denied (password)"
    else:
        servers.start("node2", origin="node3")
        servers.known.write_text(servers.known.read_text().splitlines()[1] + "\n")
        part = "Host key verification failed"
    job = run(hosts, executable, SSH_ASKPASS=str(ask), SSH_ASKPASS_REQUIRE="force")
    assert job.code != 0
    assert part in job.err, job.err
    assert job.err.count("\n") == 1, job.err
    assert job.seconds < 15
    assert not (hosts.folder / "asked").exists()
    hosts.wait_for_none()
