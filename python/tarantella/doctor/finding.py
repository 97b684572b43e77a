"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass

GOOD, NOTE, BAD = "ok", "note", "WRONG"


@dataclass(frozen=True)
class Finding:
    """One line of the report, and for what is wrong, or could be better, the cure."""

    subject: str
    text: str
    state: str = GOOD
    cure: str = ""

    def lines(self, width: int) -> str:
        """For people. `width` is that of the longest subject."""
        line = f"{self.state:5}  {self.subject:{width}}  {self.text}"
        return f"{line}\n{'':5}  {'':{width}}  -> {self.cure}" if self.cure else line
