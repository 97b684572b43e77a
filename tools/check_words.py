#!/usr/bin/env python3
"""Checks that names and prose use the field's terms, not words that this project had for them.

NAMES are names of modules, functions, classes and parameters of the Python package, read by `ast`. PROSE is looked for
in the text of its modules and of the headers in include/ and bindings/, also where a line ends inside of a phrase.
Prints one line a violation, then exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "python/tarantella"

NAMES = {
    "apart": "differ",
    "begin_at": "seek",
    "borrow": "reuse_buffer",
    "copied": "is_padding",
    "coupled": "batch_dependent",
    "equalize": "synchronize",
    "heard": "received",
    "in_parts": "is_local",
    "input_of": "checked_input",
    "joining": "join",
    "judgement": "origin",
    "jumps": "is_seekable",
    "listed": "abbreviated",
    "look_ahead": "peek",
    "made_up": "synthetic",
    "meeting": "rendezvous",
    "of_arrays": "from_arrays",
    "of_batches": "from_batches",
    "own_batches": "per_rank",
    "said": "logged",
    "sized": "with_batch_size",
    "started_by": "launch_environment",
    "told": "sent or received",
    "uncaught": "excepthook",
    "whereabouts": "current_line",
    "wishes": "stop_flags",
}
PROSE = {
    "made-up|made up": "synthetic",
    "such (?:a )?ones?": "the noun",
    "coupl(?:es?|ed|ing) rows": "batch-dependent",
    "(?:is|are|was|were) said": "is logged",
    "copied rows?": "padding row",
    "(?:have|has|had)(?: not)? met": "have joined",
    "(?:the )?user's own": "user-defined",
    "anew": "again, or from the beginning",
    "but for": "except",
}
# What may stand between two words of a phrase: the end of a line, of a string or of a line of comments.
GAP = r"""[\s#*/"']+(?:f["'])?"""


def of_names(name: str, content: str) -> Iterator[str]:
    """The violations of NAMES in a module."""
    names = [(1, Path(name).stem)]
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
    for line, each in names:
        term = NAMES.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each).lower().strip("_"))
        if term:
            yield f"{name}:{line}: the name {each}: {term}"


def of_prose(name: str, content: str) -> Iterator[str]:
    """The violations of PROSE in a file."""
    for words, term in PROSE.items():
        for found in re.finditer(rf"\b(?:{words.replace(' ', GAP)})\b", content, re.IGNORECASE):
            line = content.count("\n", 0, found.start()) + 1
            yield f'{name}:{line}: "{" ".join(found[0].split())}": {term}'


def main() -> int:
    modules = sorted((ROOT / PACKAGE).rglob("*.py"))
    headers = sorted(file for folder in ("include", "bindings") for file in (ROOT / folder).rglob("*.h"))
    found = []
    for file in [*modules, *headers]:
        name, content = str(file.relative_to(ROOT)), file.read_text("utf-8")
        found += [*(of_names(name, content) if file in modules else ()), *of_prose(name, content)]
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
