#!/usr/bin/env python3
"""Checks that the rooms of the C++ core include only what the list below allows.

Prints one line a violation, then exits with 1. An include is judged by the folder it names first, in quotes
or in <...>; other people's headers are free.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

# The room of a file -> what it may include, as prefixes of the included path; its own folder it always may.
ALLOWED: dict[str, tuple[str, ...]] = {
    "include/": (),
    "src/base/": (),
    "src/runtime/": ("base/",),
    "src/transport/": ("base/", "runtime/"),
    "src/collective/": ("base/", "transport/link.h"),
    "src/engine/": ("base/", "transport/link.h", "collective/"),
    "src/launch/": ("base/", "runtime/"),
    # The place where the parts are put together: it creates the transports, and implements the public header.
    "src/capi/": ("base/", "runtime/", "transport/", "collective/", "engine/", "tarantella/"),
    "bindings/": ("tarantella/",),
}
ROOMS = ("base", "runtime", "transport", "collective", "engine", "launch", "capi")
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".inc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def is_ours(name: str) -> bool:
    return name.split("/")[0] in (*ROOMS, "tarantella")


def is_allowed(room: str, name: str) -> bool:
    own = room.removeprefix("src/") if room != "include/" else "tarantella/"
    return name.startswith((own, *ALLOWED[room]))


def violations_in(file: Path, root: Path) -> list[str]:
    place = file.relative_to(root).as_posix()
    room = next((known for known in ALLOWED if place.startswith(known)), None)
    if room is None:
        return [f"{place}: no room of this name; add it to tools/check_includes.py"] if _in_src(place) else []
    text = file.read_text(encoding="utf-8")
    found = []
    for match in INCLUDE.finditer(text):
        quoted, angled = match.groups()
        name = quoted or angled
        line = text.count("\n", 0, match.start()) + 1
        if quoted and name.startswith(("./", "../")):
            found.append(f'{place}:{line}: "{name}": name the file from its room, without . and ..')
        elif quoted and "/" not in name:
            if not (file.parent / name).exists():
                found.append(f'{place}:{line}: "{name}": not beside this file; name it from its room')
        elif is_ours(name) and not is_allowed(room, name):
            may = ", ".join(ALLOWED[room]) or "nothing"
            found.append(f'{place}:{line}: {room} may not include "{name}" (beside itself it may: {may})')
    return found


def _in_src(place: str) -> bool:
    return place.startswith("src/") and place.count("/") > 1


def check(root: Path) -> list[str]:
    files = (
        file
        for top in ("include", "src", "bindings")
        for file in sorted((root / top).rglob("*"))
        if file.suffix in SUFFIXES and file.is_file()
    )
    return [violation for file in files for violation in violations_in(file, root)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = check(parser.parse_args().root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
