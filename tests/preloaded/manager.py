"""Keeps one preloaded server (server.py) for each value of the variables that libraries read while they are imported.

Usage: manager.py ADDRESS LOG     (an abstract unix socket, to which clients connect; a file for what servers print)

It prints a line when it listens, and ends when its standard input does, so with the tests that started it. A server
ends with the last process that it has forked.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
AT_IMPORT = (
    "AUTOGRAPH_",
    "CUDA_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "HOME",
    "JAX_",
    "KERAS_",
    "KMP_",
    "LANG",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NPY_",
    "NUMPY_",
    "OMP_",
    "ONEDNN_",
    "PROTOCOL_BUFFERS_",
    "PYTHON",
    "TARANTELLA_TESTS_",
    "TF_",
    "TMPDIR",
    "TZ",
    "XLA_",
)
MOST = 6  # servers, of some 400 MB each


class Servers:
    """Started when first needed; the one that was not needed for longest goes first."""

    def __init__(self, log: Path) -> None:
        self.log = log.open("wb")
        self.running: dict[tuple[tuple[str, str], ...], socket.socket] = {}

    def send(self, environment: dict[str, str], request: bytes, descriptors: list[int]) -> None:
        """Sends a request to the server of this environment, or to a new one where that has ended."""
        known = {name: value for name, value in sorted(environment.items()) if name.startswith(AT_IMPORT)}
        key = tuple(known.items())
        server = self.running.pop(key, None) or self._start(known)
        try:
            socket.send_fds(server, [request], descriptors)
        except OSError:
            server.close()
            server = self._start(known)
            socket.send_fds(server, [request], descriptors)
        self.running[key] = server
        if len(self.running) > MOST:
            self.running.pop(next(iter(self.running))).close()

    def _start(self, environment: dict[str, str]) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours_only = {"TARANTELLA_TESTS_SERVER": f"{SERVER}:{its.fileno()}", "OPENBLAS_NUM_THREADS": "1"}
        # `-m`: the forked processes put what they run in the place of this module, which does not exist
        command = [sys.executable, "-m", "preloaded"]
        streams = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
        subprocess.Popen(command, env={**environment, **ours_only}, pass_fds=[its.fileno()], cwd="/", **streams)
        its.close()
        return ours


def environment_of(process: int) -> dict[str, str]:
    words = Path(f"/proc/{process}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def answer(client: socket.socket, servers: Servers) -> None:
    text, descriptors, _, _ = socket.recv_fds(client, 1 << 18, 250)
    process, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        if user == os.getuid() and text and (environment := environment_of(process)):
            servers.send(environment, f"{process}\0".encode() + text, [client.fileno(), *descriptors])
    finally:
        for each in descriptors:
            os.close(each)


def serve(address: str, log: Path) -> None:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind("\0" + address)
    door.listen(64)
    print("listening", flush=True)
    servers = Servers(log)
    poll = select.poll()
    poll.register(door, select.POLLIN)
    poll.register(0, select.POLLIN)  # nothing is ever written there
    while all(ready == door.fileno() for ready, _ in poll.poll()):
        client, _ = door.accept()
        with client, contextlib.suppress(OSError):  # a client may be killed at any moment
            answer(client, servers)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
