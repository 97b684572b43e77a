"""More ranks than this machine has cores: the launcher warns of it, which tests of something else do not expect."""

from __future__ import annotations

import re

_WARNING = re.compile(r"^tarantella: WARNING: (?:hosts? [\w, ]+: )?\d+ ranks share \d+ cores?: .*\n", re.MULTILINE)


def without_crowding(err: str) -> str:
    """What a job said on stderr, except for that warning."""
    return _WARNING.sub("", err)
