"""Stands for the Python interpreter in tests: a preloaded server forks the process that runs the script.

Usage: python -IS client.py SCRIPT | -m MODULE | -c CODE [ARGUMENT...]

`TARANTELLA_TESTS_PRELOADED` names the manager of the servers (manager.py). Without it, and for what a fork cannot have
(other options of Python, a terminal), this process becomes the interpreter itself. Otherwise it lives as long as the
forked one: it passes signals on, and ends as that one does. If it is killed, so is the other.

It starts for each rank of a test, so it imports little.
"""

import _socket
import os
import signal
import sys
from array import array

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTERM,
    signal.SIGCONT,
)
NO_SERVER = 70  # the exit code if no server has run the script; EX_SOFTWARE of sysexits.h


def can_be_forked(words: list[str]) -> bool:
    if not words or "TARANTELLA_TESTS_PRELOADED" not in os.environ or any(map(os.isatty, (0, 1, 2))):
        return False
    return words[0] in ("-m", "-c") or os.path.isfile(words[0])


def ask(words: list[str]) -> "_socket.socket":
    """Asks for a process that runs `words` with the descriptors of this one. The server reads the rest in /proc."""
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    server.connect("\0" + os.environ["TARANTELLA_TESTS_PRELOADED"])
    numbers = array("i")
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) != server.fileno() and os.path.exists(f"/proc/self/fd/{entry}"):  # less the list's own
            numbers.append(int(entry))
    text = "\0".join([",".join(map(str, numbers)), *words])
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)]
    server.sendmsg([text.encode(errors="surrogateescape")], rights)
    return server


def pass_on(server: "_socket.socket", caught: int) -> None:
    try:  # noqa: SIM105
        server.send(bytes([caught]))
    except OSError:  # the other process has ended, and its answer waits (contextlib is slow to import)
        pass


def main() -> None:
    words = sys.argv[1:]
    if not can_be_forked(words):
        os.execv(sys.executable, [sys.executable, *words])
    server = ask(words)
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda caught, _: pass_on(server, caught))
    answer = server.recv(8192)
    kind, number = answer[:1], int.from_bytes(answer[1:2], "little")
    if kind == b"C":
        os._exit(number)
    if kind == b"S":
        os.closerange(3, 1024)  # what ends now holds nothing open
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    os.write(2, b"preloaded Python: " + (answer[1:] or b"the server has ended") + b"\n")
    os._exit(NO_SERVER)


main()
