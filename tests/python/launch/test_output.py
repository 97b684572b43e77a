"""--output-on-all-devices and --log-on-all-devices: whole lines, each marked with its rank."""

from __future__ import annotations

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
    launcher.script("""
        import os, sys, time
        rank = os.environ["TNT_RANK"]
        for line in range(200):
            data = (rank + "é漢🦂" * 300 + "|%d\\n" % line).encode()
            for start in range(0, len(data), 1021):
                os.write(1, data[start:start + 1021])
    """)
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
