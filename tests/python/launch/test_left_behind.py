"""Nothing is left behind: not by ranks while the job runs, nor by a launcher that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)


def test_inherited_ignored_sigchld(launcher):
    """As some daemons start their children; ranks find it as the launcher did."""
    launcher.script("""
        import os, signal
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        raise SystemExit(3 if os.environ["TNT_RANK"] == "1" else 0)
    """)
    ignore = signal.SIGCHLD, signal.SIG_IGN
    result = launcher.run("-n", "2", "script.py", timeout=30, preexec_fn=lambda: signal.signal(*ignore))
    assert result.returncode == 3
    assert "rank 1 " in result.err
    assert "exit code 3" in result.err


def test_orphans_that_have_ended_are_collected_while_the_job_runs(launcher):
    launcher.copy("orphans")
    result = launcher.run("-n", "2", "script.py")
    assert (result.returncode, result.err) == (0, "")


def start_with_workers(launcher) -> subprocess.Popen:
    launcher.copy("workers")
    process = launcher.start("-n", "2", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files("ready0", "ready1")
    return process


def test_killed_launcher_takes_the_children_of_its_ranks_along(launcher):
    process = start_with_workers(launcher)
    process.kill()
    process.wait()
    launcher.wait_for_none()


@pytest.mark.parametrize("way", ["a rank fails", "the launcher gets SIGHUP", "the launcher is killed"])
def test_shared_memory_of_multiprocessing_goes_with_its_rank(launcher, way):
    """Python's resource tracker, a child of the rank, removes it when the rank has died."""
    launcher.script(f"""
        import os, signal
        from multiprocessing.shared_memory import SharedMemory
        rank = os.environ["TNT_RANK"]
        memory = SharedMemory(create=True, size=1 << 20)
        open("new" + rank, "w").write(memory.name)
        os.rename("new" + rank, "ready" + rank)
        while not all(os.path.exists("ready" + each) for each in "01"): pass
        if {way == "a rank fails"} and rank == "1": raise ValueError("fails")
        signal.pause()
    """)
    process = launcher.start("-n", "2", "--grace-seconds=0.5", "script.py")
    launcher.wait_for_files("ready0", "ready1")
    names = [(launcher.folder / f"ready{rank}").read_text() for rank in range(2)]
    if way != "a rank fails":
        process.send_signal(signal.SIGHUP if "SIGHUP" in way else signal.SIGKILL)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while launcher.pids() and time.monotonic() < deadline:
        pass
    assert [name for name in names if Path("/dev/shm", name).exists()] == []


def test_killed_launcher_on_a_terminal_after_ctrl_c(launcher, open_terminal):
    launcher.copy("workers")
    terminal = open_terminal("-n", "2", "--grace-seconds=100", "script.py")
    launcher.wait_for_files("ready0", "ready1")
    terminal.type(b"\x03")
    time.sleep(0.3)
    terminal.process.kill()
    terminal.wait()
    launcher.wait_for_none()


def test_killed_launcher_after_a_signal_to_every_process(launcher):
    """As Slurm signals a step: what cleans up after the launcher stays at its post."""
    process = start_with_workers(launcher)
    for pid in launcher.pids():
        if pid != process.pid:
            os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    process.kill()
    process.wait()
    launcher.wait_for_none()


def test_killed_launcher_of_a_job_inside_a_job(launcher):
    launcher.copy("workers", "inner.py")
    launcher.script(f"""
        import os, subprocess
        os.makedirs("in" + os.environ["TNT_RANK"])
        os.chdir("in" + os.environ["TNT_RANK"])
        subprocess.run([{launcher.executable!r}, "-n", "2", "../inner.py"])
    """)
    process = launcher.start("-n", "2", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files(*(f"in{outer}/ready{inner}" for outer in range(2) for inner in range(2)))
    process.kill()
    process.wait()
    launcher.wait_for_none()


def guards_of(launcher) -> list[int]:
    return [pid for pid in launcher.pids() if Path(f"/proc/{pid}/comm").read_text() == "tnt-guard\n"]


def test_guard_holds_nothing_of_the_users(launcher):
    launcher.script("import os, time; open('ready' + os.environ['TNT_RANK'], 'w'); time.sleep(100)")
    with open(launcher.folder / "held", "w") as held:
        process = launcher.start("-n", "2", "script.py", pass_fds=[held.fileno()])
    launcher.wait_for_files("ready0", "ready1")
    deadline = time.monotonic() + 20

    def files_of_guards():
        return [os.listdir(f"/proc/{guard}/fd") for guard in guards_of(launcher)]

    while files_of_guards() != [["0"]] and time.monotonic() < deadline:
        time.sleep(0.02)  # it may have just been started
    assert files_of_guards() == [["0"]]
    process.terminate()
    process.communicate(timeout=30)


def test_guard_spares_a_group_without_a_process_of_the_job(launcher):
    """By then its number may be a stranger's. Here a rank has taken the mark from itself and from its child."""
    launcher.copy("unmarked")
    process = launcher.start("-n", "2", "script.py", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files("ready0", "ready1")
    child = int((launcher.folder / "child").read_text())
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while launcher.pids() != [child] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert launcher.pids() == [child]  # the ranks have died with the launcher, the guard has done its work
    os.kill(child, signal.SIGKILL)
    launcher.wait_for_none()
