"""Runs the commands of docs/cluster.md, and the scripts of examples/slurm."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
COMMANDS = [
    line
    for block in re.findall(r"```\n(.*?)```", (ROOT / "docs" / "cluster.md").read_text(), re.DOTALL)
    for line in block.splitlines()
    if "hosts" not in line  # those are in tests/python/hosts
]
MODEL = """
import tarantella as tnt
tnt.init()
open(f"ran{tnt.get_rank()}of{tnt.get_size()}", "w").close()
"""


@pytest.fixture
def run(slurm, tmp_path, executable):
    """Runs a line of bash in a user's folder, where `tarantella`, `python` and the examples are found."""
    (tmp_path / "model.py").write_text(MODEL)
    shutil.copytree(ROOT / "examples" / "slurm", tmp_path / "examples" / "slurm")
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(executable).parent), str(Path(sys.executable).parent)])

    def run(line: str):
        return slurm.run("bash", "-c", f'PATH="{path}:$PATH"; {line}', folder=tmp_path, timeout=120)

    return run


def test_there_are_commands():
    assert len(COMMANDS) >= 9


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(run, tmp_path, command):
    done = run(command)
    assert done.returncode == 0, (
        done.stdout + done.stderr + "".join(each.read_text() for each in tmp_path.glob("slurm-*.out"))
    )
    trains = "model.py" in command and "--dry-run" not in command
    assert sorted(each.name for each in tmp_path.glob("ran*")) == (["ran0of2", "ran1of2"] if trains else [])


def test_the_scripts_for_conda_and_a_container(run, tmp_path):
    """With stand-ins for conda and apptainer, which say what they were asked."""
    (tmp_path / "bin").mkdir()
    profile = tmp_path / "base" / "etc" / "profile.d"
    profile.mkdir(parents=True)
    (profile / "conda.sh").write_text('conda() { echo "$2" > activated; }\n')
    (tmp_path / "bin" / "conda").write_text(f"#!/bin/sh\necho {tmp_path / 'base'}\n")
    (tmp_path / "bin" / "apptainer").write_text('#!/bin/sh\necho "$2" > image\nshift 2\nexec "$@"\n')
    for each in (tmp_path / "bin").iterdir():
        each.chmod(0o755)
    for script, variable, said in (("conda", "CONDA_ENV=mine", "activated"), ("container", "IMAGE=mine", "image")):
        done = run(f"sbatch --wait --export=ALL,{variable} examples/slurm/{script}.sh model.py")
        assert done.returncode == 0, "".join(each.read_text() for each in tmp_path.glob("slurm-*.out"))
        assert (tmp_path / said).read_text() == "mine\n"
        assert sorted(each.name for each in tmp_path.glob("ran*")) == ["ran0of2", "ran1of2"]
        for each in tmp_path.glob("ran*"):
            each.unlink()
