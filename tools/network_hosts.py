"""Several hosts on this machine: network namespaces joined by a switch, each with its own name and processes.

A remote shell is `ip netns exec`, which MPICH's mpiexec calls in place of ssh (HYDRA_LAUNCHER_EXEC).
For tests/python and bench/.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("ip", "unshare", "sysctl", "tc")
SHELL = """#!/bin/sh
# ssh's options, a host, and a command for a shell there
while [ "${{1#-}}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done
host=$1; shift
[ -e {folder}/down-$host ] && {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}
[ -e {folder}/silent-$host ] && exec sleep 60
clock=$(cat {folder}/clock-$host 2>/dev/null)
set -- "$*" --uts --ipc ${{clock:+--time --monotonic "$clock"}}
command=$1; shift
# As with ssh, what runs there does not end with the shell here, which Open MPI's mpiexec kills where it loses a host.
setsid env --default-signal=INT,QUIT \\
  ip netns exec {prefix}-$host unshare "$@" --pid --fork --kill-child --mount-proc -- sh -c "hostname $host
  [ ! -e {folder}/mounts ] || . {folder}/mounts
  $command
  code=\\$?
  set -- /proc/[0-9]*
  while [ \\$# -gt 1 ]; do sleep 0.02; set -- /proc/[0-9]*; done  # a host outlives the shell
  exit \\$code" <&0 &
echo $! > {folder}/shell-$host
wait $!
"""


def processes_with(mark: str) -> list[int]:
    """Living processes that have `mark` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # gone
    return found


def missing() -> list[str]:
    """What hosts need and this machine lacks."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    found = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0:
        found.append("root, who makes network namespaces")
    return found


class Job:
    """A command that runs on a host, and what it said."""

    def __init__(self, process: subprocess.Popen):
        self.process = process
        self.started = time.monotonic()

    def wait(self, timeout: float = 60) -> Job:
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.seconds = time.monotonic() - self.started
        self.code, self.out, self.err = self.process.returncode, (out or b"").decode(), (err or b"").decode()
        return self

    @property
    def complaints(self) -> str:
        """stderr without the lines that a busy machine adds: hosts that take some time to start."""
        return "".join(line for line in self.err.splitlines(keepends=True) if "still waiting for hosts" not in line)


class Hosts:
    """The hosts node1, node2, … Commands run on node1 unless another is named."""

    def __init__(self, count: int = 4) -> None:
        self.prefix = f"tnt{os.getpid()}-{count}"
        self.names = [f"node{number}" for number in range(1, count + 1)]
        self.folder = Path()
        self.mark = ""
        self.is_limited = False
        self.dead_networks: list[tuple[str, str]] = []
        switch = f"{self.prefix}-switch"
        self._ip("netns", "add", switch)
        self._ip("-n", switch, "link", "add", "name", "bridge0", "type", "bridge")
        self._ip("-n", switch, "link", "set", "bridge0", "up")
        table = "127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.names)
        for name in self.names:
            space = f"{self.prefix}-{name}"
            self.etc(name).mkdir(parents=True)
            (self.etc(name) / "hosts").write_text(table)
            self._ip("netns", "add", space)
            self._ip("-n", switch, "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space)
            self._ip("-n", switch, "link", "set", name, "master", "bridge0", "up")
            self._ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._ip("-n", space, "link", "set", device, "up")
            # BBR, which some machines have, paces what it sends: transfers take once or twice as long, by connection.
            words = ["ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"]
            subprocess.run(words, capture_output=True, check=False)  # a container may not let us

    @staticmethod
    def _run(*words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout

    def _ip(self, *words: str) -> None:
        self._run("ip", *words)

    def address(self, name: str) -> str:
        return f"10.231.0.{10 + self.names.index(name)}"

    def etc(self, name: str) -> Path:
        """What lies here, hides what has its name in /etc from programs that are started on the host."""
        return Path("/etc/netns") / f"{self.prefix}-{name}"

    @contextlib.contextmanager
    def names_in_etc(self, *lines: str) -> Iterator[None]:
        """All hosts find these lines first in /etc/hosts."""
        tables = {path: path.read_text() for path in (self.etc(name) / "hosts" for name in self.names)}
        try:
            for path, table in tables.items():
                path.write_text("\n".join([*lines, table]))
            yield
        finally:
            for path, table in tables.items():
                path.write_text(table)

    def remove(self) -> None:
        for name in [*self.names, "switch"]:
            subprocess.run(["ip", "netns", "delete", f"{self.prefix}-{name}"], capture_output=True, check=False)
            shutil.rmtree(self.etc(name), ignore_errors=True)

    def use(self, folder: Path) -> None:
        """Works in this folder from now on."""
        self.folder = folder
        self.mark = f"TEST_MARK={uuid.uuid4().hex}"
        shell = folder / "shell"
        shell.write_text(SHELL.format(folder=folder, prefix=self.prefix))
        shell.chmod(0o755)

    def set_clock(self, host: str, seconds: int) -> int:
        """What is started on another host from now on has a monotonic clock that is so far ahead of the machine's.
        Returns how far it is: 0 if the kernel has no namespaces of time."""
        words = ["unshare", "--time", "--monotonic", str(seconds), "--fork", "true"]
        if subprocess.run(words, capture_output=True, check=False, timeout=20).returncode != 0:
            return 0
        (self.folder / f"clock-{host}").write_text(str(seconds))
        return seconds

    def mount(self, *words: object) -> None:
        """What is started on another host from now on sees this mount."""
        with (self.folder / "mounts").open("a") as mounts:
            mounts.write(shlex.join(["mount", *map(str, words)]) + "\n")

    def script(self, source: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def hostfile(self, hosts: int, slots: int) -> str:
        (self.folder / "hosts").write_text("".join(f"{name} slots={slots}\n" for name in self.names[:hosts]))
        return "--hostfile=hosts"

    def environment(self) -> dict[str, str]:
        theirs = ("TNT_", "SLURM", "PBS_", "LSB_", "PMI", "OMPI_", "HYDRA")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
        clean |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        clean |= {"HYDRA_LAUNCHER_EXEC": str(self.folder / "shell"), "XDG_RUNTIME_DIR": str(self.folder)}
        clean["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return clean | dict([self.mark.split("=")])

    def start(self, *command: object, host: str = "node1", env: dict[str, str | None] | None = None, **streams) -> Job:
        """`env`: variables beside environment(); None removes one."""
        words = self.on(host, *command)
        environment = self.environment() | (env or {})
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        # a process group of its own, as a shell gives it: in one that nobody can resume, the stop key does nothing
        options["preexec_fn"] = os.setpgrp
        given = {name: value for name, value in environment.items() if value is not None}
        return Job(subprocess.Popen(words, cwd=self.folder, env=given, **options))

    def on(self, host: str, *command: object, separate: tuple[str, ...] = ("--uts", "--ipc")) -> list[str]:
        """The words that run a command on a host."""
        rename = ["unshare", *separate, "--", "sh", "-c", 'hostname "$0"; exec "$@"', host]
        return ["ip", "netns", "exec", f"{self.prefix}-{host}", *rename, *map(str, command)]

    def run(self, *command: object, timeout: float = 60, **options) -> Job:
        return self.start(*command, **options).wait(timeout)

    def kill(self, host: str) -> None:
        """Ends all processes of a host that a remote shell has started, at once."""
        os.kill(int((self.folder / f"shell-{host}").read_text()), signal.SIGKILL)

    def cut(self, host: str) -> None:
        """Takes the host from the network."""
        self._ip("-n", f"{self.prefix}-switch", "link", "set", host, "down")

    def add_dead_network(self, device: str, addresses: list[str]) -> None:
        """A device of this name on the first hosts, with these addresses: up, with carrier, and connected to nothing,
        as the bridge of a container engine is."""
        for host, address in zip(self.names, addresses, strict=False):
            space = f"{self.prefix}-{host}"
            self._ip("-n", space, "link", "add", device, "type", "veth", "peer", "name", f"{device}-peer")
            self._ip("-n", space, "address", "add", address, "dev", device)
            for each in (device, f"{device}-peer"):
                self._ip("-n", space, "link", "set", each, "up")
            self.dead_networks.append((space, device))

    def add_address(self, host: str, address: str) -> None:
        """One of IPv6, which is usable at once."""
        self._ip("-n", f"{self.prefix}-{host}", "address", "add", address, "dev", "eth0", "nodad")

    def remove_address(self, host: str, address: str) -> None:
        self._ip("-n", f"{self.prefix}-{host}", "address", "delete", address, "dev", "eth0")

    def limit(self, rate: str) -> None:
        """No host sends more than this from now on, such as 100mbit or 1gbit."""
        for host in self.names:
            rule = ["qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            self._run("tc", "-n", f"{self.prefix}-{host}", *rule)
        self._receive_in_order(True)
        self.is_limited = True

    def _receive_in_order(self, enabled: bool) -> None:
        """One CPU takes what a device gets of a connection. A link with a limit sends from several: those of both ends,
        and that of its timer. Each would also take what it has sent, and packets would overtake each other, as on no
        cable; TCP takes such packets as lost, and sends less."""
        cpus = f"{(1 << min(os.cpu_count() or 1, 32)) - 1 if enabled else 0:x}"
        switch = [(f"{self.prefix}-switch", name) for name in self.names]
        for space, device in [*switch, *((f"{self.prefix}-{name}", "eth0") for name in self.names)]:
            file = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
            self._run("ip", "netns", "exec", space, "sh", "-c", f"echo {cpus} > {file}")

    def times_limited(self) -> int:
        """How often limit() has held back what a host sent."""
        said = [
            self._run("tc", "-n", f"{self.prefix}-{host}", "-s", "qdisc", "show", "dev", "eth0") for host in self.names
        ]
        return sum(int(count) for text in said for count in re.findall(r"overlimits (\d+)", text))

    def mend(self) -> None:
        """Undoes cut(), limit() and add_dead_network()."""
        for space, device in self.dead_networks:
            self._ip("-n", space, "link", "delete", device)
        self.dead_networks.clear()
        for host in self.names:
            self._ip("-n", f"{self.prefix}-switch", "link", "set", host, "up")
            self._ip("-n", f"{self.prefix}-{host}", "neighbour", "flush", "all")
            if self.is_limited:
                self._run("tc", "-n", f"{self.prefix}-{host}", "qdisc", "delete", "dev", "eth0", "root")
        if self.is_limited:
            self._receive_in_order(False)
        self.is_limited = False

    def listening(self, host: str, program: str) -> list[int]:
        """The TCP ports on which processes of this name listen on a host."""
        said = self._run("ip", "netns", "exec", f"{self.prefix}-{host}", "ss", "-ltnp")
        return [int(port) for port in re.findall(rf':(\d+)\s+\S+\s+users:\(\("{program}"', said)]

    def end_all(self) -> list[int]:
        """Ends the processes that a job has left, and returns which these were."""
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def processes(self, host: str | None = None) -> list[int]:
        """Those of the test, on one host or on all."""
        found = processes_with(self.mark)
        if host is None:
            return found
        network = os.stat(f"/run/netns/{self.prefix}-{host}").st_ino
        return [pid for pid in found if self._network_of(pid) == network]

    @staticmethod
    def _network_of(pid: int) -> int | None:
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino
        except OSError:
            return None  # gone

    def wait_for_none(self, seconds: float = 15) -> None:
        """No process of the test is left on any host."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in self.processes()]
        assert left == []

    def wait_for_files(self, *names: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while missing := [name for name in names if not (self.folder / name).exists()]:
            assert time.monotonic() < deadline, f"never written: {missing}"
            time.sleep(0.01)
