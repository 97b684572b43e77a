"""Starts the processes of a row, and tells how much of the CPU others used meanwhile, and how much memory a row has."""

from __future__ import annotations

import functools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
BEGAN = "BENCH_BEGAN"  # time.monotonic(), which all processes of a machine share
LEAN = Path(__file__).resolve().with_name("lean")  # a folder for PYTHONPATH
SECONDS = 300.0  # that a row may take


def launcher_program() -> str:
    return os.environ.get("TARANTELLA_EXECUTABLE", str(Path(sys.executable).with_name("tarantella")))


def launcher(ranks: int, *options: str) -> list[str]:
    """Returns the command that starts a script on `ranks` ranks."""
    return [launcher_program(), "-n", str(ranks), "--no-gpu", *options, "--"]


class Command(NamedTuple):
    """Words, the cores that the process may use (None: as this one), and what its environment has more than ours."""

    words: list[str]
    cores: set[int] | None = None
    environment: dict[str, str] | None = None


class Done(NamedTuple):
    """The JSON files that the processes wrote, and the bytes of all of them if they were weighed, else 0."""

    outputs: list[Any]
    memory: int


def run(commands: list[Command], what: str, weigh: int = 0, seconds: float = SECONDS) -> Done:
    """Runs processes side by side, with the option --output=FOLDER, and the time of their start in the variable BEGAN.

    With `weigh`, adds up their memory once so many files named ready.* are in the folder, and then makes the file `go`.
    Ends the program, with the processes' output, if one fails or `seconds` are over.
    """
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = folder / "log"
        with log.open("w") as out:
            processes = [_start(command, folder, out) for command in commands]
        try:
            memory = _weigh(processes, folder, weigh, deadline) if weigh else 0
            _wait(processes, deadline)
        except BenchError as error:
            raise SystemExit(f"{what} {error}:\n{log.read_text(errors='replace')[-4000:]}") from None
        finally:
            _end(processes)
        return Done([json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))], memory)


class BenchError(Exception):
    """Raised if a process fails or takes too long."""


def _start(command: Command, folder: Path, out: Any) -> subprocess.Popen[bytes]:
    bind = functools.partial(os.sched_setaffinity, 0, command.cores) if command.cores else None
    path = os.pathsep.join(filter(None, [str(LEAN), os.environ.get("PYTHONPATH")]))
    ours = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, BEGAN: str(time.monotonic())}
    environment = {**ours, **(command.environment or {})}
    # The process must be bound before TensorFlow makes its threads, and the launcher before it deals out cores.
    words = [*command.words, f"--output={folder}"]
    return subprocess.Popen(words, env=environment, stdout=out, stderr=out, preexec_fn=bind)


def _wait(processes: list[subprocess.Popen[bytes]], deadline: float) -> None:
    """Sleeps until all have ended: polling would take a core from what is measured."""
    poll, running = select.poll(), {}
    for process in processes:
        if process.returncode is None:
            running[os.pidfd_open(process.pid)] = process
    try:
        for descriptor in running:
            poll.register(descriptor, select.POLLIN)
        while running:
            ready = poll.poll(max(0.0, 1e3 * (deadline - time.monotonic())))
            if not ready:
                raise BenchError("did not end in time")
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                os.close(descriptor)
                if running.pop(descriptor).wait():
                    raise BenchError("failed")
    finally:
        for descriptor in running:
            os.close(descriptor)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _weigh(processes: list[subprocess.Popen[bytes]], folder: Path, ready: int, deadline: float) -> int:
    while len(list(folder.glob("ready.*"))) < ready:
        if time.monotonic() > deadline:
            raise BenchError("did not come to its last step in time")
        if any(process.poll() is not None for process in processes):
            raise BenchError("ended before it was weighed")
        time.sleep(0.1)
    total = sum(pss(pid) for pid in family(process.pid for process in processes))
    (folder / "go").touch()
    return total


def family(pids: Iterable[int]) -> set[int]:
    """Returns these processes and all that they and their children started."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(file.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        children.setdefault(parent, []).append(int(file.parent.name))
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, [])
    return found


def pss(pid: int) -> int:
    """Returns the bytes of a process, with its part of what it shares with others; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Usage(NamedTuple):
    """Seconds: CPU time on these cores, CPU time of this process and of its children that have ended, and the time."""

    busy: float
    ours: float
    now: float


def busy_seconds(stat: str, cores: set[int]) -> float:
    """Returns the seconds that `cores` were not idle, steal included, from the text of /proc/stat."""
    ticks = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, *others = map(int, fields[:8])
            ticks += user + nice + system + sum(others)
    return ticks / os.sysconf("SC_CLK_TCK")


def usage(cores: set[int]) -> Usage:
    stat = Path("/proc/stat").read_text(encoding="utf-8")
    return Usage(busy_seconds(stat, cores), sum(os.times()[:4]), time.monotonic())


def strangers(before: Usage, after: Usage, cores: int) -> float:
    """Returns the part of all cores' time that neither this process nor its children used."""
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return max(0.0, others) / ((after.now - before.now) * cores)
