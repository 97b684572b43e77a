"""Ctrl-C, SIGTERM, the terminal, and the launcher's own death."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time

import pytest

pytestmark = pytest.mark.timeout(120)

WAITING = """
    import os, time
    open("ready" + os.environ["TNT_RANK"], "w")
    time.sleep(100)
"""
STUBBORN = """
    import os, signal, time
    def note(number, frame):
        with open("got%d-%s" % (number, os.environ["TNT_RANK"]), "a") as out: out.write("x")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    open("ready" + os.environ["TNT_RANK"], "w")
    while True: time.sleep(100)
"""


def ready(ranks: int) -> list[str]:
    return [f"ready{rank}" for rank in range(ranks)]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signal_ends_the_job(launcher, name):
    launcher.script(WAITING)
    process = launcher.start("-n", "3", "script.py")
    launcher.wait_for_files(*ready(3))
    number = getattr(signal, name)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert f"tarantella: stopped by signal {int(number)} ({name})\n" in err.decode()
    assert launcher.pids() == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_is_forwarded_as_it_is_and_then_comes_sigkill(launcher, name):
    launcher.script(STUBBORN)
    process = launcher.start("-n", "3", "script.py")
    launcher.wait_for_files(*ready(3))
    number = getattr(signal, name)
    sent = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert 1.2 < time.monotonic() - sent < 8
    assert process.returncode == 128 + number
    for rank in range(3):
        assert (launcher.folder / f"got{int(number)}-{rank}").read_text() == "x"
    assert launcher.pids() == []


def test_second_interrupt_kills_at_once(launcher):
    launcher.script(STUBBORN)
    process = launcher.start("-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGINT)
    launcher.wait_for_files("got2-0", "got2-1")
    time.sleep(0.2)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - sent < 1.0
    assert process.returncode == 130


def test_grandchildren_are_gone_after_a_signal(launcher):
    launcher.script(
        "import subprocess\nsubprocess.Popen(['sleep', '100'], start_new_session=True)"
        + WAITING.replace("\n    ", "\n")
    )
    process = launcher.start("-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert launcher.pids() == []


def test_death_of_the_launcher_takes_the_ranks_along(launcher):
    launcher.script(STUBBORN)
    process = launcher.start("-n", "3", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files(*ready(3))
    process.kill()
    process.wait()
    launcher.wait_for_none()


def test_nohup(launcher):
    launcher.script(WAITING.replace("100", "2"))
    process = launcher.start("-n", "2", "script.py", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == 0


class Terminal:
    """The launcher as the foreground job of a terminal of its own."""

    def __init__(self, launcher, *arguments: str, **streams):
        self.master, slave = pty.openpty()
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
            except OSError:  # everybody has closed the terminal
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


def test_master_reads_the_terminal(launcher):
    launcher.script("""
        import os, sys
        if os.environ["TNT_RANK"] == "0":
            assert sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
            print("hello", input("name? "))
    """)
    terminal = Terminal(launcher, "-n", "3", "script.py")
    terminal.read_until(b"name? ")
    terminal.type(b"world\n")
    assert terminal.wait() == 0
    assert b"hello world" in terminal.text


@pytest.mark.parametrize("redirected", [(), ("stdout",), ("stdin",), ("stdin", "stdout", "stderr")])
def test_ctrl_c_reaches_every_rank_once(launcher, redirected):
    launcher.script(STUBBORN)
    terminal = Terminal(launcher, "-n", "3", "script.py", **dict.fromkeys(redirected, subprocess.DEVNULL))
    launcher.wait_for_files(*ready(3))
    terminal.type(b"\x03")
    assert terminal.wait() == 130
    for rank in range(3):
        assert (launcher.folder / f"got2-{rank}").read_text() == "x"
    assert launcher.pids() == []


def test_second_ctrl_c_kills_at_once(launcher):
    launcher.script(STUBBORN)
    terminal = Terminal(launcher, "-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    terminal.type(b"\x03")
    launcher.wait_for_files("got2-0", "got2-1")
    time.sleep(0.2)
    sent = time.monotonic()
    terminal.type(b"\x03")
    assert terminal.wait() == 130
    assert time.monotonic() - sent < 1.0


def test_sigterm_on_a_terminal_reaches_the_master_too(launcher):
    launcher.script(STUBBORN)
    terminal = Terminal(launcher, "-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 143
    for rank in range(2):
        assert (launcher.folder / f"got15-{rank}").read_text() == "x"


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)"])
def test_grandchildren_of_a_master_on_a_terminal_are_gone(launcher, ending):
    launcher.script(f"""
        import os, subprocess
        subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL)
        {ending}
    """)
    terminal = Terminal(launcher, "-n", "2", "script.py")
    assert terminal.wait() == (3 if ending else 0)
    assert launcher.pids() == []


def test_ctrl_z_and_fg(launcher):
    """Under a shell with job control: all ranks stop, and go on."""
    launcher.script("""
        import os, time
        name = "ticks" + os.environ["TNT_RANK"]
        open("ready" + os.environ["TNT_RANK"], "w")
        while not os.path.exists("enough"):
            with open(name, "a") as out: out.write("x")
            time.sleep(0.01)
        if os.environ["TNT_RANK"] == "0": print("answer", input())
    """)
    shell = Terminal(launcher, "--norc", "--noprofile", "-i", program="/bin/bash")
    shell.type(f"PS1='> '; {launcher.executable} -n 2 script.py\n".encode())
    launcher.wait_for_files(*ready(2))
    shell.type(b"\x1a")
    shell.read_until(b"Stopped")

    def ticks():
        return [(launcher.folder / f"ticks{rank}").stat().st_size for rank in range(2)]

    time.sleep(0.3)
    before = ticks()
    time.sleep(0.5)
    assert ticks() == before
    shell.type(b"fg\n")
    deadline = time.monotonic() + 20
    while min(now - then for now, then in zip(ticks(), before, strict=True)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    (launcher.folder / "enough").touch()
    shell.type(b"yes\n")
    shell.read_until(b"answer yes")
    shell.type(b"exit\n")
    shell.wait()
    launcher.wait_for_none()
