"""docs/errors.md has every exit code and every message of the sources that ends a job."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = " ".join((ROOT / "docs" / "errors.md").read_text(encoding="utf-8").split())
_STRING = r'"((?:[^"\\]|\\.)*)"'


def literals(code: str) -> list[str]:
    """The string literals of a piece of C++, adjacent ones as one."""
    joined = re.sub(r'(?<!\\)"\s+"', "", code)
    return [text.replace('\\"', '"').strip(" :;,()") for text in re.findall(_STRING, joined)]


def messages() -> dict[str, str]:
    """The longest literal of each error that can end a job, and where it is."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.cpp")):
        if path.parent.name == "launch":
            continue
        source = path.read_text(encoding="utf-8")
        for match in re.finditer(r"[{(]\s*Code::k(?:Mismatch|Timeout|PeerLost|OutOfMemory),", source):
            statement = re.match(rf"(?:{_STRING}|[^;\"])*", source[match.end() :])
            assert statement
            texts = literals(statement[0])
            if texts:
                found[max(texts, key=len)] = f"{path.relative_to(ROOT)}: {match[0]}"
    for internal in ("the transfer was cancelled", "no message"):  # no rank ends with them
        del found[internal]
    detector = (ROOT / "src/collective/stall_detector.cpp").read_text(encoding="utf-8")
    losses = re.findall(r"dead_or_departed\((text\(.*?\)),?;?", detector, re.DOTALL)
    assert losses
    for statement in losses:
        found[max(literals(statement), key=len)] = "src/collective/stall_detector.cpp: dead_or_departed"
    launch = (ROOT / "src/launch/ending/root_cause.cpp").read_text(encoding="utf-8")
    for text in literals(launch[launch.index("std::string describe(") :]):
        if len(text) > 8:
            found[text] = "src/launch/ending/root_cause.cpp: describe"
    return found


def test_every_message_that_ends_a_job() -> None:
    known = messages()
    assert len(known) > 20
    assert {text: where for text, where in known.items() if " ".join(text.split()) not in PAGE} == {}


def test_every_exit_code() -> None:
    codes = set()
    for name in ("system/message.h", "ending/root_cause.h"):
        codes |= set(re.findall(r"constexpr int k\w+ = (\d+);", (ROOT / "src/launch" / name).read_text("utf-8")))
    hook = (ROOT / "python/tarantella/_job/excepthook.py").read_text("utf-8")
    codes |= set(re.findall(r"_EXIT_CODE = (\d+)", hook))
    codes |= set(re.findall(r"(\d) [a-z ,]+(?:agree|differ|line|compared)", VERIFY))
    assert codes >= {"0", "1", "2", "3", "86", "127"}
    assert {code for code in codes if f"| {code} |" not in PAGE} == set()


VERIFY = (ROOT / "python/tarantella/verify/__main__.py").read_text("utf-8").split("exit codes:")[1].split('"""')[0]
