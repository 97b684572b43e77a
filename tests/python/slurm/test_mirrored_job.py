"""Submits examples/mirrored_strategy/job.slurm, also in a container, with a script that notes its rank."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, tarantella as tnt
tnt.init()
with open(f"ran{tnt.get_rank()}of{tnt.get_size()}", "w") as file:
    file.write(" ".join(sys.argv[1:]))
"""
# Says what it was asked, and runs what comes after the image.
APPTAINER = f"""#!{sys.executable}
import os, sys
image = next(number for number, word in enumerate(sys.argv) if word.endswith(".sif"))
with open("asked", "w") as file:
    file.write(" ".join(sys.argv[1 : image + 1]))
os.execvp(sys.argv[image + 1], sys.argv[image + 1 :])
"""
ARGUMENTS = "--batch-size-per-replica=32 --epochs=15"
# The nodes of this Slurm are small, and their GPUs have no driver.
ON_CPUS = "--gres=none --ntasks=2 --cpus-per-task=1 --mem=500M"


@pytest.mark.parametrize(
    ("options", "added", "said"),
    [
        ("", "", None),
        ("--export=ALL,IMAGE=image.sif,ARGUMENTS=--image-size=64", " --image-size=64", "exec --nv image.sif"),
        ("--export=ALL,IMAGE=i.sif,OVERLAY=o.ext3", "", "exec --nv --overlay o.ext3:ro i.sif"),
    ],
)
def test_the_job_trains_on_the_ranks_of_its_node(slurm, tmp_path, executable, options, added, said):
    shutil.copy(ROOT / "examples/mirrored_strategy/job.slurm", tmp_path)
    (tmp_path / "mnist_classify.py").write_text(SCRIPT)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "apptainer").write_text(APPTAINER)
    (programs / "apptainer").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(executable).parent), str(Path(sys.executable).parent)])
    done = slurm.run(
        "bash", "-c", f'PATH="{path}:$PATH"; sbatch --wait {ON_CPUS} {options} job.slurm', folder=tmp_path, timeout=120
    )
    logs = "".join(each.read_text() for each in tmp_path.glob("slurm-*.out"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    ran = {each.name: each.read_text() for each in tmp_path.glob("ran*")}
    assert ran == dict.fromkeys(["ran0of2", "ran1of2"], ARGUMENTS + added), logs
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else None) == said
