"""What the master prints, shown where the caller's own output appears."""

from __future__ import annotations

import codecs
import re
import sys
from typing import TextIO

_OURS = "tarantella: "
_NOTES = ("tarantella: WARNING", "tarantella: INFO")
_KEPT = 4096  # characters
_ADVICE = re.compile(rf"^({_OURS}[^\n]*\ba smaller )-n\b", re.MULTILINE)


class Relay:
    """Passes bytes of UTF-8 on to sys.stdout or sys.stderr as they come, carriage returns and backspaces included.

    With `holds_back`, a line of the launcher's stays here while it is the last one, until `release`: it may say how the
    job has ended, and the caller raises an error with it. Its advice names `n` instead of the launcher's option.
    """

    def __init__(self, stream: TextIO | None, holds_back: bool) -> None:
        self._stream, self._holds_back = stream, holds_back
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = self._tail = ""
        self._begins_line = True  # whether what comes after the shown text begins a line

    def write(self, data: bytes, final: bool = False) -> None:
        text = self._held + self._decoder.decode(data, final)
        if self._holds_back:
            text = _ADVICE.sub(r"\1n", text)
        shown = len(text)
        if self._holds_back:
            self._tail = (self._tail[: len(self._tail) - len(self._held)] + text)[-_KEPT:]
            begin = text.rfind("\n", 0, -1) + 1
            line = text[begin:]
            if (begin or self._begins_line) and self._may_be_last(line):
                shown = begin
        self._held = text[shown:]
        self._show(text[:shown])

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def release(self) -> None:
        """Shows what is held back."""
        self._show(self._held)
        self._held = ""

    def close(self, show: bool) -> str:
        """Ends the text, and shows a line that was held back or not. Returns the launcher's last line, or ""."""
        self.write(b"", final=True)
        if show:
            self.release()
        # An srun that has started the launcher has its own last words.
        found = re.search(rf"{_OURS}(?!WARNING|INFO)([^\n]*)\n?(?:srun: [^\n]*\n)*\Z", self._tail)
        return found[1] if found else ""

    @staticmethod
    def _may_be_last(line: str) -> bool:
        return (line.startswith(_OURS) and not line.startswith(_NOTES)) or _OURS.startswith(line)

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


def relays() -> tuple[Relay, Relay]:
    """For stdout and stderr of this process, as they are now."""
    return Relay(sys.stdout, False), Relay(sys.stderr, True)
