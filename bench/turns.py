"""Lets rows take turns, so that a machine whose speed drifts is as fast or slow for all of them.

All rows are started, one after the other. Then each cycle has one turn of every row that measures the same subject, and
the order is reversed from cycle to cycle. All processes of the other rows are stopped (SIGSTOP) meanwhile, so that no
thread of them takes a core. A process asks for its next turn through a socket in the folder of its row.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rows
from processes import Command, Job

NAME = "turns"  # of the socket
LOOK = 0.1  # seconds between two looks at processes that start


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Turns:
    """The side of a process of a row, which has `subjects` of rows.IN_TURNS in turns and runs alone in all others."""

    def __init__(self, folder: Path, subjects: Sequence[str]) -> None:
        self._socket, self.subjects = _socket(), subjects
        if subjects:
            self._socket.connect(str(folder / NAME))

    def take(self, subject: str) -> None:
        """Ends a turn and waits for the next one, in which `subject` is measured."""
        if subject in self.subjects:
            self._socket.sendall(subject.encode())
            if not self._socket.recv(1):
                raise ConnectionError("nobody gives turns any more")


class Player:
    """A row whose processes wait for their next turn, or have ended. A context manager that ends them."""

    def __init__(self, commands: list[Command], processes: int, what: str) -> None:
        self.seconds = 0.0  # until now, less the turns of others
        self.subject = ""  # of its next turn; none if it has ended
        self._commands, self._count = commands, processes
        self._job = Job(what)
        self._processes: list[socket.socket] = []
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Player:
        """Starts the processes, and returns when they wait for their first turn."""
        with self._ends, self._timed():
            self._ends.enter_context(self._job)
            with _socket() as listener:
                listener.bind(str(self._job.folder / NAME))
                listener.listen(self._count)
                listener.settimeout(LOOK)
                self._job.start(self._commands)
                deadline = time.monotonic() + self._job.seconds
                while len(self._processes) < self._count:
                    self._accept(listener, deadline)
            self._hear()
            self._ends = self._ends.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    @contextlib.contextmanager
    def _timed(self) -> Any:
        began = time.monotonic()
        yield
        self.seconds += time.monotonic() - began

    def _accept(self, listener: socket.socket, deadline: float) -> None:
        try:
            process, _ = listener.accept()
        except TimeoutError:
            self._job.check()
            if time.monotonic() > deadline:
                self._job.fail("did not come to its first turn in time")
        else:
            process.settimeout(self._job.seconds)
            self._processes.append(self._ends.enter_context(process))

    def turn(self) -> None:
        with self._timed():
            self._job.resume()
            with contextlib.suppress(ConnectionError):  # _hear says which job has ended
                for process in self._processes:
                    process.sendall(b"!")
            self._hear()

    def _hear(self) -> None:
        """Returns when all processes wait for their next turn, and stops them, or when all have ended."""
        try:
            self.subject = min(process.recv(64).decode() for process in self._processes)
        except TimeoutError:
            self._job.fail("did not end its turn in time")
        except ConnectionError:
            self.subject = ""
        if self.subject:
            self._job.suspend()
        else:
            self._job.wait()

    def outputs(self) -> list[Any]:
        return self._job.outputs()


class Played(NamedTuple):
    """What the processes of a row wrote, and the seconds that it took, less the turns of others."""

    outputs: list[Any]
    seconds: float


def play(commands: dict[str, tuple[list[Command], int]], what: str) -> dict[str, Played]:
    """Returns what each row measured, by the rows' names. The numbers are those of their processes."""
    with contextlib.ExitStack() as ends:
        players = {
            name: ends.enter_context(Player(its_commands, count, f"{what}, {name}"))
            for name, (its_commands, count) in commands.items()
        }
        order = list(players.values())
        while subjects := {player.subject for player in order} - {""}:
            subject = min(subjects, key=rows.IN_TURNS.index)
            for player in order:
                if player.subject == subject:
                    player.turn()
            order.reverse()
        return {name: Played(player.outputs(), player.seconds) for name, player in players.items()}
