"""tools/setup.sh on machines that lack something; stand-ins in PATH play the machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
# What every Debian has, and all that the script may take for granted.
BASICS = "awk basename bash cat cut dirname env find flock grep head id mkdir rm sed sha256sum sort tail tr xargs"


class Machine:
    def __init__(self, folder: Path):
        self.bin = folder / "bin"
        self.repository = folder / "repository"
        self.bin.mkdir()
        (self.repository / "tools").mkdir(parents=True)
        shutil.copy(REPOSITORY / "tools/setup.sh", self.repository / "tools")
        for name in [*BASICS.split(), "echo"]:
            self.has(name)

    def has(self, name):
        (self.bin / name).symlink_to(shutil.which(name))

    def plays(self, name, script):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def setup(self, *options):
        return subprocess.run(
            [self.repository / "tools/setup.sh", *options],
            env={"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.plays("g++", "exit 0")
    machine.plays("cmake", "echo cmake version 3.25.1")
    machine.plays("python3", "exit 0")
    for name in ("make", "ip", "ninja"):
        machine.plays(name, "exit 0")
    return machine


def test_without_root_it_names_what_is_missing_and_stops(machine):
    machine.plays("id", "echo 1000")
    (machine.bin / "ninja").unlink()
    machine.plays("cmake", "echo cmake version 3.22.6")
    done = machine.setup()
    assert done.returncode == 1
    assert "Missing system packages: cmake ninja-build\n" in done.stderr
    assert "apt-get install -y cmake ninja-build\n" in done.stderr


def test_root_installs_it_and_refreshes_the_lists_first(machine, tmp_path):
    machine.plays("id", "echo 0")
    (machine.bin / "ninja").unlink()
    log = tmp_path / "log"
    machine.plays("apt-get", f'echo "$@" >> {log}')
    done = machine.setup()
    update, install = log.read_text().splitlines()
    assert update == "update"
    assert install.endswith(" ninja-build")
    assert done.returncode == 1  # our apt-get brings nothing
    assert "Still missing" in done.stderr
    assert done.stderr.endswith("ninja-build\n")


@pytest.mark.parametrize(("options", "wants"), [([], False), (["--bench"], False), (["--dev"], True)])
def test_only_those_who_run_its_tests_get_a_slurm(machine, tmp_path, options, wants):
    machine.plays("id", "echo 0")
    machine.plays("uname", "echo x86_64")
    (machine.bin / "ninja").unlink()
    log = tmp_path / "log"
    machine.plays("apt-get", f'echo "$@" >> {log}')
    machine.setup(*options)
    asked = log.read_text().split()
    assert "ninja-build" in asked
    # what is in /usr/sbin is found there: this machine may have a Slurm
    missing = [name for name in ("slurmctld", "munged") if not Path("/usr/sbin", name).exists()]
    for name in ("ccache", *({"slurmctld": "slurm-wlm", "munged": "munge"}[each] for each in missing)):
        assert (name in asked) == wants
    assert wants or not {"slurm-wlm", "munge"} & set(asked)


def test_a_machine_without_python_gets_one(machine, tmp_path):
    machine.plays("id", "echo 0")
    (machine.bin / "python3").unlink()
    log = tmp_path / "log"
    machine.plays("apt-get", f'echo "$@" >> {log}')
    assert machine.setup().returncode == 1
    assert " python3 python3-venv python3-dev" in log.read_text()


def test_another_system_is_told_what_it_needs(machine):
    machine.plays("id", "echo 0")
    (machine.bin / "ninja").unlink()
    done = machine.setup()
    assert done.returncode == 1
    assert "There is no apt-get here" in done.stderr


def test_a_failing_stage_shows_the_end_of_its_log(machine):
    machine.plays("python3", '[ "$1" != -m ] || { echo "the disk is full"; exit 1; }')
    done = machine.setup()
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "the disk is full" in done.stderr
    assert "build/log/venv.log" in done.stderr
