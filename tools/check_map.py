#!/usr/bin/env python3
"""Checks that the map of the Python package in CONTRIBUTING.md has each of its modules, and names none that is gone.

A row names a folder, or modules; one that begins with &nbsp; is in the folder above it. A module is on the map if a row
names it, or if the text of the row of its folder does. All paths of sources that stand in CONTRIBUTING.md must exist.
Prints one line a violation, then exits with 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE = "python/tarantella"
CHAPTER = "## The Python package"
HEAD = "| room |"  # of the map, in that chapter
ROW = re.compile(r"^\| (&nbsp; )?(`[^|]*`) \|(.*)\|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+?)(?:\.py)?`")
SOURCE = re.compile(r"`([\w/.-]+\.(?:py|cpp|h|md|sh))`")
# Each folder has them, for one reason.
OF_FOLDERS = ("__init__", "__main__")


def rows(page: str) -> list[tuple[str, str]]:
    """The places of the map, below the package, each with the text beside it. A folder ends in "/"."""
    chapter = page.partition(f"\n{CHAPTER}\n")[2].partition("\n## ")[0].partition(f"\n{HEAD}")[2]
    found, folder = [], ""
    for inside, names, text in ROW.findall(chapter):
        places = NAMED.findall(names)
        if not inside:
            folder = places[0] if places[0].endswith("/") else ""
        found += [((folder if inside else "") + place, text) for place in places]
    return found


def against_the_tree(page: str, modules: Iterable[str]) -> list[str]:
    """What is wrong with the map of a package that has these modules, as paths below it without their endings."""
    modules = sorted(modules)
    known = dict(rows(page))
    found = [f"the map has {place}, which is not in {PACKAGE}" for place in known if not _is_there(place, modules)]
    for module in modules:
        if module not in known and module.split("/")[-1] not in OF_FOLDERS and not _is_in_a_text(module, known):
            found.append(f"the map has not {module}.py: name it in a row, or in the text of the row of its folder")
    return [f"CONTRIBUTING.md: {each}" for each in found]


def _is_in_a_text(module: str, known: dict[str, str]) -> bool:
    """Whether the text of a folder names the module, or its folder inside that one."""
    parts = module.split("/")
    for at in range(1, len(parts)):
        texts = NAMED.findall(known.get("/".join(parts[:at]) + "/", ""))
        if parts[at] + ("/" if at + 1 < len(parts) else "") in texts:
            return True
    return False


def _is_there(place: str, modules: list[str]) -> bool:
    return any(module.startswith(place) if place.endswith("/") else module == place for module in modules)


def lost_sources(page: str, files: Iterable[str]) -> list[str]:
    """The sources that the page names by a path, or the end of one, and that are none of these files."""
    ends = {"/".join(parts[at:]) for file in files for parts in (file.split("/"),) for at in range(len(parts))}
    return [f"CONTRIBUTING.md: no source {name}" for name in dict.fromkeys(SOURCE.findall(page)) if name not in ends]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    page = (root / "CONTRIBUTING.md").read_text("utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.splitlines() if (root / name).is_file()]
    modules = [
        name.removeprefix(f"{PACKAGE}/").removesuffix(".py")
        for name in files
        if name.startswith(f"{PACKAGE}/") and name.endswith(".py")
    ]
    found = [*against_the_tree(page, modules), *lost_sources(page, files)]
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
