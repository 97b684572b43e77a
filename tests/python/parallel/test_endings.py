"""How a rank that fails ends the job: at once, with its own error, whatever else still runs in it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

pytestmark = pytest.mark.real_start

HEAD = """
import concurrent.futures, multiprocessing, sys, threading, time
import tarantella as tnt
rank = tnt.get_rank()
"""
LINGER = {
    "thread": "threading.Thread(target=time.sleep, args=(100,), name='loader').start()\n",
    "pool": "pool = concurrent.futures.ThreadPoolExecutor(1)\npool.submit(time.sleep, 100)\n",
    "process": "multiprocessing.get_context('fork').Process(target=time.sleep, args=(100,)).start()\n",
}
RAISE = "raise ValueError('the cause')"


def ended_soon(scripts: Any, source: str, ranks: int = 2, **options: Any) -> Any:
    began = time.monotonic()
    ended = scripts.ranks(ranks, HEAD + source, timeout=60, **options)
    assert time.monotonic() - began < 50
    return ended


@pytest.mark.parametrize(("lingering", "failing"), [("thread", 0), ("pool", 1), ("process", 1)])
def test_a_rank_that_raises_while_something_in_it_lives(lingering: str, failing: int, scripts: Any) -> None:
    ended = ended_soon(
        scripts,
        f"tnt.init()\nif rank == {failing}:\n    "
        + LINGER[lingering].replace("\n", "\n    ")
        + f"{RAISE}\ntnt.Barrier()\n",
    )
    assert ended.code == 1
    assert ended.err.count("ValueError: the cause") == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err
    assert ended.lines[-1].startswith(f"tarantella: rank {failing} "), ended.err


def test_a_rank_that_exits_while_a_thread_lives(scripts: Any) -> None:
    ended = ended_soon(scripts, f"tnt.init()\nif rank == 1:\n    {LINGER['thread']}    sys.exit(3)\ntnt.Barrier()\n")
    assert ended.code == 3
    assert "Traceback" not in ended.err
    assert ended.lines[-1].startswith("tarantella: rank 1 "), ended.err
    assert "exit code 3" in ended.lines[-1]
    assert "loader" in ended.lines[-1]


def test_a_rank_that_fails_before_it_has_joined(scripts: Any) -> None:
    ended = ended_soon(scripts, f"if rank == 1:\n    {LINGER['thread']}    exit(4)\ntnt.Barrier()\n")
    assert ended.code == 4
    assert ended.lines[-1].startswith("tarantella: rank 1 "), ended.err


def test_an_exit_that_is_caught_ends_nothing(scripts: Any) -> None:
    source = """
tnt.init()
try:
    sys.exit(3)
except SystemExit as caught:
    assert caught.code == 3 and repr(caught) == "SystemExit(3)"
try:
    exit(4)
except SystemExit as caught:
    assert caught.code == 4
try:
    raise KeyError("x")
except KeyError:
    sys.excepthook(*sys.exc_info())
thread = threading.Thread(target=lambda: sys.exit(5))
thread.start()
thread.join()
tnt.Barrier()
print("well")
sys.exit()
"""
    ended = ended_soon(scripts, source)
    assert (ended.code, ended.out) == (0, "well\n")
    assert ended.err.count("KeyError: 'x'") == 1, ended.err


def test_an_error_that_a_program_shows_ends_nothing(scripts: Any) -> None:
    """Wherever it was raised: in another thread, nowhere, or in a call of this one."""
    source = """
def fail():
    raise ValueError("one bad file")
with concurrent.futures.ThreadPoolExecutor(1) as pool:
    error = pool.submit(fail).exception()
if rank == 1:
    sys.excepthook(type(error), error, error.__traceback__)
    sys.excepthook(OSError, OSError("never raised"), None)
    thread = threading.Thread(target=sys.excepthook, args=(type(error), error, error.__traceback__))
    thread.start()
    thread.join()
    time.sleep(6.5)  # longer than a rank that fails is given
    (lambda: sys.excepthook(type(error), error, error.__traceback__))()
tnt.Barrier()
print("well")
"""
    ended = ended_soon(scripts, source, options=("--log-on-all-devices",))
    assert (ended.code, ended.out) == (0, "well\n"), ended.err
    assert ended.err.count("ValueError: one bad file") == 3, ended.err
    assert ended.err.count("OSError: never raised") == 1, ended.err


@pytest.mark.parametrize("lingering", ["thread", "pool", "process"])
def test_a_user_defined_excepthook_shows_the_error_once(lingering: str, scripts: Any) -> None:
    """A hook that is installed after ours and does not call it, as that of rich."""
    source = "sys.excepthook = lambda kind, error, trace: print('pretty:', error, file=sys.stderr)\n"
    source += f"if rank == 1:\n    {LINGER[lingering]}    {RAISE}\ntnt.Barrier()\n".replace(")\npool.", "); pool.")
    ended = ended_soon(scripts, source)
    assert ended.code == 1
    assert ended.err.count("ValueError: the cause") == 1, ended.err
    assert ended.lines[-1].startswith("tarantella: rank 1 "), ended.err


def test_a_user_defined_excepthook_does_not_change_the_cause(scripts: Any) -> None:
    source = "sys.excepthook = lambda kind, error, trace: print('pretty:', error, file=sys.stderr)\n"
    source += f"if rank == 1:\n    {RAISE}\n{LINGER['thread']}tnt.Barrier().execute()\n"
    ended = ended_soon(scripts, source)
    assert ended.code == 1
    assert ended.lines[-1].startswith("tarantella: rank 1 "), ended.err
    assert "exit code 1" in ended.lines[-1]


def test_an_excepthook_that_calls_ours(scripts: Any) -> None:
    source = """
ours = sys.excepthook
def hook(*error):
    print("pretty:", error[1], file=sys.stderr)
    ours(*error)
sys.excepthook = hook
tnt.init()
if rank == 0:
    raise ValueError("the cause")
tnt.Barrier()
"""
    ended = ended_soon(scripts, source)
    assert ended.code == 1
    assert ended.err.count("pretty: the cause") == 1, ended.err
    assert ended.err.count("ValueError: the cause") == 1, ended.err


@pytest.mark.parametrize("failing", [0, 1])
def test_a_script_that_ends_before_its_threads(failing: int, scripts: Any) -> None:
    """Python says no code of a SystemExit that was raised without sys.exit before the threads have ended."""
    source = """
from tarantella._job import excepthook
excepthook.SAY_HELD_AFTER = 0.5
tnt.init()
if rank == int(sys.argv[1]):
    threading.Thread(target=time.sleep, args=(6,), name="loader").start()
    raise SystemExit(3)
tnt.Barrier().execute()
"""
    ended = scripts.ranks(2, HEAD + source, str(failing), timeout=60)
    assert ended.code == 3
    said = f"tarantella: rank {failing}: its script has ended, but it still runs thread 'loader'"
    assert ended.lines.count(said) == 1, ended.err
    assert ended.lines[-1].startswith(f"tarantella: rank {failing} "), ended.err


def test_a_rank_that_leaves_with_exit_code_0_is_named(scripts: Any) -> None:
    ended = ended_soon(scripts, "import os\ntnt.init()\nif rank == 1: os._exit(0)\ntnt.Barrier().execute()\n")
    assert ended.code == 86
    assert re.search(
        r"^tarantella: rank 1 \(pid \d+ on \S+\) ended with exit code 0 while other ranks waited for it$",
        ended.err,
        re.MULTILINE,
    ), ended.err


def test_reports_of_two_threads_do_not_mix(scripts: Any) -> None:
    source = """
from tarantella._job import report
def say(letter):
    barrier.wait()
    for number in range(8):
        report.send(report.NOTE, letter * 30_000 + str(number))
barrier = threading.Barrier(2)
if rank == 1:
    threads = [threading.Thread(target=say, args=(letter,)) for letter in "xy"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""
    ended = ended_soon(scripts, source)
    notes = [line.removeprefix("tarantella: rank 1: ") for line in ended.lines]
    assert len(notes) == 16, [note[:50] for note in notes]
    assert all(set(note[:-1]) in ({"x"}, {"y"}) for note in notes)


def test_an_exit_with_a_message(scripts: Any) -> None:
    ended = ended_soon(scripts, "tnt.init()\nif rank == 1: sys.exit('no data')\ntnt.Barrier()\n")
    assert ended.code == 1
    assert ended.lines[0] == "no data"
    assert ended.lines[1].startswith("tarantella: rank 1 ")
    assert len(ended.lines) == 2


def test_one_error_of_all_ranks_is_shown_once(scripts: Any) -> None:
    wait = "import atexit; atexit.register(time.sleep, 2)\n"  # until all have said what they have to say
    source = f"{wait}tnt.init()\ntnt.Barrier()\nraise ValueError(f'no file of rank {{rank}}')\n"
    ended = ended_soon(scripts, source, ranks=4)
    assert ended.code == 1
    assert ended.err.count("Traceback") == ended.err.count("ValueError: no file of rank") == 1, ended.err
    assert "as 3 more ranks did with the same error" in ended.lines[-1]


def test_an_error_in_a_thread_of_another_rank_is_said(scripts: Any) -> None:
    source = """
tnt.init()
def load():
    raise OSError("no such shard")
if rank == 1:
    thread = threading.Thread(target=load, name="loader")
    thread.start()
    thread.join()
tnt.Barrier()
"""
    ended = ended_soon(scripts, source)
    assert ended.code == 0
    (line,) = ended.lines
    assert line.startswith("tarantella: rank 1: exception in thread 'loader': script.py:")
    assert line.endswith(": OSError: no such shard")


def test_what_is_raised_for_another_ranks_failure_is_not_the_cause(scripts: Any) -> None:
    """Whether the rank passes the error on, wraps it in another error, or exits with a code."""
    source = """
tnt.init()
if rank == 1:
    raise ValueError("the cause")
try:
    tnt.Barrier()
except tnt.Error as error:
    if rank == 2: sys.exit(7)
    if rank == 3: raise
    raise RuntimeError("training has failed") from error
"""
    ended = ended_soon(scripts, source, ranks=4)
    assert ended.code == 1
    assert ended.err.count("Traceback") == ended.err.count("ValueError: the cause") == 1, ended.err
    assert "RuntimeError" not in ended.err
    assert ended.lines[-1].startswith("tarantella: rank 1 ")
    assert len(ended.lines) == 5, ended.err


def test_without_the_launcher_nothing_is_changed(scripts: Any) -> None:
    source = """
import sys, threading
before = (sys.excepthook, threading.excepthook, sys.exit, sys.exit.__qualname__)
import tarantella as tnt
tnt.init()
assert before == (sys.excepthook, threading.excepthook, sys.exit, sys.exit.__qualname__)
threading.Thread(target=lambda: (threading.main_thread().join(), print("to its end"))).start()
sys.exit(3)
"""
    ended = scripts.plain(source)
    assert (ended.code, ended.out, ended.err) == (3, "to its end\n", "")


def test_a_save_that_fails_on_the_master(scripts: Any) -> None:
    source = """
import resource
import keras
model = tnt.Model(keras.Sequential([keras.Input((100,)), keras.layers.Dense(100)]))
if rank == 0: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # a full disk
model.save(sys.argv[1])
"""
    ended = scripts.ranks(2, HEAD + source, str(scripts.folder / "all.keras"), timeout=200)
    assert ended.code == 1
    assert ended.err.count("File too large") == 1, ended.err
    assert "all.keras" in ended.err
    assert "its own error says why" not in ended.err
    assert ended.lines[-1].startswith("tarantella: rank 0 "), ended.err
    assert not list(scripts.folder.glob("*keras*"))
    assert not list(scripts.folder.glob(".*keras*"))


ONCE = """
import os, signal
calls, seen = [], set()
def handler(*_): calls.append("handled")
def note(number, _): seen.add(number)
signal.signal(signal.SIGTERM, handler)
import tarantella as tnt
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
assert signal.getsignal(signal.SIGTERM) is handler and signal.signal(signal.SIGTERM, handler) is handler
for process in sys.argv[1].split():
    os.kill(getattr(os, process)(), signal.SIGTERM)
for number in (signal.SIGUSR1, signal.SIGUSR2):  # when they are back, the launcher has forwarded all that came before
    os.kill(os.getppid(), number)
    while number not in seen:
        signal.sigtimedwait([], 0.01)
print(calls, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("order", ["getpid getppid", "getppid getpid"])
def test_a_handler_runs_once_for_a_signal_to_launcher_and_rank(order: str, scripts: Any) -> None:
    """As systemd and `scancel -f` send it."""
    ended = scripts.ranks(1, "import sys\n" + ONCE, order)
    assert ended.out == "['handled']\n", ended.err


STUCK = """
import threading
import keras, numpy as np
import tarantella as tnt
class Stuck(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2 and tnt.get_rank() == 1:
            threading.Event().wait()
model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
model.compile("sgd", "mse", run_eagerly={eagerly}, jit_compile=False)
every = tnt.keras.callbacks.Callback(Stuck(), run_on_all_ranks=True)
model.fit(np.ones((64, 4)), np.ones((64, 2)), 8, verbose=0, callbacks=[every])
"""


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_rank_that_is_stuck_outside_a_step(eagerly: bool, scripts: Any) -> None:
    ended = ended_soon(scripts, STUCK.format(eagerly=eagerly), options=("--stall-timeout=2",))
    assert ended.code == 1
    assert "rank 1 did not arrive within" in ended.err
    assert "gradient" in ended.err
    assert all(f"tarantella: stacks of rank {rank} (pid" in ended.err for rank in (0, 1))
    assert "in on_train_batch_begin" in ended.err
