"""Imports Keras and its backend once, then forks a process for each script that runs.

The sitecustomize module of tests calls `serve` before Python runs anything else. So a forked process goes on as one
that was started for its script: no Python frame of ours is below the script's. What comes from the client is handed
over (`become`); what libraries have drawn at random while they were imported, the process draws again.

Every fork must have all threads of its parent: the server refuses to fork once it has a second one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import importlib.machinery
import os
import random
import resource
import select
import signal
import socket
import sys
import traceback
import types
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
POLICIES = {"default": 0, "prefer": 1, "bind": 2, "interleave": 3}


def load() -> str:
    """Imports what TARANTELLA_TESTS_PRELOAD names, by default NumPy, Keras and its backend. Returns what failed."""
    usual = f"numpy keras {os.environ.get('KERAS_BACKEND') or 'tensorflow'}"
    try:
        for name in os.environ.get("TARANTELLA_TESTS_PRELOAD", usual).split():
            importlib.import_module(name)
    except Exception:
        return traceback.format_exc()
    gc.collect()
    gc.freeze()
    return ""


class Fork:
    """A forked process and the client that waits for it."""

    def __init__(self, client: socket.socket, process: int):
        self.client, self.process = client, process
        self.ended = os.pidfd_open(process)

    def kill(self) -> None:
        """Kills the process and the group that it leads."""
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError):
                kill(self.process, signal.SIGKILL)

    def collect(self) -> None:
        """Tells the client how the process has ended. What it has left of its group ends, as under the launcher."""
        os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOWAIT)
        self.kill()
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        with contextlib.suppress(OSError):
            self.client.send(b"C" + bytes([code]) if code >= 0 else b"S" + bytes([-code]))
        self.client.close()
        os.close(self.ended)


def serve(descriptor: int) -> None:
    """Returns in each forked process. The server itself ends when its manager and all that it has forked have."""
    failure = load()
    manager = socket.socket(fileno=descriptor)
    forks: dict[int, Fork] = {}  # by the descriptors of their client and their end
    poll = select.poll()
    poll.register(manager, select.POLLIN)
    is_managed = True
    while is_managed or forks:
        for ready, _ in poll.poll():
            if ready == descriptor:
                request, descriptors, _, _ = socket.recv_fds(manager, 1 << 18, 251)
                if not request:
                    is_managed = False
                    poll.unregister(manager)
                    continue
                fork = fork_for(request.decode(errors="surrogateescape").split("\0"), descriptors, failure)
                if fork == "child":  # its descriptors are the client's: no object of ours may close one
                    for each in (manager, *(other.client for other in forks.values())):
                        each.detach()
                    return
                if isinstance(fork, Fork):
                    for number in (fork.client.fileno(), fork.ended):
                        forks[number] = fork
                        poll.register(number, select.POLLIN)
            elif (fork := forks.get(ready)) is None:
                continue  # it has ended in this turn
            elif ready == fork.ended:
                for each in {fork.client.fileno(), fork.ended} & forks.keys():
                    poll.unregister(each)
                    del forks[each]
                fork.collect()
            elif asked := fork.client.recv(1):
                os.kill(fork.process, asked[0])
            else:  # the client is gone
                poll.unregister(ready)
                del forks[ready]
                fork.kill()
    os._exit(0)


def fork_for(request: list[str], descriptors: list[int], failure: str) -> Fork | str | None:
    """Forks, unless that is refused, as after a failure of `load`. Returns "child" in the new process."""
    process, numbers, *words = request
    client = socket.socket(fileno=descriptors[0])
    targets = dict(zip(map(int, numbers.split(",")), descriptors[1:], strict=False))
    threads, server = os.listdir("/proc/self/task"), os.getpid()
    if len(threads) > 1:
        failure = f"the server has {len(threads)} threads, and a forked process would have one"
    elif len(targets) != numbers.count(",") + 1:
        failure = f"of {numbers.count(',') + 1} open descriptors {len(targets)} have arrived"
    fork: Fork | None = None
    if failure:
        refuse(client, failure)
    elif (child := os.fork()) == 0:
        try:
            become(int(process), targets, words, server)
        except BaseException:
            refuse(client, traceback.format_exc())
            os._exit(1)
        client.detach()
        return "child"
    else:
        fork = Fork(client, child)
    for each in descriptors[1:]:
        os.close(each)
    return fork


def refuse(client: socket.socket, why: str) -> None:
    with contextlib.suppress(OSError):
        client.send(b"!" + why.encode(errors="replace")[-4000:])


def become(client: int, descriptors: dict[int, int], words: list[str], server: int) -> None:
    """Makes this process what the client would have been."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    group = os.getpgid(client)
    os.setpgid(0, 0 if group == client else group)
    status = dict(line.split(":\t") for line in Path(f"/proc/{client}/status").read_text().splitlines())
    os.umask(int(status["Umask"], 8))
    for number in signals_in(status["SigIgn"]):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, signals_in(status["SigBlk"]))
    os.sched_setaffinity(0, os.sched_getaffinity(client))
    set_memory_policy(libc, client)
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            resource.setrlimit(getattr(resource, name), resource.prlimit(client, getattr(resource, name)))
    os.chdir(f"/proc/{client}/cwd")
    environment = Path(f"/proc/{client}/environ").read_bytes().split(b"\0")
    os.environb.clear()
    os.environb.update(word.split(b"=", 1) for word in environment if b"=" in word)
    take(descriptors)
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules["runpy"] = Runner(words)


def signals_in(mask: str) -> set[int]:
    """The signals of a mask in /proc, less the two that the C library keeps for itself."""
    return {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}


def set_memory_policy(libc: Any, client: int) -> None:
    """Sets the policy of the client, which stands in the first line about its memory, as in "bind:0"."""
    try:
        with open(f"/proc/{client}/numa_maps") as maps:
            name, _, nodes = maps.readline().split()[1].partition(":")
    except FileNotFoundError:  # a kernel without NUMA
        return
    mask = 0
    for part in filter(None, nodes.split(",")):
        first, _, last = part.partition("-")
        mask |= sum(1 << node for node in range(int(first), int(last or first) + 1))
    arguments = (POLICIES[name], ctypes.byref(ctypes.c_ulong(mask)) if mask else None, ctypes.c_ulong(64))
    if name != "default" and libc.syscall(SET_MEMPOLICY[os.uname().machine], *arguments) != 0:
        raise OSError(ctypes.get_errno(), "set_mempolicy")


def take(descriptors: dict[int, int]) -> None:
    """Gives the client's descriptors their numbers, and closes all others."""
    above = max([*descriptors, 2]) + 1
    moved = {number: fcntl.fcntl(each, fcntl.F_DUPFD, above) for number, each in descriptors.items()}
    os.closerange(0, above)
    for number, each in moved.items():
        os.dup2(each, number)
    for each in map(int, os.listdir("/proc/self/fd")):
        if each >= above:
            with contextlib.suppress(OSError):  # the list's own is closed
                os.close(each)


class Runner(types.ModuleType):
    """Stands for runpy, where the interpreter of the server looks for a function that runs a module.

    The function that it gets is in C, and runs the client's script, module or code.
    """

    def __init__(self, words: list[str]):
        super().__init__("runpy")
        self.words = words

    @property
    def _run_module_as_main(self) -> Any:
        del sys.modules["runpy"]
        first, rest = self.words[0], self.words[1:]
        function: Any = exec
        main = sys.modules["__main__"].__dict__
        if first == "-m":
            import runpy

            function, arguments = runpy._run_module_as_main, (rest[0],)
            sys.path[0], sys.argv = os.getcwd(), ["-m", *rest[1:]]
        elif first == "-c":
            arguments = (compile(rest[0], "<string>", "exec", dont_inherit=True), main)
            sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        else:
            sys.path[0], sys.argv, file = os.path.dirname(os.path.realpath(first)), self.words, os.path.abspath(first)
            loader = importlib.machinery.SourceFileLoader("__main__", file)
            main.update(__file__=file, __cached__=None, __loader__=loader)
            arguments = (compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), main)
        call = ctypes.pythonapi.PyObject_Call
        call.argtypes, call.restype = [ctypes.py_object] * 3, ctypes.py_object
        return functools.partial(call, function, arguments, {})
