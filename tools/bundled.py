#!/usr/bin/env python3
"""Checks that a wheel carries the licence of all that its build has compiled or linked in: licenses/*.txt.

Usage: tools/bundled.py WHEEL BUILD_FOLDER MAPS
The build folder has CMake's compile_commands.json, and the folder MAPS the linker's map of each binary. Prints what has
no licence, and licences of what is not there, one a line, then exits with 1.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Which files belong to what; the first pattern counts. Those without a licence are interfaces: nothing of them is in
# the wheel but declarations.
OWNERS = (
    (r"/nanobind/ext/robin_map/", "robin_map"),
    (r"/nanobind/", "nanobind"),
    (r"/include/python3\.\d+t?$", None),
    (r"/lib(stdc\+\+|stdc\+\+fs|gcc|gcc_eh)\.a$|/crt(begin|end)\w*\.o$", "gcc_runtime"),
    (r"/(S?crt[1in]|libc_nonshared)\.(o|a)$", "glibc"),
)


def compiled(commands: list[dict[str, str]]) -> set[str]:
    """The sources, and the folders in which the compiler looks for headers apart from its own."""
    found = set()
    for each in commands:
        words = shlex.split(each["command"])
        found.add(each["file"])
        found.update(word[2:] for word in words if word.startswith("-I"))
        found.update(words[at + 1] for at, word in enumerate(words) if word == "-isystem")
    return found


def linked(linker_map: str) -> set[str]:
    """The object files and archives with an absolute path. CMake names those of the project from the build folder."""
    return set(re.findall(r"^LOAD (/.*\.[ao])$", linker_map, flags=re.MULTILINE))


def owner(path: str) -> str | None:
    """Raises LookupError for a path that no pattern knows."""
    for pattern, name in OWNERS:
        if re.search(pattern, path):
            return name
    raise LookupError(f"{path} is in the wheel: add its licence to licenses/, and its pattern to tools/bundled.py")


def mistakes(paths: set[str], licences: set[str]) -> list[str]:
    """What is wrong with a wheel that was built from `paths` and carries `licences`."""
    names, wrong = set(), []
    for path in sorted(paths):
        try:
            names.add(owner(path))
        except LookupError as error:
            wrong.append(str(error))
    names.discard(None)
    wrong += [f"the wheel has {name} in it, but not licenses/{name}.txt" for name in sorted(names - licences)]
    if not wrong:
        wrong += [f"licenses/{name}.txt is of nothing in the wheel" for name in sorted(licences - names)]
    return wrong


def main(wheel: Path, build: Path, maps: Path) -> int:
    files = list(maps.glob("*.map"))
    if not files:
        print(f"{maps} has no map of the linker: remove {build} and build again")
        return 1
    paths = compiled(json.loads((build / "compile_commands.json").read_text("utf-8")))
    for file in files:
        paths |= linked(file.read_text("utf-8"))
    foreign = {path for path in paths if not Path(path).is_relative_to(ROOT) or "/glibc-" in path}
    names = zipfile.ZipFile(wheel).namelist()
    licences = {Path(name).stem for name in names if re.search(r"\.dist-info/licenses/licenses/[^/]+\.txt$", name)}
    found = mistakes(foreign, licences)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
