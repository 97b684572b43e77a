"""Writes documents.json: the commands and names in the documents that the examples follow, without their prose.

python tests/python/examples/extract_documents.py FOLDER     (FOLDER has 000_….txt to 004_….txt)
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("documents.json")
SHELLS = ("bash", "sh", "console")
PROMPT = re.compile(r"^(?:\$|\[\S+@\S+ \S+\]\$|Singularity>) ")
COMMAND = re.compile(r"^(?:cd|git|export|conda|pip|python|tarantella|sbatch|sqs)\b(?!.*\.$)")
CODE = re.compile(r"^\s*(?:import |from \w+ import|def |if |for |# |[\w.]+ = |[\w.]+\()")
WORD = re.compile(r"\b(?:[A-Z][a-z]+){3,}\b|\bTNT_\w+|\b\w+_\w+(?=`? (?:function|class)\b)")
NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of a language and a block of code, from Markdown, reStructuredText, or text without any marks."""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S):
        yield language.lower(), block
    for language, block in re.findall(r"^\.\. code-block:: (\w+)\n\n((?:^[ \t].*\n|^\s*\n)+)", text, re.M):
        yield language.lower(), textwrap.dedent(block)
    if "```" not in text and "code-block" not in text:
        for paragraph in re.split(r"\n\s*\n", text):
            if COMMAND.match(paragraph):
                yield "bash", paragraph
            elif CODE.match(paragraph):
                yield "python", re.split(r"^  • ", textwrap.dedent(paragraph), maxsplit=1, flags=re.M)[0]


def commands(block: str) -> Iterator[str]:
    """The commands of a block of shell, each on one line; those in `bash -c "…"` as well."""
    lines = re.sub(r"\\\n\s*|\n\s+(?=--)", " ", block).splitlines()
    prompted = [PROMPT.sub("", line) for line in lines if PROMPT.match(line)]
    for line in prompted or lines:
        command = " ".join(line.split())
        if command and not command.startswith("#"):
            yield command
            for inner in re.findall(r'-c "(.*)"', command):
                yield from (each.strip() for each in inner.split(";"))


def dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; `?.c` if what comes before is more than names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"?.{node.attr}" if before.startswith("?") else f"{before}.{node.attr}"
    return "?"


class Code:
    """What blocks of Python import, call, name and define."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.calls: dict[str, set[str]] = {}
        self.positional: dict[str, int] = {}  # the most arguments without a name of a call
        self.names: set[str] = set()
        self.functions: dict[str, list[str]] = {}

    def read(self, block: str) -> None:
        try:
            tree = ast.parse(textwrap.dedent(block))
        except SyntaxError:  # the document's own mistake
            for name in re.findall(rf"({NAME})\(", block):
                self.calls.setdefault(name, set())
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                self.imports |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Call):
                keywords = {keyword.arg for keyword in node.keywords if keyword.arg}
                name, count = dotted(node.func), len(node.args)
                self.calls.setdefault(name, set()).update(keywords)
                if count and not any(isinstance(each, ast.Starred) for each in node.args):
                    self.positional[name] = max(count, self.positional.get(name, 0))
            elif isinstance(node, ast.Attribute):
                self.names.add(dotted(node))
            elif isinstance(node, ast.FunctionDef):
                self.functions[node.name] = [argument.arg for argument in node.args.args]


def arguments(text: str) -> dict[str, list[str]]:
    """Tarantella's own arguments, and the functions named in the paragraphs that have them."""
    found: dict[str, set[str]] = {}
    for paragraph in re.split(r"\n\s*\n", text):
        for argument in re.findall(r"\btnt_[a-z]\w*", paragraph):
            found.setdefault(argument, set()).update(re.findall(r"\btnt\.(?:Model|models)\.\w+", paragraph))
    return {argument: sorted(functions) for argument, functions in sorted(found.items())}


def facts(text: str) -> dict[str, Any]:
    text = re.sub(r"https?://[^\s`)>\]]+", " ", text)
    found, code = [], Code()
    for language, block in blocks(text):
        if language in SHELLS:
            found += commands(block)
        elif language == "python":
            code.read(block)
    inline = [each for each in re.findall(r"`([^`\n]+ [^`\n]+|sqs)`", text) if COMMAND.match(each)]
    prose = set(re.findall(rf"\b(?:tnt|tf|keras|hvd|tfds)\.{NAME}", text))
    calls = {name: sorted(keywords) for name, keywords in sorted(code.calls.items())}
    return {
        "commands": list(dict.fromkeys(found + inline)),
        "options": sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))),
        "files": sorted(set(re.findall(r"(?<![\w./-])[\w-]+(?:/[\w-]+)*\.(?:py|yaml|sh|slurm)\b", text))),
        "imports": sorted(code.imports),
        "calls": calls,
        "positional": dict(sorted(code.positional.items())),
        "names": sorted((prose | code.names) - calls.keys()),
        "functions": code.functions,
        "arguments": arguments(text),
        "words": sorted(set(WORD.findall(text))),
    }


def extract(folder: Path) -> dict[str, Any]:
    """The facts of each document in `folder`, by its number."""
    return {path.name[:3]: facts(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("00?_*.txt"))}


if __name__ == "__main__":
    FACTS.write_text(json.dumps(extract(Path(sys.argv[1])), indent=1) + "\n", encoding="utf-8")
