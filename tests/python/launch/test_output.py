"""--output-on-all-devices and --log-on-all-devices: whole lines, each marked with its rank."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time

import pytest

pytestmark = pytest.mark.timeout(120)


def test_output_of_all_ranks(launcher):
    launcher.script("""
        import os, sys
        print("out", os.environ["TNT_RANK"])
        print("err", os.environ["TNT_RANK"], file=sys.stderr)
        sys.stdout.write("no end")
    """)
    result = launcher.run("-n", "3", "--output-on-all-devices", "script.py")
    assert result.returncode == 0
    assert sorted(result.out.splitlines()) == sorted(
        line for rank in range(3) for line in (f"[{rank}] out {rank}", f"[{rank}] no end")
    )
    assert sorted(result.err.splitlines()) == [f"[{rank}] err {rank}" for rank in range(3)]
    assert result.out.endswith("\n")


@pytest.mark.parametrize("variable", [False, True])
def test_log_of_all_ranks(launcher, variable):
    launcher.script("""
        import os, sys
        print("out", os.environ["TNT_RANK"])
        print("err", os.environ["TNT_RANK"], file=sys.stderr)
    """)
    option, env = ([], {"TNT_LOG_ON_ALL_DEVICES": "1"}) if variable else (["--log-on-all-devices"], {})
    result = launcher.run("-n", "2", *option, "script.py", env=env)
    assert result.out == "out 0\n"
    assert sorted(result.err.splitlines()) == ["[0] err 0", "[1] err 1"]


def test_whole_lines_and_characters(launcher):
    launcher.copy("characters")
    result = launcher.run("-n", "3", "--output-on-all-devices", "script.py")
    lines = result.out.splitlines()
    for rank in range(3):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] {rank}" + "é漢🦂" * 300 + f"|{line}" for line in range(200)]
    assert len(lines) == 600


def test_endless_line_is_cut_between_characters(launcher):
    launcher.script("""
        import sys
        sys.stdout.buffer.write("漢".encode() * 1000000)
    """)
    result = launcher.run("-n", "2", "--output-on-all-devices", "script.py")
    for rank in range(2):
        own = [line for line in result.out.splitlines() if line.startswith(f"[{rank}")]
        assert [line.split(" ")[0] for line in own] == [f"[{rank}]", f"[{rank}+]", f"[{rank}+]"]
        assert "".join(line.split(" ")[1] for line in own) == "漢" * 1000000


def test_failure_is_shown_once(launcher):
    launcher.script("""
        import os, time
        if os.environ["TNT_RANK"] == "1": raise ValueError("shown")
        time.sleep(100)
    """)
    result = launcher.run("-n", "2", "--log-on-all-devices", "script.py")
    assert result.returncode == 1
    assert result.err.count("ValueError: shown") == 1
    assert "[1] ValueError: shown\n" in result.err


def test_much_output_of_a_silent_rank_does_not_block_it(launcher):
    launcher.script("""
        import os, sys
        for _ in range(2000):
            print("x" * 5000); print("x" * 5000, file=sys.stderr)
        open("done" + os.environ["TNT_RANK"], "w")
    """)
    result = launcher.run("-n", "2", "script.py")
    assert result.returncode == 0
    assert (launcher.folder / "done1").exists()


def test_reader_that_does_not_read_does_not_keep_the_launcher_from_its_ranks(launcher):
    launcher.script("""
        import os, time
        if os.environ["TNT_RANK"] == "0":
            while True: print("x" * 1000)
        while not os.path.exists("fail"): time.sleep(0.01)
        raise SystemExit(3)
    """)
    process = launcher.start("-n", "2", "--output-on-all-devices", "script.py", stderr=subprocess.DEVNULL)
    time.sleep(1)
    (launcher.folder / "fail").touch()
    deadline = time.monotonic() + 20
    while len(launcher.pids()) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert launcher.pids() == [process.pid]  # the ranks are gone; the launcher waits a little for its reader
    process.communicate(timeout=30)
    assert process.returncode == 3


def test_reader_that_goes_away(launcher):
    launcher.script("""
        for _ in range(20000): print("x" * 1000)
        open("done" + __import__("os").environ["TNT_RANK"], "w")
    """)
    read_end, write_end = os.pipe()
    process = launcher.start("-n", "2", "--output-on-all-devices", "script.py", stdout=write_end)
    os.close(write_end)
    os.read(read_end, 10)
    os.close(read_end)
    process.communicate(timeout=60)
    assert process.returncode == 0
    launcher.wait_for_files("done0", "done1", seconds=1)


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        ("off", False),
        ("no", False),
        ("FALSE", False),
        ("0", False),
        (" 0 ", False),
        (" ", False),
        ("on", True),
        ("1", True),
        (" 1 ", True),
    ],
)
def test_switch_in_the_environment(launcher, value, is_on):
    launcher.script("import os; print(os.environ['TNT_RANK'])")
    result = launcher.run("-n", "2", "script.py", env={"TNT_OUTPUT_ON_ALL_DEVICES": value})
    assert sorted(result.out.splitlines()) == (["[0] 0", "[1] 1"] if is_on else ["0"])


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe that takes nothing more, as of a reader who has stopped."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"." * 4096)
    return reader, writer


def read_all(fd: int) -> str:
    with open(fd, "rb") as stream:
        return stream.read().decode().lstrip(".")


def test_reader_who_has_stopped_keeps_no_rank_from_its_end(launcher):
    launcher.copy("notes")
    reader, writer = full_pipe()
    process = launcher.start("-n", "2", "script.py", stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    try:
        launcher.wait_for_files("pid")
        master = int((launcher.folder / "pid").read_text())
        deadline = time.monotonic() + 20
        while master in launcher.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert master not in launcher.pids()
    finally:
        lines = read_all(reader).splitlines()
        assert process.wait(timeout=30) == 3
    assert [line for line in lines if " note " in line] == [f"tarantella: rank 1: note {n}" for n in range(100)]
    assert lines[100] == "tarantella: further lines like these are not shown (limit: 100)"
    assert "ended with exit code 3" in lines[-1]


def test_last_words_on_a_stderr_that_does_not_block(launcher):
    """As Node.js and some terminals leave it to those they start."""
    launcher.script("""
        import os, sys, time
        if os.environ["TNT_RANK"] == "0": time.sleep(100)
        for line in range(20): print("%02d" % line, "x" * 2000, file=sys.stderr)
        sys.exit(3)
    """)
    reader, writer = full_pipe()
    os.set_blocking(writer, False)
    process = launcher.start("-n", "2", "script.py", stdout=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    time.sleep(2.5)
    lines = read_all(reader).splitlines()
    assert process.wait(timeout=30) == 3
    assert [line[:2] for line in lines[:-1]] == [f"{line:02d}" for line in range(20)]
    assert "ended with exit code 3" in lines[-1]


START_LINES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795839088.320266   27323 port.cc:153] oneDNN custom operations are on.",
]
AT_A_START = f"""
    import os, sys
    sys.stderr.write({chr(10).join(START_LINES) + chr(10)!r} + f"mine on a terminal: {{sys.stderr.isatty()}}\\n")
"""


def test_start_lines_of_tensorflow_are_left_out(launcher, open_terminal):
    launcher.script(AT_A_START)
    assert launcher.run("-n", "2", "script.py").err == "mine on a terminal: False\n"
    terminal = open_terminal("-n", "2", "script.py")
    assert (terminal.wait(), terminal.text) == (0, b"mine on a terminal: True\r\n")


def test_start_lines_of_tensorflow_that_are_wanted(launcher):
    launcher.script(AT_A_START)
    asked = launcher.run("-n", "2", "script.py", env={"TF_CPP_MIN_LOG_LEVEL": "0"})
    assert launcher.run("-n", "2", "script.py", env={"TF_CPP_MIN_LOG_LEVEL": "3"}).err == "mine on a terminal: False\n"
    assert asked.err.splitlines() == [*START_LINES, "mine on a terminal: False"]
    launcher.run("-n", "2", "--log-dir=logs", "script.py")
    logs = [path.read_text() for path in (launcher.folder / "logs").rglob("*") if path.is_file()]
    assert sum(START_LINES[1] in text for text in logs) == 2


def test_a_program_on_a_terminal_knows_how_wide_it_is(launcher, open_terminal):
    launcher.script("import os, sys; print(os.get_terminal_size(sys.stderr.fileno()).columns)")
    terminal = open_terminal("-n", "1", "script.py", columns=91)
    assert (terminal.wait(), terminal.text) == (0, b"91\r\n")


@pytest.mark.computes
def test_the_start_of_tensorflow_itself_is_silent(launcher, open_terminal):
    launcher.script("import tensorflow, tarantella")
    assert launcher.run("-n", "2", "script.py").err == ""
    terminal = open_terminal("-n", "2", "script.py")
    assert (terminal.wait(), terminal.text) == (0, b"")
