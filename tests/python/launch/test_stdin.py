"""The stdin of ranks: all ranks read a file, only the master reads a terminal or a pipe."""

from __future__ import annotations

import os
import subprocess

import pytest
from crowding import without_crowding

pytestmark = pytest.mark.timeout(60)

READ = """
    import os, sys
    with open("read" + os.environ["TNT_RANK"], "w") as out: out.write(sys.stdin.read())
"""

PIPE = (
    "tarantella: WARNING: stdin is a pipe with data, which only rank 0 can read; "
    "redirect a file (< file) for all ranks to read it, or < /dev/null, as in the loop of a shell, for none\n"
)


def read_by(launcher, ranks: int) -> list[str]:
    return [(launcher.folder / f"read{rank}").read_text() for rank in range(ranks)]


@pytest.mark.parametrize("deleted", [False, True])
def test_every_rank_reads_a_file_from_where_it_stands(launcher, deleted):
    """Deleted: what some shells make of a here-document."""
    launcher.script(READ)
    path = launcher.folder / "words"
    path.write_text("one\n" + "two\n" * 50000)
    with open(path, "rb", buffering=0) as words:
        if deleted:
            path.unlink()
        words.seek(4)
        result = launcher.run("-n", "3", "script.py", stdin=words)
        assert words.tell() == 4 + 200000  # the master's is the launcher's own
    assert (result.returncode, result.err) == (0, "")
    assert read_by(launcher, 3) == ["two\n" * 50000] * 3


def test_script_on_stdin(launcher):
    with open(launcher.script("import os; open('read' + os.environ['TNT_RANK'], 'w').write('ran')"), "rb") as script:
        assert launcher.run("-n", "2", "--", "-", stdin=script).returncode == 0
    assert read_by(launcher, 2) == ["ran"] * 2


def test_pipe_is_the_masters_and_the_launcher_says_so(launcher):
    launcher.script(READ.replace("import os, sys", "import os, sys, time; time.sleep(1)"))  # it is said before the end
    with launcher.start("-n", "3", "script.py", stdin=subprocess.PIPE) as process:
        out, err = process.communicate(b"words", timeout=60)
    assert (process.returncode, out) == (0, b"")
    assert without_crowding(err.decode()) == PIPE
    assert read_by(launcher, 3) == ["words", "", ""]


@pytest.mark.parametrize(
    ("options", "words", "level"),
    [
        (["-n", "1"], b"words", None),
        (["-n", "2"], b"", None),
        (["-n", "2", "--log-level=error"], b"words", None),
        (["-n", "2"], b"words", " Error "),
        (["-n", "2", "--log-level=error"], b"words", "WARNING"),
    ],
)
def test_pipe_without_a_word(launcher, options, words, level):
    """No other rank would read it, it is empty, or warnings are off."""
    launcher.script(READ)
    if level:
        launcher.env["TNT_LOG_LEVEL"] = level
    with launcher.start(*options, "script.py", stdin=subprocess.PIPE) as process:
        _, err = process.communicate(words, timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_pipe_is_left_to_who_comes_next(launcher):
    """`... | while read line; do tarantella ...; done`: ranks that do not read lose nothing of it.

    The launcher cannot know that they will not read, and warns as long as there is something in the pipe.
    """
    launcher.script("import os; open('ran' + os.environ['TNT_RANK'], 'a').write('x')")
    loop = f"printf 'a\\nb\\n' | while read line; do {launcher.executable} -n 2 script.py; done"
    shell = ["sh", "-c", loop]
    done = subprocess.run(shell, cwd=launcher.folder, env=launcher.env, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", PIPE)  # one line is left in the first turn, none in the second
    assert [(launcher.folder / f"ran{rank}").read_text() for rank in range(2)] == ["xx", "xx"]


def test_question_on_another_rank_than_the_master(launcher, open_terminal):
    launcher.script("""
        import os, time
        if os.environ["TNT_RANK"] == "0": time.sleep(100)
        input("name? ")
    """)
    terminal = open_terminal("-n", "2", "script.py")
    assert terminal.wait() == 1
    said = terminal.text.decode().replace("\r", "")
    assert "EOFError: EOF when reading a line\ntarantella: only rank 0 reads stdin" in said


def test_write_only_stdin_is_nobodys(launcher):
    launcher.script("import os; open('ran' + os.environ['TNT_RANK'], 'w').write('x')")
    closed = os.open(launcher.folder / "words", os.O_WRONLY | os.O_CREAT)
    try:
        result = launcher.run("-n", "2", "script.py", stdin=closed)
    finally:
        os.close(closed)
    assert (result.returncode, result.err) == (0, "")
