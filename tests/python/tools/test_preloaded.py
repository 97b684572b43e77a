"""The preloaded Python (tests/preloaded) is to a script what a started one is, and ends with what stands for it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import jobs
import pytest

SAYS = """
import json, os, resource, signal, sys
import numpy, random
def descriptor(number):
    try:
        return os.fstat(number).st_ino
    except OSError:
        return None
limits = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT")]
print(json.dumps({
    "arguments": sys.argv, "name": __name__, "file": __file__, "path": sys.path,
    "below": sys._getframe().f_back is None, "environment": dict(os.environ), "folder": os.getcwd(),
    "mask": os.umask(0), "cpus": sorted(os.sched_getaffinity(0)), "limits": list(map(resource.getrlimit, limits)),
    "ignored": [int(n) for n in range(1, 65) if signal.getsignal(n) is signal.SIG_IGN],
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "leads": os.getpgrp() == os.getpid(), "descriptors": [descriptor(n) for n in range(30)],
    "policy": open("/proc/self/numa_maps").readline().split()[1],
}))
"""
DRAWS = "import json, numpy, os, random; print(json.dumps([random.random(), float(numpy.random.rand()), os.getpid()]))"


@pytest.fixture
def preloaded() -> str:
    if not os.environ.get("TARANTELLA_TESTS_PROGRAMS"):
        pytest.skip("no preloaded Python")
    return f"{os.environ['TARANTELLA_TESTS_PROGRAMS']}/python3"


def popen(python: str, *words: object, **options: object) -> subprocess.Popen[str]:
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environment = {**jobs.environment(), "TARANTELLA_TESTS_PRELOAD": "numpy", **options.pop("env", {})}  # type: ignore
    return subprocess.Popen([python, *map(str, words)], text=True, env=environment, **options)  # type: ignore


def ended(process: subprocess.Popen[str]) -> jobs.Ended:
    out, err = process.communicate(timeout=60)
    return jobs.Ended(process.returncode, out, err)


CHANGED = """
import ctypes, os, resource, signal, sys
os.setpgrp()
os.umask(0o57)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
call = ctypes.CDLL(None).syscall
is_x86 = os.uname().machine == "x86_64"
# the C library keeps 32 for itself, but a parent may have ignored it
call(13 if is_x86 else 134, 32, (ctypes.c_ulong * 4)(1), None, 8)
call(238 if is_x86 else 237, 2, ctypes.byref(ctypes.c_ulong(1)), ctypes.c_ulong(64))  # memory of node 0, if permitted
os.dup2(0, 25)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_all_that_a_started_process_has_is_handed_over(preloaded: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SAYS)
    env = {"SAID": "ü", "EMPTY": ""}
    words = ["-c", CHANGED, "script.py", "an argument", ""]
    pythons = (sys.executable, preloaded)
    seen = [ended(popen(sys.executable, *words[:2], python, *words[2:], cwd=tmp_path, env=env)) for python in pythons]
    started, forked = (json.loads(each.out) for each in seen)
    for each in (started, forked):
        del each["descriptors"][1:3]  # pipes of their own
        each["environment"].pop("LC_CTYPE", None)  # Python sets it in the C locale
    assert forked == started
    assert started["descriptors"][23] == os.stat("/dev/null").st_ino
    assert started["below"] and started["leads"] and signal.SIGHUP in started["ignored"]
    assert started["blocked"] == [signal.SIGUSR2]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-c", "import sys; sys.exit(5)"], 5),
        (["-c", "raise KeyError('x')"], 1),
        (["-c", "import os; os.kill(os.getpid(), 11)"], -11),
        (["-c", "import os; os._exit(255)"], 255),
        (["-c", "import sys; assert 'keras' not in sys.modules and sys.flags.dev_mode == 0"], 0),
        (["-m", "json.tool", "/dev/null"], 1),
        (["-u", "-c", "import sys; assert 'numpy' not in sys.modules; sys.exit(3)"], 3),  # a real start
        (["nowhere.py"], 2),
    ],
)
def test_it_ends_as_the_script_does(preloaded: str, words: list[str], code: int) -> None:
    assert ended(popen(preloaded, *words)).code == code


def test_two_ranks_have_generators_of_their_own(preloaded: str, scripts: jobs.Scripts) -> None:
    scripts.python = preloaded
    done = scripts.ranks(2, DRAWS, options=("--output-on-all-devices",), TARANTELLA_TESTS_PRELOAD="numpy")
    first, second = (json.loads(line.partition("]: ")[2] or line.partition("] ")[2]) for line in done.out.splitlines())
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_signals_are_passed_on(preloaded: str) -> None:
    source = "import signal; print('ready', flush=True); print(signal.sigwait([signal.SIGUSR1]).name)"
    source = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); " + source
    with popen(preloaded, "-c", source) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "SIGUSR1\n"
    with popen(preloaded, "-c", "import time; print('ready', flush=True); time.sleep(60)") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_descriptors_stay_open_beside_other_processes(preloaded: str) -> None:
    look = "import os; [os.fstat(number) for number in range(3, 9)]; print('all', flush=True); input()"
    dup = "import os, sys; [os.dup2(2, number) for number in range(3, 9)]; os.execv(sys.argv[1], sys.argv[1:])"
    words = ["-c", dup, preloaded, "-c", look]
    started = [popen(sys.executable, *words, stdin=subprocess.PIPE) for _ in range(3)]
    assert [each.communicate("\n", timeout=60) for each in started] == [("all\n", "")] * 3


def test_a_forked_process_dies_with_its_client(preloaded: str) -> None:
    with popen(preloaded, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)") as process:
        handle = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        assert process.stdout.read() == ""  # nothing that could write is left
        assert select.select([handle], [], [], 10)[0]
        os.close(handle)


def test_what_a_server_cannot_import_is_said(preloaded: str) -> None:
    done = ended(popen(preloaded, "-c", "print('ran')", env={"TARANTELLA_TESTS_PRELOAD": "no_such_module"}))
    assert (done.code, done.out) == (70, "")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in done.err


def test_another_server_takes_the_place_of_one_that_was_killed(preloaded: str) -> None:
    env = {"TF_SOME": "killed"}
    server = int(ended(popen(preloaded, "-c", "import os; print(os.getppid())", env=env)).out)
    handle = os.pidfd_open(server)
    os.kill(server, signal.SIGKILL)
    assert select.select([handle], [], [], 10)[0]
    os.close(handle)
    assert ended(popen(preloaded, "-c", "print('ran')", env=env)).out == "ran\n"


ORPHANED = """
import pathlib, signal, subprocess, sys
import jobs
signal.signal(signal.SIGHUP, lambda *_: sys.exit("SIGHUP"))
stopped = subprocess.Popen(["sleep", "60"])
stopped.send_signal(signal.SIGSTOP)
try:
    with jobs.preloaded_pythons(pathlib.Path(sys.argv[1])):
        subprocess.run([jobs.warm("python3"), "-c", ""], check=True)
finally:
    stopped.kill()
"""


def test_the_end_of_a_process_hangs_up_no_group_in_which_others_are_stopped(preloaded: str, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": f"{Path(jobs.__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    done = ended(popen(sys.executable, "-c", ORPHANED, tmp_path, env=environment, start_new_session=True))
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_manager_outlives_a_client_that_is_killed(preloaded: str, tmp_path: Path) -> None:
    address = f"tarantella-tests-{uuid.uuid4().hex}"
    ask = f"import socket; s = socket.socket(1, 5); s.settimeout(30); s.connect('\\0{address}'); s.send(b'0')"
    with jobs.preloading_manager(address, tmp_path / "log") as manager:
        manager.send_signal(signal.SIGSTOP)
        assert ended(popen(sys.executable, "-IS", "-c", ask)).code == 0  # gone before the manager looks
        manager.send_signal(signal.SIGCONT)
        done = ended(popen(preloaded, "-c", "print('ran')", env={"TARANTELLA_TESTS_PRELOADED": address}))
        assert (done.out, done.err) == ("ran\n", "")


def test_a_server_with_a_second_thread_does_not_fork(preloaded: str, tmp_path: Path) -> None:
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    env = {"TARANTELLA_TESTS_PRELOAD": "starts_a_thread", "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{tmp_path}"}
    done = ended(popen(preloaded, "-c", "print('ran')", env=env))
    assert (done.code, done.out) == (70, "")
    assert "the server has 2 threads" in done.err


def test_each_value_that_libraries_read_at_import_has_a_server(preloaded: str) -> None:
    source = "import os; print(os.getppid())"
    values = [{"TF_SOME": "1"}, {"TF_SOME": "2"}, {"XLA_FLAGS": "x"}, {"PYTHONHASHSEED": "7"}, {"OTHER": "1"}, {}]
    servers = [ended(popen(preloaded, "-c", source, env=env)).out for env in values]
    assert len(set(servers)) == 5
    assert servers[-1] == servers[-2]
