"""Options of Python after `--`, as in `python -m package.module`."""

from __future__ import annotations

import json
import shutil

import pytest

pytestmark = pytest.mark.timeout(60)

SHOW = "import json, sys; print(json.dumps([sys.argv[1:], sys.flags.optimize, sys.flags.utf8_mode, __name__]))"


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["-m", "package.module", "-n", "--x"], [["-n", "--x"], 0, 0]),
        (["-mpackage.module", "a b"], [["a b"], 0, 0]),
        (["-c", SHOW, "-m", "x"], [["-m", "x"], 0, 0]),
        (["-u", "script.py", "-u"], [["-u"], 0, 0]),
        (["-uO", "-W", "ignore", "-X", "utf8", "-m", "package.module", "x"], [["x"], 1, 1]),
        (["-Xutf8", "-OO", "script.py"], [[], 2, 1]),
    ],
)
def test_options_of_python_reach_the_interpreter(launcher, words, seen):
    (launcher.folder / "package").mkdir()
    launcher.script(SHOW, "package/module.py")
    launcher.script(SHOW)
    result = launcher.run("-n", "2", "--", *words)
    assert (result.returncode, result.err) == (0, "")
    assert json.loads(result.out) == [*seen, "__main__"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--", "-m"], "'-m' needs a value"),
        (["--", "-u"], "no script given"),
        (["--", "-u", "missing.py"], "cannot read script 'missing.py'"),
        (["--", "-y", "script.py"], "cannot read script '-y'"),
        (["-m", "package.module"], "put options of Python after '--'"),
        (["help.py"], "cannot read script 'help.py'"),
        (["doctor"], "no script 'doctor'"),
        (["verfy"], "did you mean 'tarantella verify'?"),
        (["--no-such"], "usage: tarantella [options] -- script.py [arguments]"),
    ],
)
def test_invalid_options_of_python_are_refused(launcher, words, part):
    launcher.script(SHOW)
    result = launcher.run("-n", "2", *words)
    assert (result.returncode, result.out) == (2, "")
    assert part in result.err
    assert result.err.count("\n") == 1


def test_the_python_of_an_environment_that_is_gone_is_not_replaced(launcher):
    """As after an upgrade of Python: a link that leads nowhere."""
    (launcher.folder / "bin").mkdir()
    copy = shutil.copy(launcher.executable, launcher.folder / "bin")
    (launcher.folder / "bin/python3").symlink_to("/no/such/python3")
    launcher.script("print('runs')")
    result = launcher.run("-n", "1", "script.py", program=copy)
    assert (result.returncode, result.out) == (127, "")
    assert "python3' leads to '/no/such/python3', which cannot be run" in result.err


def test_help_is_a_command(launcher):
    assert launcher.run("help").out == launcher.run("--help").out
    launcher.script("print('a script of that name')", "help")
    assert launcher.run("--", "help").out == "a script of that name\n"


def test_crash_leaves_a_line_of_python(launcher):
    launcher.copy("crash")
    result = launcher.run("-n", "2", "script.py")
    assert result.returncode == 139
    assert "Fatal Python error: Segmentation fault\n" in result.err
    assert 'script.py", line 11 in breaks\n' in result.err
    assert "tarantella: rank 1 " in result.err


def test_faulthandler_of_the_users_own(launcher):
    launcher.script("import faulthandler; print(faulthandler.is_enabled())")
    assert launcher.run("script.py").out == "True\n"
    assert launcher.run("script.py", env={"PYTHONFAULTHANDLER": ""}).out == "False\n"


@pytest.mark.parametrize(("own", "seen"), [(None, "1"), ("0", "0"), ("", "")])
def test_chatter_of_tensorflow(launcher, own, seen):
    launcher.script("import os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])")
    assert launcher.run("script.py", env={} if own is None else {"TF_CPP_MIN_LOG_LEVEL": own}).out == f"{seen}\n"
