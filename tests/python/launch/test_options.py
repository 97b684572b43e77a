"""Options that change what a rank runs, where, and where its output goes."""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import sys

import pytest

pytestmark = pytest.mark.timeout(60)


def seen_by(launcher, ranks: int) -> list[dict]:
    return [json.loads((launcher.folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def test_variables_of_the_command_line_reach_every_rank(launcher):
    launcher.copy("show")
    options = ["-n2", "-x", "A=1 2", "B=", "TNT_TIMEOUT=7", "-x", "OMP_NUM_THREADS=3"]
    assert launcher.run(*options, "--", "script.py", "C=3", env={"A": "old"}).returncode == 0
    for each in seen_by(launcher, 2):
        assert [each["env"][name] for name in ("A", "B", "TNT_TIMEOUT", "OMP_NUM_THREADS")] == ["1 2", "", "7", "3"]
    shown = launcher.run("--dry-run", *options, "--", "script.py").out
    assert "A='1 2'" in shown
    assert "OMP_NUM_THREADS=3" in shown


def test_dry_run_says_what_the_batch_is_for_each_rank(launcher):
    launcher.copy("show")
    shown = launcher.run("--dry-run", "-n3", "--", "script.py", "--batch-size", "10").out
    assert "--batch-size=10 on 3 ranks: 3 or 4 rows for each" in shown
    assert " rows for each" not in launcher.run("--dry-run", "-n3", "--", "script.py").out


def test_variables_of_the_command_line_are_the_launchers_too(launcher):
    launcher.script("import sys; sys.stdout.write('hello\\n')")
    result = launcher.run("-n2", "-x", "TNT_OUTPUT_ON_ALL_DEVICES=1", "--", "script.py")
    assert sorted(result.out.splitlines()) == ["[0] hello", "[1] hello"]


@pytest.mark.parametrize("option", ["--n-per-node", "--devices-per-node"])
def test_ranks_per_node(launcher, option):
    launcher.copy("show")
    launcher.run(option, "3", "script.py")
    assert [each["env"]["TNT_SIZE"] for each in seen_by(launcher, 3)] == ["3"] * 3


def test_pinned_to_sockets(launcher):
    """Every socket of the machine whole; memory by the kernel's own account of this process."""
    launcher.script("""
        import os, pathlib
        policy = pathlib.Path("/proc/self/numa_maps")
        bound = policy.exists() and " bind:" in policy.read_text()
        print(sorted(os.sched_getaffinity(0)), bound, flush=True)
    """)
    sockets = {}
    for cpu in os.sched_getaffinity(0):
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id") as file:
            sockets.setdefault(file.read(), []).append(cpu)
    whole = [str(sorted(cpus)) for cpus in sockets.values()]
    pinned = launcher.run("-n2", "--pin-to-socket", "--output-on-all-devices", "script.py")
    assert all(any(cpus in line for cpus in whole) for line in pinned.out.splitlines())
    assert "True" not in pinned.out
    if not os.path.exists("/proc/self/numa_maps"):
        pytest.skip("this kernel has no NUMA")
    both = launcher.run("-n1", "--pin-to-socket", "--pin-memory-to-socket", "script.py")
    if "WARNING: memory of rank 0 is not pinned to its socket" in both.err:
        pytest.skip("this container forbids set_mempolicy")
    assert both.out.endswith("True\n")


def test_another_interpreter(launcher):
    wrapper = launcher.script('#!/bin/sh\necho "wrapped $1"; shift; exec "$@"\n', "wrap", 0o755)
    launcher.script("import sys\nprint(sys.argv[1])\n")
    result = launcher.run(f"--python-interpreter={wrapper} once {sys.executable}", "script.py", "argument")
    assert (result.returncode, result.out) == (0, "wrapped once\nargument\n")
    result = launcher.run("--python-interpreter=no-such-program -u", "script.py")
    assert (result.returncode, result.err.count("\n")) == (127, 1)
    assert "names no program: 'no-such-program -u'" in result.err


def test_a_script_that_is_a_program(launcher):
    launcher.script("#!/bin/sh\necho program\n", "train", 0o755)
    assert launcher.run("--python-interpreter=", "train").out == "program\n"
    launcher.script("print('no program')")
    result = launcher.run("--python-interpreter=", "script.py")
    assert (result.returncode, result.err.count("\n")) == (127, 1)
    assert "'script.py' is not a program" in result.err


def test_log_files_have_all_output_of_each_rank(launcher):
    launcher.script("""
        import os, sys
        rank = os.environ["TNT_RANK"]
        print(f"out of {rank}", flush=True)
        print(f"err of {rank}", file=sys.stderr, flush=True)
        sys.stdout.write("unfinished")
    """)
    (launcher.folder / "logs").mkdir()
    (launcher.folder / "logs" / "rank-0.log").write_text("of an older job, which was longer than this one\n")
    result = launcher.run("-n2", "--log-dir=logs", "script.py")
    assert (result.returncode, result.out, result.err) == (0, "out of 0\nunfinished", "err of 0\n")
    for rank in range(2):
        lines = (launcher.folder / "logs" / f"rank-{rank}.log").read_text().splitlines()
        assert sorted(lines) == [f"err of {rank}", f"out of {rank}", "unfinished"]


def test_log_files_by_a_variable_beside_marked_output(launcher):
    launcher.script("""
        import os, sys
        if os.environ["TNT_RANK"] == "1":
            raise SystemExit("the reason")
    """)
    result = launcher.run("-n2", "--log-on-all-devices", "script.py", env={"TNT_LOG_DIR": "logs"})
    assert result.returncode == 1
    assert "[1] the reason" in result.err
    assert (launcher.folder / "logs" / "rank-1.log").read_text() == "the reason\n"


def test_a_full_disk_ends_the_log_and_not_the_job(launcher):
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))

    launcher.script("for i in range(20_000): print('shown')")
    result = launcher.run("--log-dir=logs", "script.py", preexec_fn=little_room)
    assert (result.returncode, result.out) == (0, 20_000 * "shown\n")
    assert result.err == "tarantella: WARNING: cannot write logs to 'logs/rank-0.log': File too large\n"


def test_dry_run_checks_the_job(launcher):
    launcher.script("open('ran', 'w')")
    cores = len(os.sched_getaffinity(0))
    result = launcher.run("--dry-run", f"-n{cores + 1}", "script.py")
    assert result.returncode == 0
    assert f"WARNING: {cores + 1} ranks share " in result.whole_err
    assert result.out.startswith(f"host {socket.gethostname()}: ranks 0-{cores}\ntarantella ")
    assert f"(Python {platform.python_version()})" in result.out
    assert not (launcher.folder / "ran").exists()
    fake = launcher.script("#!/bin/sh\necho 3.9.1 0.8.0\n", "python3", 0o755)
    result = launcher.run("--dry-run", f"--python-interpreter={fake}", "script.py")
    assert "WARNING: this Python has tarantella 0.8.0, but the launcher is " in result.err


def test_more_ranks_than_cores_get_a_warning_and_run(launcher):
    launcher.script("print('ran')")
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0))), launcher.executable]
    result = launcher.run(*one_core[1:], "-n2", "script.py", program=one_core[0])
    cure = "use a smaller -n, or more cores (Slurm: --cpus-per-task)"
    assert (result.returncode, result.out) == (0, "ran\n")
    assert result.whole_err == f"tarantella: WARNING: 2 ranks share 1 core: {cure}\n"


def test_information_says_what_runs_where(launcher):
    launcher.script("")
    result = launcher.run("-n2", "--log-level=info", "script.py")
    assert result.err.startswith(f"tarantella: INFO: 2 ranks on {socket.gethostname()}")
