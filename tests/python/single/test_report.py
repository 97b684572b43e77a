"""Which lines of an error are shown."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from tarantella._job import report

OURS = report._PACKAGE + "keras/model.py"
KERAS = "/usr/lib/python3/dist-packages/keras/src/trainer.py"


def error_through(*files: str, message: str = "wrong") -> Any:
    """A ValueError that is raised in the last of the files, each of which calls the next."""
    names: dict[str, Any] = {"error": ValueError(message)}
    last = "def call{}():\n    raise error\n"
    for number, file in reversed(list(enumerate(files))):
        code = last if number == len(files) - 1 else "def call{}():\n    call" + str(number + 1) + "()\n"
        exec(compile(code.format(number), file, "exec"), names)
    try:
        names["call0"]()
    except ValueError:
        _, error, trace = sys.exc_info()
        assert trace is not None
        return error, trace.tb_next  # without this function


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (["user.py", OURS], "user.py:2: ValueError: wrong"),
        (["main.py", "user.py", OURS, OURS], "user.py:2: ValueError: wrong"),
        (["user.py", OURS, KERAS, OURS], "user.py:2: ValueError: wrong"),
        (["user.py", OURS, KERAS, "user.py", OURS], None),
        (["user.py", OURS, KERAS], None),
        (["user.py"], None),
        ([KERAS, OURS], "ValueError: wrong"),
    ],
)
def test_one_line_says_it_all(files: list[str], line: str | None) -> None:
    assert report.one_line(*error_through(*files)) == line


def test_the_users_lines_are_shown_and_others_counted() -> None:
    text = report.text_of(*error_through("user.py", OURS, KERAS, KERAS, "step.py", KERAS))
    assert text.splitlines() == [
        "Traceback (most recent call last):",
        '  File "user.py", line 2, in call0',
        "  [3 frames of keras, tarantella]",
        '  File "step.py", line 2, in call4',
        "  [1 frame of keras]",
        "ValueError: wrong",
    ]


def test_a_traceback_inside_a_message_is_shortened() -> None:
    embedded = (
        "RuntimeError: my own\nTraceback (most recent call last):\n\n"
        f'  File "{KERAS}", line 3, in f\n    g()\n    ^^^\n\n'
        '  File "data.py", line 7, in load\n    raise RuntimeError("my own")\n\nRuntimeError: my own\n'
    )
    text = report.text_of(*error_through("user.py", KERAS, message=embedded))
    assert "keras/src" not in text
    assert text.count("  [1 frame of keras]\n") == 2
    assert '  [1 frame of keras]\n  File "data.py", line 7, in load\n    raise RuntimeError("my own")\n' in text


def test_nodes_behind_the_error_of_a_generator_are_left_out() -> None:
    nodes = "\n\n\t [[{{node PyFunc}}]]\n\t [[IteratorGetNext]] [Op:__inference_run_1]"
    text = report.shortened(*error_through("user.py", KERAS, message="OSError: no such shard\n" + nodes))
    assert text.endswith("OSError: no such shard\n")
    node = "\n\t [[{{node model/dense/MatMul}}]]"
    assert node in report.shortened(*error_through("user.py", message=f"Matrix size-incompatible{node}"))


def test_a_traceback_in_the_message_is_no_line() -> None:
    embedded = 'Traceback (most recent call last):\n\n  File "data.py", line 7, in load\n    load()\n'
    assert report.one_line(*error_through("user.py", OURS, message=embedded)) is None


def test_without_lines_of_the_user_all_are_shown() -> None:
    assert f'File "{KERAS}", line 2' in report.text_of(*error_through(KERAS, KERAS))


def test_log_level_debug_shows_the_full_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TNT_LOG_LEVEL", "debug")
    assert f'File "{OURS}", line 2' in report.text_of(*error_through("user.py", OURS))


def test_frameworks_are_known_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ModuleType("keras")
    tree.__file__ = "/home/me/src/keras/__init__.py"
    monkeypatch.setitem(sys.modules, "keras", tree)
    owners = {
        "/home/me/src/keras/layers/dense.py": "keras",
        "/home/me/src/keras_model.py": "",
        "/usr/lib/python3/dist-packages/tensorflow/ops.py": "tensorflow",
        "/opt/venv/lib/python3.11/site-packages/six.py": "six",
        OURS: "tarantella",
        "<frozen importlib._bootstrap>": "python",
        "<string>": "",
    }
    assert {path: report._owner(path) for path in owners} == owners


def test_errors_that_follow_from_a_lost_rank_are_consequences() -> None:
    from tarantella import PeerLostError

    own = ValueError("own")
    assert not report.is_consequence(own)
    own.__context__ = PeerLostError("rank 1 failed")
    assert report.is_consequence(own)
    own.__cause__ = own
    assert not report.is_consequence(own)  # and it ends


def test_notes_are_part_of_the_line() -> None:
    error = OSError(28, "No space left on device")
    error.__notes__ = ["in save of 'model.keras'"]  # type: ignore[attr-defined]
    said = "OSError: [Errno 28] No space left on device; in save of 'model.keras'"
    assert report.summary(error) == said
