"""Runs the launcher as a child of this process, shows the output of rank 0, and ends the job with this process."""

from __future__ import annotations

import codecs
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from .. import _installed

_HERE = Path(__file__).parent
_PIECE = 1 << 16
# Seconds after which a line of the launcher cannot be its last one, because the job continues.
_HOLDS_FOR = 5.0
_OURS = "tarantella: "
_NOTES = ("tarantella: WARNING", "tarantella: INFO")
_KEPT = 4096  # characters
_ADVICE = re.compile(rf"^({_OURS}[^\n]*\ba smaller )-n\b", re.MULTILINE)


def run(options: list[str], folder: Path) -> tuple[int, str]:
    """Runs rank.py with this folder on all ranks, and shows the output of rank 0. Blocks until all ranks have ended.

    Also if it raises an error, such as KeyboardInterrupt; then the ranks have some seconds to end. Returns the
    launcher's exit code, 128 + n for signal n, and its last line, which may be empty.
    """
    interpreter = [f"--python-interpreter={sys.executable}"] if sys.executable else []
    command = [_installed.launcher(), *options, *interpreter, "--", str(_HERE / "rank.py"), str(folder)]
    environment = dict(os.environ)
    if sys.stdout is not None and sys.stdout.isatty():
        environment.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    process = subprocess.Popen(
        [sys.executable or "python3", "-IS", str(_HERE / "supervisor.py"), str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C of a terminal reaches only this process, which ends the launcher
        env=environment,
    )
    out, err = Relay(sys.stdout), Relay(sys.stderr, holds_back=True)
    with process:
        try:
            _pass_on(process, out, err)
        except BaseException as error:
            _end(process, *((out, err) if isinstance(error, KeyboardInterrupt) else (Relay(), Relay())))
            raise
        code = process.wait()
    out.close(show=True)
    code = code if code >= 0 else 128 - code
    return code, err.close(show=code == 0)


def _pass_on(process: subprocess.Popen[bytes], out: Relay, err: Relay) -> None:
    """Passes output on until the process has ended. In this thread, because notebooks show output by thread."""
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
                ready = [key for key, _ in selector.select(_HOLDS_FOR if err.held else None)]
                if not ready:
                    err.release()
                has_ended = any(key.data is None for key in ready)
                # At the end, read everything: no process of the job is left to write more.
                for key in list(selector.get_map().values()) if has_ended else ready:
                    if key.data is not None and not _read(key.fd, key.data, has_ended):
                        selector.unregister(key.fileobj)
    finally:
        os.close(end)


def _read(pipe: int, relay: Relay, all_of_it: bool) -> bool:
    """Reads once, or with `all_of_it` until the pipe is empty. Returns False at the end of the pipe."""
    while True:
        try:
            data = os.read(pipe, _PIECE)
        except BlockingIOError:
            return True
        relay.write(data)
        if not data or not all_of_it:
            return bool(data)


def _end(process: subprocess.Popen[bytes], out: Relay, err: Relay) -> None:
    """Ends the job; a further interrupt ends it at once."""
    assert process.stdin
    process.stdin.close()
    while process.poll() is None:
        try:
            _pass_on(process, out, err)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except Exception:  # of the stream to which it writes
            out, err = Relay(), Relay()


class Relay:
    """Passes bytes of UTF-8 on to a stream as they come, carriage returns and backspaces included. None discards them.

    With `holds_back`, a line of the launcher is not shown while it is the last one, until `release`: it may explain the
    end of the job, and the caller raises an error with it. Its advice names `n` in place of the launcher's option.
    """

    def __init__(self, stream: TextIO | None = None, holds_back: bool = False) -> None:
        self._stream, self._holds_back = stream, holds_back
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.held = self._tail = ""
        self._begins_line = True  # whether the shown text ends with a line end

    def write(self, data: bytes, final: bool = False) -> None:
        text, held = self.held + self._decoder.decode(data, final), ""
        if self._holds_back:
            text = _ADVICE.sub(r"\1n", text)
            self._tail = (self._tail[: len(self._tail) - len(self.held)] + text)[-_KEPT:]
            begin = text.rfind("\n", 0, -1) + 1
            line = text[begin:]
            is_ours = line.startswith(_OURS) or _OURS.startswith(line)
            if (begin or self._begins_line) and is_ours and not line.startswith(_NOTES):
                text, held = text[:begin], line
        self.held = held
        self._show(text)

    def release(self) -> None:
        """Shows the line that is held back."""
        self._show(self.held)
        self.held = ""

    def close(self, show: bool) -> str:
        """Ends the text. With `show`, shows a line that is held back. Returns the launcher's last line, or ""."""
        self.write(b"", final=True)
        if show:
            self.release()
        # An srun that has started the launcher writes lines after it.
        found = re.search(rf"{_OURS}(?!WARNING|INFO)([^\n]*)\n?(?:srun: [^\n]*\n)*\Z", self._tail)
        return found[1] if found else ""

    def _show(self, text: str) -> None:
        if not text or self._stream is None:
            return
        self._begins_line = text.endswith("\n")
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()
