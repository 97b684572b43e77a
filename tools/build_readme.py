"""Build-time metadata of the package: README.md as PyPI shows it.

PyPI has the page alone, so links to files of the repository become links to their place on the web.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {".gif", ".jpg", ".png", ".svg"}
# The target of a link or picture, in Markdown or HTML, without what follows #.
TARGET = re.compile(r"""(?P<before>\]\(|\b(?:href|src|srcset)=")(?P<path>[^)\s"#:]+)""")


def absolute(text: str, source: str, root: Path = ROOT) -> str:
    """`text` with links into `root` made links to `source`, the address of the repository; HEAD is its main branch."""

    def replaced(match: re.Match[str]) -> str:
        path = match["path"]
        if not (root / path).exists():  # such as a list that is called, in a block of code
            return match[0]
        kind = "raw" if Path(path).suffix in PICTURES else "blob"
        return f"{match['before']}{source}/{kind}/HEAD/{path}"

    return TARGET.sub(replaced, text)


def dynamic_metadata(_settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    text = absolute((ROOT / "README.md").read_text("utf-8"), project["urls"]["Source"])
    return {"readme": {"content-type": "text/markdown", "text": text}}
