"""The file of --timeline, whatever the script does. Neither TensorFlow nor the package is needed."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.timeout(120)


def files_of(launcher) -> list[str]:
    """The files in the folder of a job, without the folder of its records."""
    return sorted(path.name for path in launcher.folder.iterdir() if path.is_file())


def ranks_in(path) -> list[int]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event["pid"] for event in events if event["name"] == "process_name"]


@pytest.mark.parametrize(("body", "code"), [("", 0), ("raise SystemExit(3)", 3)])
def test_every_rank_is_in_the_file(launcher, body, code):
    launcher.script(body)
    (launcher.folder / "t.json").write_text("of an earlier job")
    result = launcher.run("-n", "3", "--timeline", "t.json", "--", "script.py")
    assert result.returncode == code
    assert ranks_in(launcher.folder / "t.json") == [0, 1, 2]
    assert files_of(launcher) == ["script.py", "t.json"]


def test_a_variable_asks_for_it_too_and_the_option_comes_first(launcher):
    launcher.script("")
    assert launcher.run("script.py", env={"TNT_TIMELINE": " a.json "}).returncode == 0
    assert launcher.run("--timeline=b.json", "script.py", env={"TNT_TIMELINE": "c.json"}).returncode == 0
    assert files_of(launcher) == ["a.json", "b.json", "script.py"]
    result = launcher.run("script.py", env={"TNT_TIMELINE": "no/a.json"})
    assert (result.returncode, result.err.count("\n")) == (2, 1)


def test_a_job_that_is_killed_leaves_no_file(launcher):
    launcher.script("import time; open('ran', 'w'); time.sleep(600)")
    with launcher.start("--timeline=t.json", "script.py") as process:
        launcher.wait_for_files("ran")
        process.kill()
    launcher.wait_for_none()
    assert files_of(launcher) == ["ran", "script.py"]


def test_an_interrupted_job_has_its_file(launcher):
    launcher.script("import time; open('ran', 'w'); time.sleep(600)")
    with launcher.start("-n", "2", "--timeline=t.json", "script.py") as process:
        launcher.wait_for_files("ran")
        process.terminate()
        process.communicate(timeout=100)
    assert ranks_in(launcher.folder / "t.json") == [0, 1]


def test_a_full_disk_is_one_line(launcher):
    launcher.script("print('trained')")
    result = launcher.run("-n", "2", "--timeline", "/dev/full", "script.py")
    assert (result.returncode, result.out) == (0, "trained\n")
    assert result.err == ("tarantella: WARNING: cannot write the timeline '/dev/full': No space left on device\n")


def test_a_full_file_system_keeps_nothing_half_written(launcher):
    mounts = ["unshare", "--mount", "sh", "-c"]
    if (
        not shutil.which("unshare")
        or subprocess.call([*mounts, "mount -t tmpfs none /mnt"], stderr=subprocess.DEVNULL) != 0
    ):
        pytest.skip("no file systems can be mounted here")
    (launcher.folder / "small").mkdir()
    launcher.script("open('small/fill', 'wb').write(b'x' * 4096)")
    command = 'mount -t tmpfs -o size=4k none small && "$0" --timeline small/t.json script.py; echo $?; ls small'
    result = launcher.run("--mount", "sh", "-c", command, launcher.executable, program=shutil.which("unshare"))
    assert result.err.count("\n") == 1
    assert "WARNING: cannot write the timeline 'small/t.json': No space left on device" in result.err
    assert result.out.split() == ["0", "fill"]
