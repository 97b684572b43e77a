"""Ctrl-C, SIGTERM, the terminal, and the launcher's own death."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

WAITING = """
    import os, time
    open("ready" + os.environ["TNT_RANK"], "w")
    time.sleep(100)
"""


def ready(ranks: int) -> list[str]:
    return [f"ready{rank}" for rank in range(ranks)]


def seconds_until_sigkill(err: bytes, ranks: str) -> float:
    (said,) = re.findall(
        rf"tarantella: sent SIGKILL to ranks {ranks}: still running ([\d.]+) s after sig", err.decode()
    )
    return float(said)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signal_ends_the_job(launcher, name):
    launcher.script(WAITING)
    process = launcher.start("-n", "3", "script.py")
    launcher.wait_for_files(*ready(3))
    number = getattr(signal, name)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -number  # of the signal itself; a shell says 128 + number
    assert f"tarantella: stopped by signal {int(number)} ({name})\n" in err.decode()
    assert launcher.pids() == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_is_forwarded_as_it_is_and_then_comes_sigkill(launcher, name):
    launcher.copy("stubborn")
    process = launcher.start("-n", "3", "--grace-seconds=1.5", "script.py")
    launcher.wait_for_files(*ready(3))
    number = getattr(signal, name)
    sent = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert 1.2 < time.monotonic() - sent < 20
    assert process.returncode == -number
    assert seconds_until_sigkill(err, "0-2") >= 1.5
    for rank in range(3):
        assert (launcher.folder / f"got{int(number)}-{rank}").read_text() == "x"
    assert launcher.pids() == []


def test_second_interrupt_kills_at_once(launcher):
    launcher.copy("stubborn")
    process = launcher.start("-n", "2", "--grace-seconds=60", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGINT)
    launcher.wait_for_files("got2-0", "got2-1")
    time.sleep(0.2)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - sent < 20
    assert process.returncode == -signal.SIGINT


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
    launcher.copy("stubborn")
    process = launcher.start("-n", "3", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files(*ready(3))
    process.kill()
    process.wait()
    launcher.wait_for_none()


def test_sigterm_leaves_time_for_a_checkpoint(launcher):
    """And spares the data workers, which the step that is under way may need."""
    launcher.copy("saving")
    process = launcher.start("-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert "SIGKILL" not in err.decode()
    assert (launcher.folder / "saved0").exists()
    assert (launcher.folder / "saved1").exists()
    assert launcher.pids() == []


def test_the_time_for_a_checkpoint_stands_still_while_the_job_is_stopped(launcher):
    launcher.copy("saving")
    process = launcher.start("-n", "2", "--grace-seconds=20", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGTERM)
    launcher.wait_for_files("saving0", "saving1")
    process.send_signal(signal.SIGSTOP)  # first: now no rank disappears
    ranks = [pid for pid in launcher.pids() if pid != process.pid]
    assert len(ranks) >= 2
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(21)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert "SIGKILL" not in err.decode()
    assert (launcher.folder / "saved0").exists()
    assert (launcher.folder / "saved1").exists()


def test_usr1_and_usr2_are_forwarded_and_end_nothing(launcher):
    launcher.copy("usr_signals")
    process = launcher.start("-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGUSR2)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_ctrl_c_ends_a_loop_of_the_shell(launcher, open_terminal):
    launcher.script(WAITING)
    loop = f"for seed in 1 2 3; do echo turn $seed; {launcher.executable} -n 2 script.py; done; echo went on"
    terminal = open_terminal("-c", loop, program="/bin/bash")
    launcher.wait_for_files(*ready(2))
    terminal.type(b"\x03")
    assert terminal.wait() == -signal.SIGINT
    assert b"turn 2" not in terminal.text
    assert b"went on" not in terminal.text


@pytest.mark.parametrize("keys", [b"\x03", b""])
def test_verify_dies_of_the_signal_too(launcher, open_terminal, keys):
    launcher.script("import time; open('ready', 'w'); time.sleep(100)")
    terminal = open_terminal("verify", "--", "script.py")
    launcher.wait_for_files("ready")
    if keys:
        terminal.type(keys)
    else:
        terminal.process.terminate()
    assert terminal.wait() == -(signal.SIGINT if keys else signal.SIGTERM)
    assert b"Traceback" not in terminal.text
    launcher.wait_for_none()


def test_quit_leaves_no_core_file(launcher):
    launcher.script(WAITING)
    unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    process = launcher.start(
        "-n", "2", "script.py", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited)
    )
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGQUIT)
    process.stdout.close()
    process.stderr.close()
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -signal.SIGQUIT
    assert os.WIFSIGNALED(status)
    assert not os.WCOREDUMP(status)


def test_an_ignored_sighup_ends_nothing(launcher):
    launcher.script(WAITING.replace("100", "2"))
    process = launcher.start("-n", "2", "script.py", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_master_reads_the_terminal(launcher, open_terminal):
    launcher.script("""
        import os, sys
        if os.environ["TNT_RANK"] == "0":
            assert sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
            print("hello", input("name? "))
    """)
    terminal = open_terminal("-n", "3", "script.py")
    terminal.read_until(b"name? ")
    terminal.type(b"world\n")
    assert terminal.wait() == 0
    assert b"hello world" in terminal.text


@pytest.mark.parametrize("redirected", [(), ("stdout",), ("stdin",), ("stdin", "stdout", "stderr")])
def test_ctrl_c_reaches_every_rank_once(launcher, open_terminal, redirected):
    launcher.copy("stubborn")
    terminal = open_terminal(
        "-n", "3", "--grace-seconds=5", "script.py", **dict.fromkeys(redirected, subprocess.DEVNULL)
    )
    launcher.wait_for_files(*ready(3))
    terminal.type(b"\x03")
    assert terminal.wait() == -signal.SIGINT
    for rank in range(3):
        assert (launcher.folder / f"got2-{rank}").read_text() == "x"
    assert launcher.pids() == []


def test_second_ctrl_c_kills_at_once(launcher, open_terminal):
    launcher.copy("stubborn")
    terminal = open_terminal("-n", "2", "--grace-seconds=60", "script.py")
    launcher.wait_for_files(*ready(2))
    terminal.type(b"\x03")
    launcher.wait_for_files("got2-0", "got2-1")
    time.sleep(0.2)
    sent = time.monotonic()
    terminal.type(b"\x03")
    assert terminal.wait() == -signal.SIGINT
    assert time.monotonic() - sent < 20


def test_sigterm_on_a_terminal_reaches_the_master_too(launcher, open_terminal):
    launcher.copy("stubborn")
    terminal = open_terminal("-n", "2", "--grace-seconds=5", "script.py")
    launcher.wait_for_files(*ready(2))
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == -signal.SIGTERM
    for rank in range(2):
        assert (launcher.folder / f"got15-{rank}").read_text() == "x"


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)"])
def test_grandchildren_of_a_master_on_a_terminal_are_gone(launcher, open_terminal, ending):
    launcher.script(f"""
        import os, subprocess
        subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL)
        {ending}
    """)
    terminal = open_terminal("-n", "2", "script.py")
    assert terminal.wait() == (3 if ending else 0)
    assert launcher.pids() == []


def test_ctrl_z_stops_all_ranks_and_fg_continues_them(launcher, open_terminal):
    """Under a shell with job control: all ranks stop, and go on."""
    launcher.copy("ticks")
    shell = open_terminal("--norc", "--noprofile", "-i", program="/bin/bash")
    shell.type(f"PS1='> '; {launcher.executable} -n 2 script.py\n".encode())
    launcher.wait_for_files(*ready(2))
    shell.type(b"\x1a")
    shell.read_until(b"Stopped")

    def ticks():
        return [(launcher.folder / f"ticks{rank}").stat().st_size for rank in range(2)]

    def states():
        pids = [(launcher.folder / f"pid{rank}").read_text() for rank in range(2)]
        return [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in pids]

    deadline = time.monotonic() + 20
    while states() != ["T", "T"]:  # a signal acts when its process runs next
        assert time.monotonic() < deadline, states()
    before = ticks()
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


@pytest.mark.parametrize("stopping", [False, True])
def test_sigterm_to_a_rank_first_and_then_to_the_launcher(launcher, stopping):
    """As a batch system signals every process, in any order; a late one finds the other ranks being stopped."""
    launcher.copy("saving_master")
    process = launcher.start("-n", "2", "script.py", *(["tells"] if stopping else []))
    launcher.wait_for_files(*ready(2))
    os.kill(int((launcher.folder / "pid1").read_text()), signal.SIGTERM)
    if not stopping:
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert err.decode() == "tarantella: stopped by signal 15 (SIGTERM)\n"
    assert (launcher.folder / "saved0").read_text() == "x"


def test_sigterm_after_a_failure_names_the_rank_that_failed(launcher):
    launcher.copy("saving_master")
    process = launcher.start("-n", "2", "script.py", "fails")
    launcher.wait_for_files(*ready(2))
    failing = int((launcher.folder / "pid1").read_text())
    while os.path.exists(f"/proc/{failing}"):  # until the launcher knows
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "exit code 3; the other ranks were stopped\n" in err.decode()
    assert (launcher.folder / "saved0").exists()


@pytest.mark.parametrize("shells", [1, 2])
def test_sigterm_reaches_python_behind_a_shell(launcher, shells):
    """The shell dies of it at once; the Python that it has started gets it then, and time to save."""
    launcher.copy("saving")
    python = "python3 script.py; echo done"
    command = f"bash -c '{python}'; echo done" if shells == 2 else python
    launcher.script(f"#!/bin/bash\n{command}\n", "wrapper", 0o755)
    process = launcher.start("-n", "2", "./wrapper")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert err.decode() == "tarantella: stopped by signal 15 (SIGTERM)\n"
    assert (launcher.folder / "saved0").exists()
    assert (launcher.folder / "saved1").exists()


def test_deaf_process_behind_a_shell_is_killed_in_the_end(launcher):
    launcher.copy("stubborn")
    launcher.script("#!/bin/bash\npython3 script.py\necho done\n", "wrapper", 0o755)
    process = launcher.start("-n", "2", "--grace-seconds=1.5", "./wrapper")
    launcher.wait_for_files(*ready(2))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert seconds_until_sigkill(err, "0-1") >= 1.5
    assert launcher.pids() == []


def test_sigterm_ends_a_rank_that_is_stopped(launcher):
    launcher.script("""
        import os, signal, time
        open("ready" + os.environ["TNT_RANK"], "w")
        if os.environ["TNT_RANK"] == "1": os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(100)
    """)
    process = launcher.start("-n", "2", "script.py")
    launcher.wait_for_files(*ready(2))
    time.sleep(0.2)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert "SIGKILL" not in err.decode()
    assert time.monotonic() - sent < 20  # the grace is 30 seconds
