"""Prints the names that docs/compatibility.md promises, one a line, for test_promises.py."""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = (
    "tarantella",
    "tarantella.data",
    "tarantella.keras.callbacks",
    "tarantella.models",
    "tarantella.horovod.keras",
    "tarantella.horovod.keras.callbacks",
    "tarantella.horovod.tensorflow",
    "tarantella.horovod.tensorflow.keras",
)
INTERNAL = re.compile(r"\._|^tarantella\.Group\.context$|\.Callback\.(on|set)_")
FOR_RANKS = ("TNT_RANK", "TNT_SIZE", "TNT_LOCAL_RANK", "TNT_LOCAL_SIZE")


def parameters(value: Any) -> str:
    """As in `def`, but with `=` alone for a default, and without `self`."""
    shown, only_names = [], False
    for each in inspect.signature(value).parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not only_names:
            shown.append("*")
        only_names = only_names or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        shown.append(stars + each.name + ("" if each.default is each.empty else "="))
    return ", ".join(shown)


def callables(name: str, value: Any) -> Iterator[str]:
    """A function; a class, the members of an enumeration, and methods, as far as the classes are ours.

    Horovod's own documentation says which methods its classes have.
    """
    if inspect.isfunction(value):
        yield f"{name}({parameters(value)})"
    elif inspect.isclass(value):
        ours = [kind for kind in value.__mro__ if kind.__module__.startswith("tarantella.")]
        methods = {key: entry for kind in reversed(ours) for key, entry in vars(kind).items()}
        yield f"{name}({parameters(methods['__init__'])})" if "__init__" in methods else name
        if issubclass(value, enum.Enum):
            yield from (f"{name}.{member}" for member in value.__members__)
        elif ".horovod." not in name:
            for key, entry in sorted(methods.items()):
                if inspect.isfunction(entry) and not INTERNAL.search(f"{name}.{key}"):
                    yield f"{name}.{key}({parameters(entry)})"
    else:
        yield name


def python_names() -> Iterator[str]:
    for name in MODULES:
        module = importlib.import_module(name)
        known = getattr(module, "__all__", None) or [
            key
            for key, each in vars(module).items()
            if key[0] != "_" and str(getattr(each, "__module__", "")).startswith("tarantella.")
        ]
        for each in sorted(known):
            yield from (f"python {line}" for line in callables(f"{name}.{each}", getattr(module, each)))


def command_line() -> Iterator[str]:
    for command in ("", "verify", "doctor", "scaling", "horovodrun"):
        words = [os.environ.get("TARANTELLA_EXECUTABLE", str(Path(sys.executable).with_name("tarantella"))), command]
        done = subprocess.run([*filter(None, words), "--help"], capture_output=True, text=True, timeout=60, check=True)
        heads = re.findall(r"^ {1,8}(-[^ ].*?)(?:  .*)?$", done.stdout, flags=re.MULTILINE)
        options = {option for head in heads for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", head)}
        yield from (" ".join(["option", *filter(None, [command]), option]) for option in sorted(options))


def variables() -> Iterator[str]:
    """Those of the table of the documents, except what the launcher sets for itself."""
    page = Path(__file__).parents[4] / "docs" / "environment.md"
    rows = re.findall(r"^\| `(TNT_\w+)` \|[^|]*\| ([^|]*) \|", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield from (f"variable {name}" for name, default in sorted(rows) if default != "set" or name in FOR_RANKS)


print(*python_names(), *command_line(), *variables(), sep="\n")
