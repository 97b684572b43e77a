"""The launcher as a child of this process: started, listened to, and ended with it."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .. import _installed
from . import output

_HERE = Path(__file__).parent
_PIECE = 1 << 16
# Seconds after which a line of the launcher is not its last one, since the job goes on.
_HOLDS_FOR = 5.0


class Ended(NamedTuple):
    """How a job has ended."""

    code: int  # the launcher's exit code; 128 + n for signal n
    line: str  # the launcher's last line, if it has written any


def run(options: list[str], folder: Path) -> Ended:
    """Runs rank.py with this folder on all ranks, and shows what the master prints. Blocks until all have ended.

    If that raises an error, such as KeyboardInterrupt, the ranks have ended as well; they have some seconds for it.
    """
    interpreter = [f"--python-interpreter={sys.executable}"] if sys.executable else []
    command = [_installed.launcher(), *options, *interpreter, "--", str(_HERE / "rank.py"), str(folder)]
    process = subprocess.Popen(
        [sys.executable or "python3", "-IS", str(_HERE / "supervisor.py"), str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # the keys of a terminal reach this process alone, which tells the launcher
        env=_environment(),
    )
    out, err = output.relays()
    with process:
        try:
            _pass_on(process, out, err)
        except BaseException as error:
            _end(process, *((out, err) if isinstance(error, KeyboardInterrupt) else _nowhere()))
            raise
        code = process.wait()
    out.close(show=True)
    code = code if code >= 0 else 128 - code
    return Ended(code, err.close(show=code == 0))


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    if sys.stdout is not None and sys.stdout.isatty():
        environment.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    return environment


def _nowhere() -> tuple[output.Relay, output.Relay]:
    return output.Relay(None, False), output.Relay(None, False)


def _pass_on(process: subprocess.Popen[bytes], out: output.Relay, err: output.Relay) -> None:
    """Until the process has ended. In this thread, since a notebook shows output in the cell whose thread writes it."""
    assert process.stdout and process.stderr
    end = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            for pipe, relay in ((process.stdout, out), (process.stderr, err)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, relay)
            has_ended = False
            while not has_ended:
                ready = [key for key, _ in selector.select(_HOLDS_FOR if err.holds else None)]
                if not ready:
                    err.release()
                has_ended = any(key.data is None for key in ready)
                # At the end, all that the pipes still hold: no process of the job is left to write more.
                for key in list(selector.get_map().values()) if has_ended else ready:
                    if key.data is not None and not _read(key.fd, key.data, has_ended):
                        selector.unregister(key.fileobj)
    finally:
        os.close(end)


def _read(pipe: int, relay: output.Relay, all_of_it: bool) -> bool:
    """Returns False at the end of the pipe."""
    while True:
        try:
            data = os.read(pipe, _PIECE)
        except BlockingIOError:
            return True
        relay.write(data)
        if not data or not all_of_it:
            return bool(data)


def _end(process: subprocess.Popen[bytes], out: output.Relay, err: output.Relay) -> None:
    """Ends the job; a further interrupt ends it at once."""
    assert process.stdin
    process.stdin.close()
    while process.poll() is None:
        try:
            _pass_on(process, out, err)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except Exception:  # of the stream to which it writes
            out, err = _nowhere()
