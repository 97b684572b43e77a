#!/usr/bin/env python3
"""Checks that the rooms of the C++ core, and those of the Python package, include only what the lists below allow.

Private names of Keras may stand in keras/private.py only: `_name` in an attribute, or as a string, fails elsewhere.

Prints one line a violation, then exits with 1. An include is judged by the folder it names first, in quotes
or in <...>; other people's headers are free. Imports of Python are judged wherever they stand in a file.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The room of a file -> what it may include, as prefixes of the included path; its own folder it always may.
_OF_LAUNCH = ("system", "cli", "output", "ending")
ALLOWED: dict[str, tuple[str, ...]] = {
    "include/": (),
    "src/base/": (),
    "src/runtime/": ("base/",),
    "src/timeline/": ("base/", "runtime/"),
    "src/transport/": ("base/", "runtime/"),
    "src/collective/internode/": ("base/", "transport/node_memory.h", "transport/endpoint.h", "collective/"),
    "src/collective/": ("base/", "transport/node_memory.h"),
    "src/engine/": ("base/", "timeline/timeline.h", "collective/"),
    # From below to above; what is beside these folders puts them together.
    "src/launch/system/": ("base/", "runtime/topology/"),
    "src/launch/cli/": ("base/", "launch/system/"),
    "src/launch/hosts/": ("base/", "runtime/topology/", "timeline/json.h", "launch/system/", "launch/cli/"),
    "src/launch/output/": ("base/", "runtime/report.h", "timeline/", "launch/system/", "launch/cli/"),
    "src/launch/ending/": ("base/", "launch/system/", "launch/cli/", "launch/output/"),
    "src/launch/ranks/": ("base/", "runtime/", "timeline/", *(f"launch/{room}/" for room in _OF_LAUNCH)),
    "src/launch/cluster/": ("base/", "runtime/", "timeline/", "launch/"),
    "src/launch/": ("base/", "runtime/", "timeline/"),
    # The one file that makes the communicator of a job.
    "src/capi/connect": ("base/", "runtime/", "transport/", "collective/", "tarantella/"),
    # Puts the other parts together, and implements the public header.
    "src/capi/": (
        "base/",
        "runtime/report.h",
        "timeline/",
        "collective/",
        "engine/",
        "tarantella/",
    ),
    "bindings/": ("tarantella/",),
}

# The same for python/tarantella, from below to above; the longest name that a path begins with is its room.
_JOB = ("_core", "_job/", "_exchange")
_DATA = (*_JOB, "_backend/backend", "_backend/steps", "_backend/load", "data/", "keras/private")
_MODEL = (*_DATA, "keras/hooks", "keras/model_state", "keras/replicas")
_STEP = (*_MODEL, "keras/step/")
_CALLS = (
    *_STEP,
    "keras/epoch_end",
    "keras/callbacks/",
    "keras/snapshots/",
    "keras/files",
    "keras/written",
    "keras/limitations",
)
# What a user calls, and what these calls share.
_TOP = ("keras/call_data", "keras/custom_loops", "keras/fit", "keras/start", "keras/patches")
PYTHON: dict[str, tuple[str, ...]] = {
    "_version": (),
    "_installed": (),
    "_machine": (),
    "_job/": ("_core", "_installed"),
    "_exchange": ("_core", "_job/"),
    "keras/private": (),
    "_backend/": (*_JOB, "keras/private"),
    "data/": _DATA,
    "data/tf_data/": (*_DATA, "_backend/tensorflow/plans", "_backend/tensorflow/steps"),
    "keras/__init__": ("keras/callbacks/",),
    "keras/hooks": ("_job/", "keras/private"),
    "keras/model_state": _DATA,
    "keras/replicas": (*_DATA, "keras/hooks", "keras/model_state"),
    "keras/step/": _STEP,
    "keras/epoch_end": _MODEL,
    "keras/h5_files": ("keras/hooks",),
    "keras/written": _MODEL,
    "keras/files": (*_MODEL, "keras/h5_files", "keras/written"),
    "keras/limitations": _STEP,
    "keras/callbacks/": (*_MODEL, "keras/epoch_end", "keras/written"),
    "keras/snapshots/": (*_MODEL, "keras/epoch_end", "keras/callbacks/"),
    **dict.fromkeys(_TOP, (*_CALLS, *_TOP)),
    "keras/wrapper": ("compat",),
    "keras/model": (*_CALLS, *_TOP, "keras/wrapper", "compat"),
    "collectives": _JOB,
    "compat": ("_job/", "collectives"),
    "models": ("keras/", "compat"),
    "verify/": (*_CALLS, *_TOP),
    "horovod/": (*_CALLS, *_TOP, "collectives"),
    "doctor/": ("_installed", "_machine", "_version"),
    "from_python/": ("_installed", "_job/", "_machine"),
    "scaling/": ("_job/", "_machine"),
    "__init__": ("",),
}
# Other people's packages -> the files, or folders, that alone may import them.
FOREIGN: dict[str, tuple[str, ...]] = {
    "tensorflow": ("_backend/tensorflow/", "data/tf_data/", "horovod/"),
    "keras.src": ("keras/private",),
    "cloudpickle": ("from_python/",),
    "keras": ("_backend/", "data/", "horovod/", "keras/", "models", "verify/"),
    "numpy": ("_exchange", "_backend/", "collectives", "data/", "horovod/", "keras/", "verify/"),
}
# The files, or folders, that may use private names of other packages: of Keras; of TensorFlow; of the standard library.
PRIVATE = ("keras/private", "_backend/tensorflow/", "data/tf_data/structure", "_job/")
OF_NAMED_TUPLES = ("_replace", "_fields")
ROOMS = ("base", "runtime", "timeline", "transport", "collective", "engine", "launch", "capi")
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


def is_in(path: str, room: str) -> bool:
    return path.startswith(room) if room.endswith("/") or not room else path == room or path.startswith(f"{room}/")


def imports(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str, bool]]:
    """The line and name of each import in a module of the package, and whether it is ours: then the name is a path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(node.lineno, each.name) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module.split(".") if node.module else []
            origin = ["tarantella", *package[: len(package) + 1 - node.level], *origin] if node.level else origin
            found = [(node.lineno, ".".join([*origin, each.name])) for each in node.names]
        else:
            continue
        for line, name in found:
            ours = name == "tarantella" or name.startswith("tarantella.")
            yield line, "/".join(name.split(".")[1:]) if ours else name, ours


def imports_against_the_rules(file: Path, root: Path) -> list[str]:
    path = file.relative_to(root / "python/tarantella").with_suffix("").as_posix()
    place = file.relative_to(root).as_posix()
    room = max((each for each in PYTHON if is_in(path, each)), key=len, default=None)
    if room is None:
        return [f"{place}: no room of this name; add it to tools/check_includes.py"]
    may = (room, *PYTHON[room])
    found = []
    for line, name, ours in imports(ast.parse(file.read_text(encoding="utf-8")), path.split("/")[:-1]):
        owners = [] if ours else [each for each in FOREIGN if f"{name}.".startswith(f"{each}.")]
        owner = max(owners, key=len, default=None)
        if owner is not None and not any(is_in(path, each) for each in FOREIGN[owner]):
            found.append(f"{place}:{line}: {name}: only {', '.join(FOREIGN[owner])} may import {owner}")
        elif ours and not any(is_in(name, each) for each in may):
            allowed = ", ".join(PYTHON[room]) or "nothing"
            found.append(f"{place}:{line}: {room} may not import {name} (beside itself it may: {allowed})")
    return found


def private_names(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """The line of each private name of an object that is not self, or in a string; and whether it is a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr, False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"_[a-z_]+", node.value):
            yield node.lineno, node.value, True


def own_names(tree: ast.Module) -> Iterator[str]:
    """What a module defines, or sets as attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def foreign_names(files: list[Path], root: Path) -> list[str]:
    """Uses of private names of other packages, where they may not stand."""
    package = root / "python/tarantella"
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    of_keras = {name for _, name, _ in private_names(trees.get(package / "keras/private.py", ast.Module([], [])))}
    of_keras -= {*OF_NAMED_TUPLES}
    own = {*OF_NAMED_TUPLES, *(name for tree in trees.values() for name in own_names(tree))} - of_keras
    found = []
    for file, tree in trees.items():
        path = file.relative_to(package).with_suffix("").as_posix()
        if any(is_in(path, each) for each in PRIVATE):
            continue
        for line, name, is_string in private_names(tree):
            if name in of_keras or (not is_string and name not in own):
                place = file.relative_to(root).as_posix()
                found.append(f"{place}:{line}: {name}: a private name of another package; keras/private has Keras's")
    return found


def circle(files: list[Path], package: Path) -> list[str]:
    """The files of a circle of imports, each importing the next one; nothing where there is none."""
    paths = {file.relative_to(package).with_suffix("").as_posix().removesuffix("/__init__"): file for file in files}
    edges: dict[str, list[str]] = {}
    for path, file in paths.items():
        folder = file.relative_to(package).parts[:-1]
        found = imports(ast.parse(file.read_text(encoding="utf-8")), list(folder))
        edges[path] = [each for _, name, ours in found if ours and (each := _module(name, paths)) and each != path]
    done: set[str] = set()

    def search(path: str, way: list[str]) -> list[str]:
        if path in way:
            return [*way[way.index(path) :], path]
        if path in done:
            return []
        for each in edges[path]:
            if found := search(each, [*way, path]):
                return found
        done.add(path)
        return []

    return next(filter(None, (search(path, []) for path in edges)), [])


def _module(name: str, paths: dict[str, Path]) -> str | None:
    """The module that an import names, or takes a name from."""
    return next((each for each in (name, name.rpartition("/")[0]) if each in paths), None)


def check_python(root: Path) -> list[str]:
    package = root / "python/tarantella"
    files = sorted(package.rglob("*.py"))
    found = [violation for file in files for violation in imports_against_the_rules(file, root)]
    found += foreign_names(files, root)
    way = circle(files, package)
    return [*found, f"a circle of imports: {' -> '.join(way)}"] if way else found


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
    root = parser.parse_args().root
    violations = [*check(root), *check_python(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
