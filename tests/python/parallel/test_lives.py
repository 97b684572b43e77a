"""Ranks that end early, join late, or keep others waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.real_start


def test_a_rank_that_ends_before_it_joins_is_named_at_once(scripts: Any) -> None:
    source = """
import sys
import tarantella as tnt
if tnt.get_rank() == 1:
    sys.exit(0)
tnt.Barrier().execute()
"""
    ended = scripts.ranks(3, source, timeout=50)
    assert ended.code != 0
    assert "rank 1 ended (exit code 0) before it joined" in ended.err


def test_ranks_that_never_join_may_end_early(scripts: Any) -> None:
    ended = scripts.ranks(2, "import tarantella as tnt\nprint(tnt.get_rank())\n")
    assert (ended.code, ended.lines) == (0, [])


def test_a_long_wait_says_where_the_awaited_rank_is(scripts: Any) -> None:
    source = """
import ctypes, time
import tarantella as tnt
from tarantella._job import runtime
runtime.WARN_EVERY = 2.0
def load():
    time.sleep(6)
tnt.init()
if tnt.get_rank() == 1:
    load()
tnt.Barrier().execute()
if tnt.get_rank() == 1:
    ctypes.PyDLL(None).usleep(8_000_000)  # unlike most calls, this keeps the interpreter's lock
tnt.Barrier().execute()
try:
    raise tnt.TimeoutError("one")
except TimeoutError as error:
    assert isinstance(error, tnt.Error) and str(error) == "one"
"""
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err
    assert "s for rank 1 in barrier; rank 1 is in script.py:7" in ended.err, ended.err
    assert "holds the interpreter lock; it was last seen in script.py:7" in ended.err, ended.err


def test_no_thread_of_ours_is_counted(scripts: Any) -> None:
    source = """
import threading
import tarantella as tnt
tnt.Barrier().execute()
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
"""
    ended = scripts.ranks(2, source)
    assert ended.code == 0, ended.err


def test_a_daemon_thread_may_be_in_a_collective_when_its_rank_ends(scripts: Any) -> None:
    source = """
import threading, time
import tarantella as tnt
tnt.init()
tnt.Barrier().execute()
if tnt.get_rank() == 0:
    for _ in range(3):
        threading.Thread(target=tnt.Barrier().execute, daemon=True).start()
    time.sleep(0.2)
"""
    for _ in range(5):
        ended = scripts.ranks(2, source, timeout=60)
        assert ended.code == 0, ended.err


def test_the_core_waits_for_threads_to_leave_its_calls(scripts: Any) -> None:
    """Threads that wait in a collective have the interpreter's lock again before the exit handler is over."""
    source = """
import atexit, queue, sys, threading, time
calling, left = queue.SimpleQueue(), []
atexit.register(lambda: print(len(left), "left"))  # the first one to be registered is called last
import tarantella as tnt
def wait():
    try:
        calling.put(True)
        tnt.Barrier().execute()  # the first to give up the lock
    finally:
        left.append(threading.current_thread())
        end = time.monotonic() + 0.02
        while time.monotonic() < end:  # keeps the lock
            pass
tnt.init()
tnt.Barrier().execute()
if tnt.get_rank() == 0:
    sys.setswitchinterval(1)
    for _ in range(30):
        threading.Thread(target=wait, daemon=True).start()
    for _ in range(30):
        calling.get()
"""
    ended = scripts.ranks(2, source, timeout=60)
    assert ended.code == 0, ended.err
    assert "30 left" in ended.out


def test_no_limit_of_time_to_join(scripts: Any) -> None:
    """A rank that joins after TNT_TIMEOUT, which other ways of starting ranks take as the limit."""
    source = """
import time
import tarantella as tnt
if tnt.is_master_rank():
    time.sleep(3)
tnt.Barrier().execute()
"""
    ended = scripts.ranks(2, source, TNT_TIMEOUT="2")
    assert (ended.code, ended.lines) == (0, [])
    assert scripts.ranks(2, source.replace("3", "0"), TNT_TIMEOUT="inf").code == 0
    path = scripts.write(source)
    alone = {"TNT_RANK": "1", "TNT_SIZE": "2", "TNT_JOB_ID": "alone", "TNT_TIMEOUT": "2"}
    ended = _run([sys.executable, str(path)], alone)
    assert "found no rank 0" in ended.stderr


def _run(command: list[str], extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **extra}, check=False)
