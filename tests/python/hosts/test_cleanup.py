"""tarantella --cleanup on each host of a job whose launchers and guards were all killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

CHILD = "sleep 1000"
LAUNCHERS = ("tarantella", "tnt-guard")


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # gone


def running(hosts, words: str, host: str | None = None) -> list[int]:
    """Processes whose command ends with these words."""
    found = []
    for pid in hosts.processes(host):
        with contextlib.suppress(OSError):  # gone
            if Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ").strip().endswith(words):
                found.append(pid)
    return found


def test_each_host_ends_what_was_left_on_it(hosts, executable):
    hosts.script("""
        import ctypes, os, subprocess, time
        ctypes.CDLL(None).prctl(1, 0)  # outlives the launcher
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        open("up" + os.environ["TNT_RANK"], "w").close()
        time.sleep(1000)
    """)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = hosts.start(executable, hosts.hostfile(2, 1), "--", "train.py", **quiet)
    hosts.wait_for_files("up0", "up1")
    launchers = [pid for pid in hosts.processes() if name_of(pid) in LAUNCHERS]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all at once: none may end the ranks because of another
        for pid in launchers:
            with contextlib.suppress(ProcessLookupError):  # mpiexec ends its own, too
                os.kill(pid, number)
    job.process.wait(30)

    def left() -> dict[str, list[int]]:
        return {host: running(hosts, "train.py", host) + running(hosts, CHILD, host) for host in ("node1", "node2")}

    deadline = time.monotonic() + 20
    both = left()
    while [len(pids) for pids in both.values()] != [2, 2]:  # mpiexec may still be about to end
        assert time.monotonic() < deadline, both
        time.sleep(0.05)
        both = left()
    there = ["nsenter", f"--target={both['node2'][0]}", "--pid", "--mount", "--uts", "--ipc", "--net"]
    done = hosts.run(*there, executable, "--cleanup", "--force")
    assert (done.code, done.out.splitlines()[-1], done.err) == (0, "ended 2 processes", "")
    assert left() == {"node1": both["node1"], "node2": []}
    done = hosts.run(executable, "--cleanup", "--force")
    assert (done.code, done.out.splitlines()[-1], done.err) == (0, "ended 2 processes", "")
    hosts.wait_for_none()
