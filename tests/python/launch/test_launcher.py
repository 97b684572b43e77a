"""What a rank gets from the launcher: environment, cores, GPU, program, arguments and streams."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)


def seen_by(launcher, ranks: int) -> list[dict]:
    return [json.loads((launcher.folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def allowed_cores() -> set[int]:
    return os.sched_getaffinity(0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_environment_of_every_rank(launcher, ranks):
    launcher.copy("show")
    result = launcher.run("-n", ranks, "--", "script.py", env={"MY_OWN": "kept = as it is"})
    assert (result.returncode, result.err) == (0, "")
    seen = seen_by(launcher, ranks)
    for rank, env in enumerate(each["env"] for each in seen):
        assert env["TNT_RANK"] == env["TNT_LOCAL_RANK"] == str(rank)
        assert env["TNT_SIZE"] == env["TNT_LOCAL_SIZE"] == str(ranks)
        assert env["TNT_LAUNCHER"] == "1"
        assert env["TNT_LOG_LEVEL"] == "WARNING"
        assert env["MY_OWN"] == "kept = as it is"
        assert env["CUDA_VISIBLE_DEVICES"] == "-1"
        assert env["PYTHONUNBUFFERED"] == "1"
        assert env["PATH"].split(":")[0] == str(Path(launcher.executable).resolve().parent)
        for absent in (
            "TNT_TIMELINE",
            "TNT_SNAPSHOT_FDS",
            "TNT_TIMELINE_FD",
            "TNT_FUSION_THRESHOLD",
            "TNT_OUTPUT_ON_ALL_DEVICES",
            "TNT_LOG_ON_ALL_DEVICES",
        ):
            assert absent not in env
    assert {re.fullmatch("[0-9a-f]{32}", each["env"]["TNT_JOB_ID"])[0] for each in seen} == {
        seen[0]["env"]["TNT_JOB_ID"]
    }


def test_options_reach_the_environment(launcher):
    launcher.copy("show")
    options = [
        "--log-level=debug",
        "--fusion-threshold",
        "0",
        "--gather-limit=7",
        "--stall-timeout=2.5",
        "--log-on-all-devices",
        "--output-on-all-devices",
    ]
    assert launcher.run("-n2", *options, "script.py").returncode == 0
    for each in seen_by(launcher, 2):
        env = each["env"]
        assert env["TNT_LOG_LEVEL"] == "DEBUG"
        assert env["TNT_FUSION_THRESHOLD"] == "0"
        assert env["TNT_GATHER_LIMIT"] == "7"
        assert env["TNT_STALL_TIMEOUT"] == "2.5"
        assert env["TNT_LOG_ON_ALL_DEVICES"] == env["TNT_OUTPUT_ON_ALL_DEVICES"] == "1"


def test_two_jobs_have_two_ids(launcher):
    launcher.copy("show")
    ids = set()
    for _ in range(2):
        launcher.run("script.py")
        ids.add(seen_by(launcher, 1)[0]["env"]["TNT_JOB_ID"])
    assert len(ids) == 2


def test_what_the_user_set_stays(launcher):
    launcher.copy("show")
    own = {
        "OMP_NUM_THREADS": "7",
        "PYTHONUNBUFFERED": "",
        "TNT_LOG_LEVEL": "ERROR",
        "TNT_FUSION_THRESHOLD": "5",
    }
    launcher.run("-n", "2", "script.py", env=own)
    for each in seen_by(launcher, 2):
        assert own.items() <= each["env"].items()


def test_a_launcher_inside_a_rank_inherits_nothing(launcher):
    launcher.copy("show")
    outer = {
        "TNT_RANK": "3", "TNT_SIZE": "8", "TNT_LOCAL_RANK": "3", "TNT_LOCAL_SIZE": "4",
        "TNT_JOB_ID": "f" * 32, "TNT_RANK_PID": "1",
        "TNT_LOG_LEVEL": "DEBUG", "TNT_FUSION_THRESHOLD": "9", "TNT_GATHER_LIMIT": "9",
        "TNT_STALL_TIMEOUT": "9",
        "TNT_LOG_ON_ALL_DEVICES": "1",
        "TNT_OUTPUT_ON_ALL_DEVICES": "1", "OMP_NUM_THREADS": "64",
    }  # fmt: skip
    launcher.run("-n", "2", "script.py", env=outer)
    for rank, each in enumerate(seen_by(launcher, 2)):
        env = each["env"]
        assert (env["TNT_RANK"], env["TNT_SIZE"], env["TNT_LOG_LEVEL"]) == (str(rank), "2", "WARNING")
        assert env["TNT_JOB_ID"] != "f" * 32
        assert env["OMP_NUM_THREADS"] != "64"
        for absent in (
            "TNT_FUSION_THRESHOLD", "TNT_GATHER_LIMIT", "TNT_STALL_TIMEOUT", "TNT_OUTPUT_ON_ALL_DEVICES",
            "TNT_LOG_ON_ALL_DEVICES", "TNT_RANK_PID",
        ):  # fmt: skip
            assert absent not in env


def test_one_rank_is_not_bound(launcher):
    launcher.copy("show")
    launcher.run("-n", "1", "script.py")
    (seen,) = seen_by(launcher, 1)
    assert set(seen["cores"]) == allowed_cores()
    assert "OMP_NUM_THREADS" not in seen["env"]


def test_cores_are_disjoint_and_all_used(launcher):
    ranks = len(allowed_cores())
    if ranks < 2:
        pytest.skip("needs two cores")
    launcher.copy("show")
    launcher.run("-n", 2, "script.py")
    first, second = (set(each["cores"]) for each in seen_by(launcher, 2))
    assert not first & second
    assert first | second == allowed_cores()


def test_more_ranks_than_cores_share_them_evenly(launcher):
    ranks = 2 * len(allowed_cores())
    if ranks > 16:
        pytest.skip("would start too many processes")
    launcher.copy("show")
    launcher.run("-n", ranks, "script.py")
    seen = seen_by(launcher, ranks)
    assert set().union(*(each["cores"] for each in seen)) == allowed_cores()
    assert all(each["env"]["OMP_NUM_THREADS"] == "1" for each in seen)


def test_the_launchers_own_mask_is_respected(launcher):
    core = min(allowed_cores())
    launcher.copy("show")
    launcher.run("-n", 2, "script.py", preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert [each["cores"] for each in seen_by(launcher, 2)] == [[core], [core]]


ARGUMENTS = ["a b", "--", "-n", "9", "--no-gpu", "it's", "", "ünï", "*", "$HOME", "--x=y\n"]


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_arguments_are_passed_as_they_are(launcher, dashes):
    launcher.copy("show", "my script.py")
    assert launcher.run("-n", "2", *dashes, "my script.py", *ARGUMENTS).returncode == 0
    for each in seen_by(launcher, 2):
        assert each["args"] == ["my script.py", *ARGUMENTS]


def test_hash_bang_script_runs_itself(launcher):
    launcher.script('#!/bin/sh\necho "$TNT_RANK of $TNT_SIZE: $0 $1"\n', "run.sh", 0o755)
    result = launcher.run("-n", "2", "./run.sh", "a b")
    assert (result.returncode, result.out) == (0, "0 of 2: ./run.sh a b\n")


def test_script_with_hash_bang_that_is_not_executable_is_python(launcher):
    launcher.script("#!/bin/false\nprint('python')\n")
    assert launcher.run("script.py").out == "python\n"


def test_python_beside_the_executable_is_taken(launcher):
    """As after `pip install` into a virtual environment, without activating it."""
    bin_folder = launcher.folder / "bin"
    bin_folder.mkdir()
    copy = bin_folder / "tarantella"
    copy.write_bytes(Path(launcher.executable).read_bytes())
    copy.chmod(0o755)
    (bin_folder / "python3").symlink_to(sys.executable)
    launcher.executable = str(copy)
    launcher.script("import sys\nprint(sys.orig_argv[0])\n")
    assert launcher.run("script.py").out == f"{bin_folder}/python3\n"
    launcher.script("#!/usr/bin/env python3\nimport os\nprint(os.environ['PATH'].split(':')[0])\n", "own", 0o755)
    assert launcher.run("-n", "2", "./own").out == f"{bin_folder}\n"


def test_only_the_master_has_stdin_and_stdout(launcher):
    """That the launcher says so about a pipe: test_stdin.py."""
    launcher.script("""
        import os, sys
        with open("read" + os.environ["TNT_RANK"], "w") as out:
            out.write(sys.stdin.read())
        print("from", os.environ["TNT_RANK"])
    """)
    with launcher.start("-n", "3", "--log-level=error", "script.py", stdin=subprocess.PIPE) as process:
        out, err = process.communicate(b"words", timeout=60)
    assert (process.returncode, out, err) == (0, b"from 0\n", b"")
    assert [(launcher.folder / f"read{rank}").read_text() for rank in range(3)] == ["words", "", ""]


def test_ranks_get_the_signals_and_limits_the_launcher_got(launcher):
    launcher.script("""
        import resource, signal
        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        print(resource.getrlimit(resource.RLIMIT_NOFILE))
    """)
    alone = subprocess.run([sys.executable, "script.py"], cwd=launcher.folder, capture_output=True, check=True)
    assert launcher.run("script.py").out == alone.stdout.decode()


def test_dry_run_starts_nothing(launcher):
    launcher.script("open('ran', 'w')")
    options = ["-n", "2", "--fusion-threshold=64", "--timeline=t.json"]
    result = launcher.run("--dry-run", *options, "--", "script.py", "a b", "it's")
    assert (result.returncode, result.err) == (0, "")
    assert not (launcher.folder / "ran").exists()
    assert not (launcher.folder / "t.json").exists()
    assert "TNT_TIMELINE=t.json" in result.out
    for rank in range(2):
        assert f"TNT_RANK={rank} " in result.out
    assert "TNT_FUSION_THRESHOLD=64" in result.out
    commands = [line.split(": ", 1)[1] for line in result.out.splitlines() if line.startswith("  command: ")]
    assert len(commands) == 2
    said = subprocess.run(["sh", "-c", "printf '%s|' " + commands[0]], capture_output=True, text=True, check=True)
    assert said.stdout.split("|")[1:] == ["script.py", "a b", "it's", ""]


def test_version_and_help(launcher):
    assert re.fullmatch(r"tarantella \d+\.\d+\S*\n", launcher.run("--version").out)
    for word in ("-h", "--help"):
        result = launcher.run(word)
        assert result.returncode == 0
        for option in (
            "-n",
            "--no-gpu",
            "--dry-run",
            "--log-level",
            "--fusion-threshold",
            "--output-on-all-devices",
            "--timeline",
        ):
            assert option in result.out


@functools.lru_cache(maxsize=1)
def own_mounts() -> list[str]:
    """The command that gives a program mounts of its own; skips where the kernel lets nobody have them."""
    for command in (["unshare", "--mount"], ["unshare", "--mount", "--user", "--map-root-user"]):
        if shutil.which("unshare") and subprocess.call([*command, "true"], stderr=subprocess.DEVNULL) == 0:
            return command
    pytest.skip("no mount namespaces here")


def run_with_gpus(launcher, count: int, driver: bool, *arguments: str, **options):
    """The launcher on a machine with an NVIDIA driver and as many GPUs: as /proc shows them."""
    nvidia = launcher.folder / "driver" / "nvidia"
    (nvidia / "gpus").mkdir(parents=True)
    if driver:
        (nvidia / "version").write_text("NVRM version\n")
    for gpu in range(count):
        (nvidia / "gpus" / f"0000:0{gpu}:00.0").mkdir()
    program, *more = own_mounts()
    mounted = ["sh", "-c", 'mount --bind driver /proc/driver && exec "$@"', "sh", launcher.executable]
    return launcher.run(*more, *mounted, *arguments, program=program, **options)


@pytest.mark.parametrize(
    ("gpus", "options", "visible", "devices", "warns"),
    [
        (2, [], None, ["0", "1"], False),
        (2, ["-n", "1"], None, ["0"], False),
        (2, ["-n", "2"], None, ["0", "1"], False),
        (2, ["-n", "3"], None, ["-1"] * 3, True),
        (2, ["-n", "3", "--no-gpu"], None, ["-1"] * 3, False),
        (2, ["--no-gpus"], None, ["-1"], False),
        (3, [], "2,0", ["2", "0"], False),
        (3, [], "GPU-aa,1", ["GPU-aa", "1"], False),
        (3, [], "1,7,0", ["1"], False),
        (3, ["-n", "2"], "1", ["-1", "-1"], True),
        (3, [], "-1", ["-1"], False),
        (0, [], None, ["-1"], True),
        (0, ["-n", "2"], None, ["-1", "-1"], True),
        (0, ["-n", "2", "--log-level=error"], None, ["-1", "-1"], False),
        (None, [], None, ["-1"], False),
        (None, ["-n", "2"], None, ["-1", "-1"], False),
    ],
)
def test_ranks_get_the_gpus_or_a_warning(launcher, gpus, options, visible, devices, warns):
    launcher.copy("show")
    if visible is None:
        del launcher.env["CUDA_VISIBLE_DEVICES"]
    else:
        launcher.env["CUDA_VISIBLE_DEVICES"] = visible
    result = run_with_gpus(launcher, gpus or 0, gpus is not None, *options, "script.py")
    assert result.returncode == 0
    seen = [each["env"] for each in seen_by(launcher, len(devices))]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in seen] == devices
    growth = [each.get("TF_FORCE_GPU_ALLOW_GROWTH") for each in seen]
    assert growth == [None if device == "-1" else "true" for device in devices]
    assert not (launcher.folder / f"rank{len(devices)}.json").exists()
    assert result.err.count("WARNING") == result.err.count("\n") == int(warns)
