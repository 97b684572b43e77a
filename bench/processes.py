"""Starts, suspends and weighs the processes of a row, and tells how much of the CPU others used meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1"}
BEGAN = "BENCH_BEGAN"  # time.monotonic(), which all processes of a machine share
LEAN = Path(__file__).resolve().with_name("lean")  # a folder for PYTHONPATH
SECONDS = 300.0  # that a wait for a row may take
_PR_SET_PDEATHSIG = 1


def launcher_program() -> str:
    return os.environ.get("TARANTELLA_EXECUTABLE", str(Path(sys.executable).with_name("tarantella")))


def launcher(ranks: int, *options: str) -> list[str]:
    """Returns the command that starts a script on `ranks` ranks."""
    return [launcher_program(), "-n", str(ranks), "--no-gpu", *options, "--"]


class Command(NamedTuple):
    """Words, the cores that the process may use (None: as this one), what its environment has more, its folder."""

    words: list[str]
    cores: set[int] | None = None
    environment: dict[str, str] | None = None
    folder: Path | None = None


class Done(NamedTuple):
    """The JSON files that the processes wrote, and the bytes of all of them if they were weighed, else 0."""

    outputs: list[Any]
    memory: int


class Job:
    """The processes of a row, side by side, with a folder of their own. A context manager that ends them.

    Methods end the program, with the processes' output, if one of them fails or takes too long.
    """

    def __init__(self, what: str, seconds: float = SECONDS) -> None:
        """`what` names the row in messages; `seconds` is how long a wait may take."""
        self.folder, self.seconds, self.processes = Path(), seconds, list[subprocess.Popen[bytes]]()
        self._what, self._stopped = what, set[int]()
        self._temporary = tempfile.TemporaryDirectory()

    def __enter__(self) -> Job:
        self.folder = Path(self._temporary.__enter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.resume()
        _end(self.processes)
        self._temporary.__exit__(None, None, None)

    def start(self, commands: list[Command], output: bool = True) -> None:
        """Adds the option --output=FOLDER to each, with `output`, and the time of their start in the variable BEGAN."""
        option = [f"--output={self.folder}"] if output else []
        with self._log.open("w") as out:
            self.processes += [_start(command, option, out, self.folder) for command in commands]

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def fail(self, why: str) -> NoReturn:
        raise SystemExit(f"{self._what} {why}:\n{self._log.read_text(errors='replace')[-4000:]}")

    def check(self) -> None:
        """Fails if a process has ended, for whoever waits for all of them."""
        if any(process.poll() is not None for process in self.processes):
            self.fail("ended too early")

    def wait(self) -> None:
        """Sleeps until all have ended."""
        if not self.ends_within(self.seconds):
            self.fail("did not end in time")

    def ends_within(self, seconds: float) -> bool:
        """Sleeps until all have ended, but no longer: polling would take a core from what is measured."""
        poll, running = select.poll(), {}
        deadline = time.monotonic() + seconds
        for process in self.processes:
            if process.returncode is None:
                running[os.pidfd_open(process.pid)] = process
        try:
            for descriptor in running:
                poll.register(descriptor, select.POLLIN)
            while running:
                ready = poll.poll(max(0.0, 1e3 * (deadline - time.monotonic())))
                if not ready:
                    return False
                for descriptor, _ in ready:
                    poll.unregister(descriptor)
                    os.close(descriptor)
                    if running.pop(descriptor).wait():
                        self.fail("failed")
            return True
        finally:
            for descriptor in running:
                os.close(descriptor)

    def suspend(self) -> None:
        """Stops all processes and all that they started, so that no thread of them takes a core."""
        while (found := family(process.pid for process in self.processes)) != self._stopped:  # it may grow meanwhile
            self._stopped = found
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._stopped = set()

    def _signal(self, number: int) -> None:
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def weigh(self, ready: int) -> int:
        """Adds up the memory of all once so many files named ready.* are in the folder, then makes the file `go`."""
        deadline = time.monotonic() + self.seconds
        while len(list(self.folder.glob("ready.*"))) < ready:
            if time.monotonic() > deadline:
                self.fail("did not come to its last step in time")
            self.check()
            time.sleep(0.1)
        total = sum(pss(pid) for pid in family(process.pid for process in self.processes))
        (self.folder / "go").touch()
        return total

    def outputs(self) -> list[Any]:
        return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(self.folder.glob("*.json"))]


def run(commands: list[Command], what: str, weigh: int = 0, seconds: float = SECONDS) -> Done:
    """Runs processes side by side until all have ended, and weighs them if `weigh` of them are to wait for that."""
    with Job(what, seconds) as job:
        job.start(commands)
        memory = job.weigh(weigh) if weigh else 0
        job.wait()
        return Done(job.outputs(), memory)


def _start(command: Command, more: list[str], out: Any, temporary: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(LEAN), os.environ.get("PYTHONPATH")]))
    ours = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, BEGAN: str(time.monotonic())}
    # autograph removes its files at the end of Python, which not every process reaches
    environment = {**ours, "TMPDIR": str(temporary), **(command.environment or {})}
    # The process must be bound before TensorFlow makes its threads, and the launcher before it deals out cores.
    return subprocess.Popen(
        [*command.words, *more],
        cwd=command.folder,
        env=environment,
        stdout=out,
        stderr=out,
        preexec_fn=functools.partial(_prepare, command.cores),
    )


def _prepare(cores: set[int] | None) -> None:
    """In the new process: it ends when this one does, also while it is stopped."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if cores:
        os.sched_setaffinity(0, cores)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def exit_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end the program in order, so that no suspended process is left."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("terminated"))


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
