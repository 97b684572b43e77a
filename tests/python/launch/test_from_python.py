"""`tarantella.run`: results, output, errors and ends of ranks that Python starts."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from network_hosts import processes_with

import tarantella as tnt
from tarantella.from_python import job, outcome, payload

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[3]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks cannot import a module of tests


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """No process, and no file in the folder for temporary files or the current one."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in list(os.environ):
        if name.startswith(("TNT_", "SLURM", "PBS_", "LSB_")):
            monkeypatch.delenv(name)
    value = uuid.uuid4().hex
    folders = [tmp_path / name for name in ("temporary", "records", "current")]
    for folder in folders:
        folder.mkdir()
    for name, folder in zip(("TMPDIR", "XDG_RUNTIME_DIR"), folders[:2], strict=True):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("TEST_MARK", value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.chdir(folders[2])
    yield
    assert processes_with(f"TEST_MARK={value}") == []
    left = [path for folder in folders for path in folder.rglob("*") if path != folders[1] / "tarantella"]
    assert left == []


class OddError(ValueError):
    """An error that exists nowhere but here."""


class AwkwardError(Exception):
    def __init__(self, one, two):
        super().__init__("awkward")
        self.two = two


class CodeError(OSError):
    def __init__(self, code, path):
        super().__init__(code, "no such code", path)


class PrefixedError(ValueError):
    def __init__(self, text):
        super().__init__(f"wrong: {text}")


class LockError(AwkwardError):
    def __init__(self):
        super().__init__(1, threading.Lock())


def place(scale, add=0):
    return tnt.get_rank() * scale + add, tnt.get_size()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_come_in_order(ranks):
    assert tnt.run(place, ranks, (10,), {"add": 1}) == [(rank * 10 + 1, ranks) for rank in range(ranks)]


def test_a_plain_script(launcher):
    """What it defines and imports travels, and comes back; it loads neither a framework nor the core."""
    (launcher.folder / "code").mkdir()
    launcher.script("def triple(x):\n    return 3 * x\n", "code/beside.py")
    launcher.script(
        """
        import sys
        import beside
        import tarantella as tnt

        class Box:
            def __init__(self, value):
                self.value = value

        def work(x):
            print("rank", tnt.get_rank(), sys.argv[1], sys.stdout.isatty())
            return Box(beside.triple(x) + offset)

        offset = 1
        if __name__ == "__main__":
            boxes = tnt.run(work, n=2, args=(5,))
            assert not {"keras", "tensorflow", "tarantella._core"} & set(sys.modules)
            print([box.value for box in boxes], all(type(box) is Box for box in boxes))
        """,
        "code/script.py",
    )
    done = launcher.run("code/script.py", "word", program=sys.executable)
    assert (done.returncode, done.out, done.err) == (0, "rank 0 word False\n[16, 16] True\n", "")


def test_on_a_terminal_ranks_write_as_to_one(launcher, open_terminal):
    launcher.script("""
        import sys
        import tarantella as tnt
        if __name__ == "__main__":
            print("terminals:", *tnt.run(lambda: sys.stdout.isatty(), n=2))
    """)
    launcher.executable = sys.executable
    terminal = open_terminal("script.py")
    assert terminal.wait() == 0
    assert b"terminals: True False" in terminal.text


class Stream(io.StringIO):
    """Calls `then` when the word has come."""

    def __init__(self, word, then):
        super().__init__()
        self.word, self.then = word, then

    def write(self, text):
        super().write(text)
        if self.word in self.getvalue() and self.then is not None:
            then, self.then = self.then, None
            then()
        return len(text)


def test_output_is_live(monkeypatch):
    """The rank goes on only when its first words are shown."""
    os.mkfifo("door")

    def speak():
        print("10 %", end="\r", flush=True)
        with open("door") as door:
            print(door.read(), "20 %\b\b\b30 % ─█", flush=True)

    stream = Stream("10 %", lambda: Path("door").write_text("opened"))
    monkeypatch.setattr(sys, "stdout", stream)
    tnt.run(speak, 1)
    Path("door").unlink()
    assert stream.getvalue() == "10 %\ropened 20 %\b\b\b30 % ─█\n"


def test_a_note_of_the_launcher_is_shown_while_the_job_goes_on(monkeypatch):
    os.mkfifo("door")

    def work():
        if tnt.get_rank() == 1:
            threading.Thread(target=lambda: 1 / 0).start()
            Path("door").read_text()

    stream = Stream("exception in thread", lambda: Path("door").write_text("opened"))
    monkeypatch.setattr(sys, "stderr", stream)
    tnt.run(work, 2)
    Path("door").unlink()
    assert stream.getvalue().startswith("tarantella: rank 1: exception in thread ")


TEXT = "tarantella: WARNING: ü\na line\n 5 %\rtarantella: rank 1: a note\nmore\ntarantella: no last line\n+"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_no_piece_of_the_output_is_lost(size):
    for last in ("tarantella: rank 1 (pid 5 on h) ended\n", "\n", "tarant", "no newline"):
        stream = io.StringIO()
        relay = job.Relay(stream, holds_back=True)
        data = f"{TEXT}\n{last}".encode()
        for begin in range(0, len(data), size):
            relay.write(data[begin : begin + size])
        assert relay.close(show=False) == ("rank 1 (pid 5 on h) ended" if "rank" in last else "")
        assert stream.getvalue() == TEXT + "\n" + ("" if last.startswith("tarant") else last)
    relay.write(b"\ntarantella: rank 1 ended\nsrun: error: n1\n")
    assert relay.close(show=False) == "rank 1 ended"


def test_the_launchers_advice_names_the_argument():
    stream = io.StringIO()
    relay = job.Relay(stream, holds_back=True)
    relay.write(b"tarantella: WARNING: 4 ranks share 2 cores: use a smaller -n, or more cores\nuse a smaller -n\n")
    relay.close(show=True)
    assert stream.getvalue().splitlines() == [
        "tarantella: WARNING: 4 ranks share 2 cores: use a smaller n, or more cores",
        "use a smaller -n",
    ]


def fail(rank, error):
    if tnt.get_rank() == rank:
        print("soon", flush=True)
        raise error
    tnt.Barrier().execute()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_error_is_raised_with_its_traceback(rank, capfd, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.raises(OddError, match="an odd one") as raised:
        tnt.run(fail, 2, (rank, OddError("an odd one")))
    cause = str(raised.value.__cause__)
    assert "in fail\n    raise error\n" in cause
    assert f"\n\nrank {rank} (pid " in cause
    assert sys.stderr.getvalue() == ""  # once is enough


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (AwkwardError(1, 2), {"args": ("awkward",), "two": 2}),
        (CodeError(2, "here"), {"errno": 2, "filename": "here"}),
        (PrefixedError("this"), {"args": ("wrong: this",)}),
        (OddError("odd"), {"args": ("odd",)}),
    ],
)
def test_an_error_keeps_its_class_whatever_its_init_takes(tmp_path, error, attributes):
    outcome.save_error(tmp_path, 1, error)
    back = outcome.failure(tmp_path, 1, "rank 1 (pid 5 on h) ended")
    assert type(back) is type(error) and str(back) == str(error)
    assert {name: getattr(back, name) for name in attributes} == attributes


def leave():
    if tnt.get_rank() == 0:
        tnt.Barrier().execute()


def die():
    if tnt.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tnt.Barrier().execute()


ERRORS = {
    "it holds what stays on its rank": (lambda: fail(1, LockError()), RuntimeError, "^LockError: awkward$"),
    "a rank left": (leave, tnt.PeerLostError, "rank 1 .*let every rank make the same calls"),
    "a rank was killed": (die, RuntimeError, r"^rank 1 \(pid \d+ on .*\) was killed by signal 9 \(SIGKILL\)"),
    "an exit code": (lambda: sys.exit(3), RuntimeError, r"^rank \d .* ended with exit code 3"),
    "no result": (lambda: os._exit(0), RuntimeError, "rank 0 ended without a result"),
    "a result that stays": (
        lambda: threading.Lock(),
        TypeError,
        "result of rank ., lock: cannot pickle '_thread.lock'",
    ),
    "a rank that starts ranks": (lambda: tnt.run(leave, 1), RuntimeError, "this process is a rank of a job"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_how_ranks_fail(what):
    function, kind, match = ERRORS[what]
    with pytest.raises(kind, match=match):
        tnt.run(function, 2)


def test_an_exit_with_0_is_a_success():
    assert tnt.run(lambda: sys.exit(), 2) == [None, None]


LOCK = threading.Lock()
REFUSED = {
    "an array of numbers": ((leave, np.array([2, 3])), TypeError, "whole number"),
    "no rank": ((leave, 0), ValueError, "n, the number of ranks, must be from 1 to 4096"),
    "text": ((leave, "4"), TypeError, "whole number"),
    "a truth": ((leave, True), TypeError, "whole number"),
    "too many": ((leave, 5000), ValueError, "n, the number of ranks, must be from 1 to 4096"),
    "no function": ((4,), TypeError, "must be a function"),
    "one argument": ((place, 2, "ab"), TypeError, "tuple or list"),
    "keywords": ((place, 2, (1,), ["add"]), TypeError, "dict"),
    "a variable": (
        (lambda: (lambda: LOCK)(), 2),
        TypeError,
        "the variable 'LOCK' of .*cannot pickle.*create it inside",
    ),
    "an argument": ((place, 2, (1, LOCK)), TypeError, r"args\[1\] to the ranks: cannot pickle"),
    "no hostfile": ((leave, 2, (), None, "nowhere"), ValueError, "cannot read hostfile 'nowhere'"),
    "no hosts": ((leave, 2, (), None, []), ValueError, "hosts is empty"),
    "no host": ((leave, 2, (), None, ["a b"]), ValueError, "such as 'node1' or 'node1:4'"),
    "few slots": ((leave, 3, (), None, ["node1:2"]), ValueError, "3 ranks are more than the 2 slots .*a smaller n,"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    arguments, kind, match = REFUSED[what]
    with pytest.raises(kind, match=match) as raised:
        tnt.run(*arguments)
    assert "\n" not in str(raised.value)


def test_what_does_not_fit_into_memory_for_all_ranks(monkeypatch):
    monkeypatch.setattr(payload, "_room", lambda: 1 << 21)
    data = bytes(1 << 20)
    assert tnt.run(len, 1, (data,)) == [1 << 20]
    with pytest.raises(
        MemoryError, match=r"take 1.0 MiB, which each of 3 ranks needs, but only 2.0 MiB .*load the data"
    ):
        tnt.run(len, 3, (data,))


def test_an_interrupt_ends_the_ranks(monkeypatch):
    def wait():
        try:
            print("ready", flush=True)
            signal.pause()
        finally:
            print("ended", flush=True)

    stream = Stream("ready\n", lambda: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        tnt.run(wait, 2)
    assert stream.getvalue() == "ready\nended\n"
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_with_the_script(launcher, number):
    launcher.script("""
        import pathlib, signal
        import tarantella as tnt
        def wait():
            pathlib.Path(f"ready{tnt.get_rank()}").touch()
            signal.pause()
        tnt.run(wait, 2)
    """)
    script = launcher.start("script.py", program=sys.executable, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    launcher.wait_for_files("ready0", "ready1")
    assert next(path.name for path in Path(tempfile.gettempdir()).iterdir()).startswith("tarantella-run-")
    os.kill(script.pid, number)
    script.wait(timeout=30)
    launcher.wait_for_none()


def test_the_errors_page_has_every_message():
    page = " ".join((ROOT / "docs/errors.md").read_text(encoding="utf-8").split())
    missing = []
    for file in (ROOT / "python/tarantella/from_python").glob("*.py"):
        for each in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(each, ast.Call) and getattr(each.func, "id", "").endswith("Error"):
                texts = [node.value for node in ast.walk(each) if isinstance(node, ast.Constant)]
                longest = max((text for text in texts if isinstance(text, str)), key=len, default="")
                missing += [longest] if longest.strip(" :;,(") not in page else []
    assert missing == []
