"""tarantella --cleanup ends what a job has left whose launcher and guard were both killed, and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)


def records(launcher) -> list[Path]:
    folder = launcher.folder / "tarantella"
    return sorted(folder.iterdir()) if folder.exists() else []


def guards_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "tnt-guard\n"]


@pytest.fixture
def left_behind(launcher):
    """The processes of a job of which nobody takes care any more."""
    launcher.script("""
        import ctypes, os, subprocess, time
        ctypes.CDLL(None).prctl(1, 0)  # outlives the launcher
        rank = os.environ["TNT_RANK"]
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
        open("ready" + rank, "w").close()
        time.sleep(1000)
    """)
    process = launcher.start(
        "-n2", "--grace-seconds=0.3", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    launcher.wait_for_files("ready0", "ready1")
    for pid in (*guards_of(process.pid), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert len(records(launcher)) == 1
    deadline = time.monotonic() + 10
    while len(launcher.pids()) > 4 and time.monotonic() < deadline:  # the guard takes a moment to die
        time.sleep(0.01)
    yield launcher.pids()
    for pid in launcher.pids():
        os.kill(pid, signal.SIGKILL)
    launcher.wait_for_none()


def cleanup(launcher, *options: str, answer: str = "") -> subprocess.CompletedProcess:
    env = {name: value for name, value in launcher.env.items() if name != "TEST_MARK"}
    command = [launcher.executable, "--cleanup", *options]
    return subprocess.run(command, env=env, input=answer, capture_output=True, text=True, timeout=60, check=False)


def test_nothing_is_left_and_no_record_after_a_job(launcher):
    launcher.script("import os; print(os.listdir(os.environ['XDG_RUNTIME_DIR'] + '/tarantella'))")
    result = launcher.run("-n2", "script.py")
    assert re.fullmatch(r"\['[0-9a-f]{32}'\]\n", result.out)
    assert records(launcher) == []
    done = cleanup(launcher)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing is left of killed jobs" in done.stdout


def test_no_record_after_a_signal_or_a_killed_launcher(launcher):
    launcher.copy("workers")
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = launcher.start(
            "-n2", "--grace-seconds=0.3", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        launcher.wait_for_files("ready0", "ready1")
        process.send_signal(number)
        process.wait()
        launcher.wait_for_none()
        deadline = time.monotonic() + 10
        while records(launcher) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert records(launcher) == []
        for rank in range(2):
            (launcher.folder / f"ready{rank}").unlink()


def test_it_lists_and_asks(launcher, left_behind):
    for answer in ("", "n\n", "no\n"):
        done = cleanup(launcher, answer=answer)
        assert done.returncode == 1
        assert "of script.py, whose launcher has gone:\n" in done.stdout
        for pid in left_behind:
            assert f"  pid {pid}, " in done.stdout
        assert "End these 4 processes? [y/N] nothing was ended\n" in done.stdout
        assert launcher.pids() == left_behind
    done = cleanup(launcher, answer="y\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ended 4 processes\n")
    assert launcher.pids() == []
    assert records(launcher) == []


def test_force_does_not_ask_and_a_script_selects(launcher, left_behind):
    other = cleanup(launcher, "--force", "--", "other.py")
    assert "nothing is left" in other.stdout
    assert launcher.pids() == left_behind
    launcher.env["TARANTELLA_JOB"] = records(launcher)[0].name  # as in a terminal that a rank has started
    done = cleanup(launcher, "--force", "--", "script.py")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ended 4 processes")
    assert "[y/N]" not in done.stdout
    assert launcher.pids() == []


def test_a_running_job_is_left_alone(launcher):
    launcher.copy("workers")
    process = launcher.start(
        "-n2", "--grace-seconds=0.3", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    launcher.wait_for_files("ready0", "ready1")
    done = cleanup(launcher, "--force")
    assert done.returncode == 0
    assert f"of script.py runs and is left alone; end it with: kill {process.pid}\n" in done.stdout
    assert process.poll() is None
    assert len(records(launcher)) == 1
    process.terminate()
    process.wait()
    launcher.wait_for_none()


def test_numbers_that_other_processes_have_got_are_spared(launcher):
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        folder = launcher.folder / "tarantella"
        folder.mkdir(mode=0o700)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        head = f"tarantella-job 1\njob {'0' * 32}\nboot {boot}space {os.readlink('/proc/self/ns/pid')}\nscript a.py\n"
        gone = "launcher 99999999 1\n"
        (folder / ("0" * 32)).write_text(f"{head}{gone}rank {bystander.pid} 1\n")  # another start
        start = Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19]
        another_boot = head.replace(boot, "another-boot\n")
        (folder / ("1" * 32)).write_text(f"{another_boot}{gone}rank {bystander.pid} {start}\n")
        elsewhere = head.replace("pid:[", "pid:[9")
        (folder / ("2" * 32)).write_text(f"{elsewhere}{gone}rank {bystander.pid} {start}\n")
        done = cleanup(launcher, "--force")
        assert (done.returncode, done.stderr) == (0, "")
        assert bystander.poll() is None
        assert [each.name for each in records(launcher)] == ["2" * 32]  # of a container, which may run
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_another_user_has_recorded_is_not_believed(launcher, left_behind):
    (record,) = records(launcher)
    os.chown(record, 65534, 65534)
    assert "nothing is left" in cleanup(launcher, "--force").stdout
    os.chown(record, 0, 0)
    os.chown(record.parent, 65534, 65534)
    assert "nothing is left" in cleanup(launcher, "--force").stdout
    assert launcher.pids() == left_behind
    os.chown(record.parent, 0, 0)
