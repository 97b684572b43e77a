"""Invalid command lines: one line that names the mistake, exit code 2, nothing started."""

from __future__ import annotations

import functools
import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

SCRIPT = "open('ran', 'w')"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "no script given"),
        (["-n", "2"], "no script given"),
        (["--"], "no script given"),
        (["-n", "0", "script.py"], "from 1 to 4096, not '0'"),
        (["-n", "-1", "script.py"], "not '-1'"),
        (["-n", "x", "script.py"], "not 'x'"),
        (["-n", "2.5", "script.py"], "not '2.5'"),
        (["-n", "", "script.py"], "not ''"),
        (["-n", "4097", "script.py"], "not '4097'"),
        (["-n", "99999999", "script.py"], "not '99999999'"),
        (["-n", "9" * 40, "script.py"], "from 1 to 4096"),
        (["--n=0", "script.py"], "not '0'"),
        (["-n", "--", "script.py"], "not '--'"),
        (["-n"], "'-n' needs a value"),
        (["--no-gup", "script.py"], "unknown option '--no-gup'; did you mean '--no-gpu'?"),
        (["--log-evel=INFO", "script.py"], "unknown option '--log-evel'; did you mean '--log-level'?"),
        (["--outptu-on-all-devices", "script.py"], "did you mean '--output-on-all-devices'?"),
        (["--quite-something-else", "script.py"], "unknown option '--quite-something-else'"),
        (["-q", "script.py"], "unknown option '-q'"),
        (["-x", "script.py"], "'-x' needs NAME=VALUE, not 'script.py'"),
        (["-x", "--", "script.py"], "'-x' needs NAME=VALUE, not '--'"),
        (["-x"], "'-x' needs a value"),
        (["-x", "TNT_RANK=0", "script.py"], "cannot set TNT_RANK"),
        (["-n", "2", "--n-per-node=2", "script.py"], "'-n' and '--n-per-node' exclude each other"),
        (["--devices-per-node=none", "script.py"], "'--n-per-node' needs a whole number from 1 to 4096"),
        (["--log-dir", "script.py/x", "script.py"], "cannot write logs to 'script.py/x': Not a directory"),
        (["--force", "script.py"], "'--force' needs '--cleanup'"),
        (["--cleanup", "--hostfile", "hosts"], "'--hostfile' does not go with '--cleanup', which looks"),
        (["-n2", "--cleanup", "--force"], "'-n' does not go with '--cleanup'"),
        (["--cleanup", "--dry-run", "script.py"], "'--dry-run' does not go with '--cleanup'"),
        (["--log-dir=", "script.py"], "needs the name of a folder, not ''"),
        (["--python-interpreter=", "--", "-m", "json"], "needs a program, not '-m'"),
        (["--no-gpu=1", "script.py"], "'--no-gpu' takes no value"),
        (["--log-level"], "'--log-level' needs a value"),
        (["--log-level", "LOUD", "script.py"], "not 'LOUD'"),
        (["--log-level=", "script.py"], "not ''"),
        (["--fusion-threshold", "-1", "script.py"], "not '-1'"),
        (["--fusion-threshold=32k", "script.py"], "not '32k'"),
        (["--timeline"], "'--timeline' needs a value"),
        (["--timeline=", "script.py"], "needs the name of a file, not ''"),
        (["--timeline", "folder", "script.py"], "cannot write the timeline 'folder': Is a directory"),
        (["--timeline", "no/t.json", "script.py"], "cannot write the timeline 'no/t.json': No such file"),
        (["--timeline", "pipe", "script.py"], "cannot write the timeline 'pipe': it is not a file"),
        (["--tmeline=t", "script.py"], "did you mean '--timeline'?"),
        (["missing.py"], "cannot read script 'missing.py': No such file"),
        (["script.py/x"], "Not a directory"),
        (["-n", "2", "--", "python", "script.py"], "name the Python script itself"),
        (["folder"], "'folder' is a folder"),
        (["pipe"], "'pipe' is not a file"),
        (["loop"], "cannot read script 'loop'"),
        (["--dry-run", "missing.py"], "cannot read script"),
        (["--", "-n"], "cannot read script '-n'"),
        (["new\nline.py"], "'new?line.py'"),
    ],
)
def test_an_invalid_command_line_gives_one_line_and_exit_code_2(launcher, arguments, part):
    launcher.script(SCRIPT)
    (launcher.folder / "folder").mkdir()
    os.mkfifo(launcher.folder / "pipe")
    (launcher.folder / "loop").symlink_to("loop")
    result = launcher.run(*arguments)
    assert result.returncode == 2
    assert part in result.err
    assert result.err.startswith("tarantella: ")
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert not (launcher.folder / "ran").exists()


def test_unreadable_script(launcher):
    # Root may read everything: run as somebody else, from a folder that is open to all.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        script = folder / "script.py"
        script.write_text(SCRIPT)
        script.chmod(0)
        executable = folder / "tarantella"
        shutil.copy(launcher.executable, executable)
        somebody = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        result = subprocess.run(
            [executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False, **somebody
        )
    assert result.returncode == 2
    assert result.stderr == "tarantella: cannot read script 'script.py': Permission denied\n"


@pytest.fixture
def lonely(launcher):
    """The executable in a folder of its own, without a Python beside it."""
    (launcher.folder / "alone").mkdir()
    return shutil.copy(launcher.executable, launcher.folder / "alone" / "tarantella")


def test_no_python_anywhere(launcher, lonely):
    launcher.script(SCRIPT)
    result = launcher.run("-n", "2", "script.py", env={"PATH": "/nowhere"}, program=lonely)
    assert (result.returncode, result.err.count("\n")) == (127, 1)
    assert "no python3" in result.err


def test_interpreter_of_the_script_is_missing(launcher):
    launcher.script("#!/no/such/interpreter\n", mode=0o755)
    result = launcher.run("-n", "3", "./script.py")
    assert (result.returncode, result.err.count("\n")) == (127, 1)
    assert "cannot run './script.py': No such file or directory" in result.err
    assert "first line" in result.err


def test_python_that_cannot_be_executed(launcher, lonely):
    folder = launcher.folder / "bin"
    folder.mkdir()
    (folder / "python3").write_text("neither a program nor a script")
    (folder / "python3").chmod(0o755)
    launcher.script(SCRIPT)
    result = launcher.run("-n", "2", "script.py", env={"PATH": str(folder)}, program=lonely)
    assert (result.returncode, result.err.count("\n")) == (127, 1)
    assert "Exec format error" in result.err


def test_closed_streams(launcher):
    """A launcher without stdin, stdout and stderr does not mix its pipes up with them."""
    launcher.script("""
        import os
        os.write(1, b"lost"); os.write(2, b"lost"); assert os.read(0, 1) == b""
        open("done" + os.environ["TNT_RANK"], "w")
    """)

    def close_all():
        for fd in (0, 1, 2):
            os.close(fd)

    result = launcher.run("-n", "2", "script.py", preexec_fn=close_all)
    assert result.returncode == 0
    assert (launcher.folder / "done0").exists()
    assert (launcher.folder / "done1").exists()


def test_a_job_that_meets_the_limit_of_open_files_ends_with_one_line(launcher):
    """At every point of its start; and no process stays that holds its streams."""
    codes = []
    for files in range(4, 24):
        limit = (files, files)
        options = {"preexec_fn": functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, limit), "timeout": 20}
        result = launcher.run("-n", "2", "--python-interpreter", "", "/bin/true", **options)
        codes.append(result.returncode)
        if result.returncode != 0:
            assert re.fullmatch(r"tarantella: cannot start .*raise the limits \(ulimit -u, -n\)\n", result.err), files
        launcher.wait_for_none()
    assert codes == sorted(codes, reverse=True) and set(codes) == {0, 1}


def test_too_few_open_files(launcher):
    launcher.script("import time; time.sleep(60)")
    result = launcher.run(
        "-n", "40", "script.py", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    )
    assert result.returncode == 1
    assert result.err.count("\n") == 1
    assert "cannot start rank" in result.err
    launcher.wait_for_none()
