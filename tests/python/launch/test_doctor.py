"""tarantella doctor: what it finds on this machine, and on machines that a test describes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tarantella.doctor import BAD, GOOD, NOTE, machine, software

pytestmark = pytest.mark.timeout(60)


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_every_subject_has_a_line_and_what_is_wrong_a_cure(launcher):
    result = launcher.run("doctor", "--quick")
    assert result.err == ""
    lines = result.out.splitlines()
    software = ["tarantella", "python", "core", "keras", "tensorflow", "jax", "torch"]
    machine = ["cores", "sockets", "memory", "huge pages", "/dev/shm", "GPUs"]
    subjects = [line[7:18].strip() for line in lines[:-2] if not line.lstrip().startswith("-> ")]
    assert subjects == [*software, *machine, "MPI", "ssh", "Slurm", "batch job"]
    wrong = [index for index, line in enumerate(lines) if line.startswith(BAD)]
    assert all(lines[index + 1].lstrip().startswith("-> ") for index in wrong)
    assert (result.returncode, lines[-1] == "nothing is wrong") == ((1, False) if wrong else (0, True))


def test_it_loads_no_framework_and_refuses_other_words(launcher):
    code = "import sys, tarantella.doctor.__main__ as it; it.main('', ['--quick']); print('keras' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nFalse\n")
    result = launcher.run("doctor", "--quack")
    assert (result.returncode, "unrecognized arguments: --quack" in result.err) == (2, True)
    assert "tarantella doctor" in launcher.run("--help").out


def test_the_plugins_for_mpi_are_part_of_the_core(tmp_path):
    assert software.core().state == GOOD
    (tmp_path / "libtarantella_openmpi.so").touch()
    found = software.core(tmp_path)
    assert (found.state, "pip install" in found.cure) == (BAD, True)
    assert found.text == "loads, but without libtarantella_mpi_abi.so: no job on several hosts"


def test_a_broken_framework_is_named_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise ImportError('no libthing.so')")
    (tmp_path / "crashes.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(software, "version", lambda package: "1.0" if package in ("broken_one", "crashes") else None)
    found = software.framework("broken_one", ("broken_one",), "pip install it", quick=False, needed=True)
    assert (found.state, found.cure) == (BAD, "pip install it --force-reinstall")
    assert found.text == "broken_one 1.0 cannot be loaded: ImportError: no libthing.so"
    found = software.framework("crashes", ("crashes",), "pip install it", quick=False, needed=False)
    assert (found.state, found.text) == (NOTE, "crashes 1.0 cannot be loaded: signal 6")
    assert software.framework("x", ("x",), "pip install x", quick=False, needed=True).state == BAD
    assert software.framework("x", ("x",), "pip install x", quick=False, needed=False).state == GOOD
    both = software.framework("x", ("broken_one", "crashes"), "", quick=True, needed=True)
    assert (both.state, both.text) == (BAD, "broken_one 1.0, crashes 1.0")


@pytest.mark.parametrize(
    ("version", "state"), [(None, BAD), ("3.4.1", BAD), ("2.15.0", BAD), ("3.5.0", GOOD), ("3.15.1", GOOD)]
)
def test_keras_must_be_new_enough(monkeypatch, version, state):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr(software, "version", lambda package: version)
    assert software.keras().state == state


def test_memory_is_that_of_the_control_group(tmp_path):
    root = write(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:   8388608 kB\n")
    assert machine.memory(root).text == "8.0 GiB available"
    write(root, proc__self__cgroup="0::/job\n")
    folder = root / "sys/fs/cgroup/job"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(f"{1 << 30}\n")
    (folder / "memory.current").write_text(f"{1 << 29}\n")
    found = machine.memory(root)
    assert (found.state, found.text) == (BAD, "8.0 GiB available, limited to 0.5 GiB by the control group")
    assert "--mem" in found.cure
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {1 << 28}\nactive_file {1 << 28}\n")
    assert machine.memory(root).text.endswith("limited to 1.0 GiB by the control group")  # files can be read again
    (folder.parent / "memory").mkdir()
    (folder.parent / "memory/memory.limit_in_bytes").write_text("4096\n")
    (folder.parent / "memory/memory.usage_in_bytes").write_text("4096\n")
    write(root, proc__self__cgroup="5:cpu:/x\n4:memory:/x\n0::/job/step\n")
    assert machine.memory(root).text.endswith("limited to 0.0 GiB by the control group")


@pytest.mark.parametrize(
    ("content", "state"), [("always [advise] never", GOOD), ("always advise [never]", NOTE), (None, NOTE)]
)
def test_huge_pages(tmp_path, content, state):
    if content is not None:
        write(tmp_path, sys__kernel__mm__transparent_hugepage__shmem_enabled=content)
    assert machine.huge_pages(tmp_path).state == state


@pytest.fixture
def two_sockets(tmp_path, monkeypatch):
    """A machine of two sockets, each of two cores with two hardware threads, where this process may use `allowed`."""
    for cpu in range(8):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
        (topology / "physical_package_id").write_text(f"{cpu % 4 // 2}\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    def use(*allowed: int) -> Path:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
        return tmp_path

    return use


def test_cores_and_their_hardware_threads(two_sockets):
    found = machine.cores(two_sockets(*range(8)))
    assert (found.state, found.text) == (GOOD, "4 cores, 8 hardware threads")
    found = machine.cores(two_sockets(0, 4, 5))
    assert (found.state, found.text) == (NOTE, "2 cores, 3 hardware threads of 8: this process may use no more")
    assert "--cpus-per-task" in found.cure


def test_sockets_and_numa_nodes(two_sockets):
    root = two_sockets(*range(8))
    found = machine.sockets(root)
    assert (found.state, found.text) == (GOOD, "2 sockets, 1 NUMA node")
    for node in (0, 1):
        (root / f"sys/devices/system/node/node{node}").mkdir(parents=True)
    found = machine.sockets(root)
    assert (found.state, found.text) == (NOTE, "2 sockets, 2 NUMA nodes")
    assert "--pin-memory-to-socket" in found.cure
    assert machine.sockets(two_sockets(0, 5)).text == "1 socket, 2 NUMA nodes"


def test_gpus_as_the_launcher_finds_them(tmp_path, monkeypatch):
    assert machine.gpus(tmp_path).text.startswith("no NVIDIA driver")
    write(tmp_path, proc__driver__nvidia__version="NVRM")
    assert machine.gpus(tmp_path).state == NOTE
    (tmp_path / "proc/driver/nvidia/gpus/0000:01").mkdir(parents=True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpus(tmp_path).text == "1 GPU"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert machine.gpus(tmp_path).text == "1 GPU; CUDA_VISIBLE_DEVICES='0' chooses of them"


def test_the_mpis_as_the_launcher_finds_them(tmp_path, monkeypatch, executable):
    launcher = shutil.copy(executable, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert machine.mpi(launcher).state == NOTE
    assert "pip install 'tarantella[mpi]'" in machine.mpi(launcher).cure
    program = write(tmp_path, bin__mpiexec="#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n") / "bin" / "mpiexec"
    program.chmod(0o755)
    assert machine.mpi(launcher).text == f"Open MPI 4.1.4 ({program}, in PATH)"
    assert "lacks the library libmpi.so.40" in machine.mpi(launcher).cure
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    assert machine.mpi(launcher).text.endswith("Several hosts would use Open MPI 4.1.4: in PATH")
    assert machine.mpi(launcher).state == GOOD


def test_slurm_must_have_a_plugin_for_mpi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "srun"
    answers = '#!/bin/sh\n[ "$1" = --version ] && echo slurm 22.05 || echo "MPI plugin types are... none '
    program.write_text(f'{answers}pmi2"\n')
    program.chmod(0o755)
    assert machine.slurm().text == "slurm 22.05, MPI by pmi2"
    program.write_text(f'{answers}"\n')
    assert machine.slurm().text == "slurm 22.05, MPI by no plugin" and machine.slurm().state == NOTE
    program.write_text("#!/bin/sh\necho srun: error: resolve_ctls_from_dns_srv >&2; exit 1\n")
    assert machine.slurm().text.startswith("srun does not work here: srun: error: resolve_ctls")
    assert machine.slurm().state == NOTE and "plugin" not in machine.slurm().cure
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert machine.allocation().text == "Slurm job 7, hosts: n[1-2]"
