"""Runs the built `tarantella` executable on tiny scripts; neither TensorFlow nor the package is needed."""

from __future__ import annotations

import fcntl
import functools
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
import uuid
from pathlib import Path

import pytest
from crowding import without_crowding
from network_hosts import processes_with

SCRIPTS = Path(__file__).parent / "scripts"
BATCH = ("SLURM", "PBS_", "LSB_")  # the hosts of a batch job in which these tests may run
OURS = (
    "TNT_",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
    "TF_CPP_MIN_LOG_LEVEL",
    *BATCH,
)


class Launcher:
    """The executable, a folder for scripts, and a mark by which every process of this test is found."""

    def __init__(self, executable: str, folder: Path):
        self.executable = executable
        self.folder = folder
        self.mark = f"TEST_MARK={uuid.uuid4().hex}"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.env["CUDA_VISIBLE_DEVICES"] = "-1"  # as on a machine without GPUs
        self.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # this Python, not a shim of it
        self.env["XDG_RUNTIME_DIR"] = str(folder)  # where jobs are recorded
        name, value = self.mark.split("=")
        self.env[name] = value

    def script(self, source: str, name: str = "script.py", mode: int = 0o644) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        path.chmod(mode)
        return path

    def copy(self, name: str, to: str = "script.py") -> Path:
        """One of the files in scripts/."""
        return Path(shutil.copy(SCRIPTS / f"{name}.py", self.folder / to))

    def start(
        self, *arguments: object, env: dict[str, str] | None = None, program: str | None = None, **options
    ) -> subprocess.Popen:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [program or self.executable, *map(str, arguments)]
        return subprocess.Popen(command, env={**self.env, **(env or {})}, cwd=self.folder, **{**streams, **options})

    def run(self, *arguments: object, timeout: float = 60, **options) -> subprocess.CompletedProcess:
        started = time.monotonic()
        with self.start(*arguments, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        result = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        result.seconds = time.monotonic() - started
        result.out = (out or b"").decode("utf-8")
        result.whole_err = (err or b"").decode("utf-8")
        result.err = without_crowding(result.whole_err)
        return result

    def pids(self) -> list[int]:
        return processes_with(self.mark)

    def wait_for_none(self, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.pids() == []

    def wait_for_files(self, *names: str, seconds: float = 30) -> None:
        """Scripts create a file when they reach a point."""
        deadline = time.monotonic() + seconds
        missing = list(names)
        while missing and time.monotonic() < deadline:
            missing = [name for name in missing if not (self.folder / name).exists()]
            time.sleep(0.01)
        assert not missing, f"never written: {missing}"


class Terminal:
    """The launcher as the foreground job of a terminal of its own."""

    def __init__(self, launcher, *arguments: str, columns: int = 80, **streams):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.text = b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        options = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
        self.process = launcher.start(*arguments, preexec_fn=own_terminal, **options)
        os.close(slave)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_until(self, part: bytes, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while part not in self.text:
            readable, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            assert readable, self.text
            try:
                self.text += os.read(self.master, 65536)
            except OSError:  # all processes have closed the terminal
                break
        assert part in self.text

    def wait(self) -> int:
        code = self.process.wait(timeout=30)
        while select.select([self.master], [], [], 0)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data
        os.close(self.master)
        return code


@pytest.fixture
def keys_are_heard():
    """Also where these tests run in the background of a script, which starts them with keys ignored."""
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
        if signal.getsignal(number) == signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def launcher(tmp_path: Path, executable: str, keys_are_heard):
    made = Launcher(executable, tmp_path)
    yield made
    left = made.pids()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], "the job left processes behind"


@pytest.fixture
def open_terminal(launcher):
    return functools.partial(Terminal, launcher)
