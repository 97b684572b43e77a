"""A limit for waits for ranks that are alive but stuck: their job ends, with the stacks of all ranks."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.timeout(120)

STUCK = """
    import ctypes, sys, threading
    import numpy as np
    import tarantella as tnt
    def hold_the_lock_of_the_interpreter():
        ctypes.PyDLL(None).pause()
    def dead_lock():
        lock = threading.Lock()
        with lock:
            lock.acquire()
    def loop_endlessly():
        while True:
            pass
    tnt.init()
    sums = tnt.Allreduce(tnt.Group(), tnt.ReductionOp.SUM)
    for step in range(4):
        if step == 3 and tnt.get_rank() == 1:
            globals()[sys.argv[1]]()
        sums.execute(np.ones(1000, np.float32))
"""
ALL = ["hold_the_lock_of_the_interpreter", "dead_lock", "loop_endlessly"]


@pytest.mark.parametrize("how", ALL)
def test_a_stuck_rank_is_named_with_the_stacks_of_all(launcher, how):
    launcher.script(STUCK)
    done = launcher.run("-n3", "--stall-timeout=1", "script.py", how)
    assert done.returncode == 1
    assert re.search(
        r"rank [02] waits in allreduce .* of 1000 x float32 \(sum\): rank 1 did not arrive within", done.err
    )
    assert "(limit: TNT_STALL_TIMEOUT)" in done.err
    stacks = dict(re.findall(r"^tarantella: stacks of rank (\d) (.*?)(?=^tarantella|\Z)", done.err, re.M | re.S))
    assert sorted(stacks) == ["0", "1", "2"]
    assert f"in {how}" in stacks["1"]
    assert all('collectives.py"' in stacks[rank] and 'script.py"' in stacks[rank] for rank in "02")
    launcher.wait_for_none()


def test_without_a_limit_nothing_ends(launcher):
    launcher.script("""
        import faulthandler, os, signal, threading
        import tarantella as tnt
        tnt.init()
        if tnt.get_rank() == 1:
            threading.Event().wait(3)
        tnt.Barrier(tnt.Group()).execute()
        assert not faulthandler.unregister(signal.SIGRTMAX - 7)
    """)
    done = launcher.run("-n2", "script.py")
    assert (done.returncode, done.err) == (0, "")


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", ""])
def test_a_limit_that_is_none(launcher, value):
    launcher.script("")
    done = launcher.run("-n2", f"--stall-timeout={value}", "script.py")
    assert done.returncode == 2
    assert done.err == (f"tarantella: option '--stall-timeout' needs a number of seconds above 0, not '{value}'\n")
