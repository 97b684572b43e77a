"""tools/check_words.py: names and phrases that the field has other words for."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import check_words


@pytest.mark.parametrize(
    "code",
    ["def told(): ...", "class Told: ...", "async def f(*, told): ...", "f = lambda *told: 0", "def f(_told): ..."],
)
def test_a_name_is_refused_with_the_term(code):
    (found,) = check_words.of_names("a/b.py", f"\n{code}\n")
    assert found.startswith("a/b.py:2: the name ") and found.endswith(": sent or received")


def test_the_name_of_a_module():
    assert list(check_words.of_names("a/meeting.py", "")) == ["a/meeting.py:1: the name meeting: rendezvous"]
    assert list(check_words.of_names("a/x.py", "class OfArrays: ...")) == ["a/x.py:1: the name OfArrays: from_arrays"]


@pytest.mark.parametrize("code", ["told = 1", "f(told=1)", "x.told()", "def foretold(): ...", "def is_told(): ..."])
def test_other_names(code):
    assert not list(check_words.of_names("a.py", code))


@pytest.mark.parametrize(
    "text",
    [
        "these couple rows",
        "a layer couples rows: see",
        "# some layers couple\n    # rows",
        '"that couple "\n    f"rows"',
        " * Layers couple\n * rows.",
    ],
)
def test_a_phrase_is_refused_where_it_begins(text):
    (found,) = check_words.of_prose("a.py", f"first\n{text}\n")
    assert found.startswith("a.py:2: ") and found.endswith(": batch-dependent")


@pytest.mark.parametrize("text", ["a couple of rows", "couple_rows", 'say("couple", "rows")', "what he said"])
def test_other_phrases(text):
    assert not list(check_words.of_prose("a.py", text))


def test_a_long_gap_takes_no_time():
    assert not list(check_words.of_prose("a.py", "these couple" + " \n" * 10_000 + "values"))
