"""`tarantella doctor`: checks the installation and the machine."""

from __future__ import annotations

from dataclasses import dataclass

GOOD, NOTE, BAD = "ok", "note", "WRONG"


@dataclass(frozen=True)
class Finding:
    """A line of the report, and the cure of a problem."""

    subject: str
    text: str
    state: str = GOOD
    cure: str = ""

    def lines(self, width: int) -> str:
        """The text of the report. `width` is that of the longest subject."""
        line = f"{self.state:5}  {self.subject:{width}}  {self.text}"
        return f"{line}\n{'':5}  {'':{width}}  -> {self.cure}" if self.cure else line
