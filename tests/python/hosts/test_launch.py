"""Jobs on several hosts: where ranks run, what they get, and what the user sees."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tarantella
from tarantella._job import rendezvous

pytestmark = pytest.mark.timeout(120)

SHOW = """
    import os, socket
    names = ("TNT_RANK", "TNT_SIZE", "TNT_LOCAL_RANK", "TNT_LOCAL_SIZE", "TNT_NODES")
    print(socket.gethostname(), *(os.environ.get(name, "-") for name in names), os.environ.get("OF_USER"), os.getcwd())
"""


def test_all_hosts_use_the_same_python_and_environment(hosts, executable):
    """The launcher's, whatever the remote shell has set."""
    shell = hosts.folder / "shell"
    others = "PYTHONPATH=/theirs VIRTUAL_ENV=/theirs OF_USER=theirs"
    shell.write_text(shell.read_text().replace('sh -c "hostname', f'sh -c "export {others}; hostname'))
    (hosts.folder / "modules").mkdir()
    (hosts.folder / "modules" / "of_user.py").touch()
    hosts.script("""
        import json, os, sys
        import of_user
        seen = [sys.executable, *(os.environ.get(name) for name in ("PYTHONPATH", "VIRTUAL_ENV", "OF_USER"))]
        open("rank" + os.environ["TNT_RANK"], "w").write(json.dumps([*seen, os.getcwd()]))
    """)
    ours = {"PYTHONPATH": f"{hosts.folder}/modules", "VIRTUAL_ENV": "/ours", "OF_USER": "seen"}
    job = hosts.run(executable, hosts.hostfile(2, 1), "--", "train.py", env=ours)
    assert (job.code, job.complaints) == (0, "")
    for rank in (0, 1):
        seen = json.loads((hosts.folder / f"rank{rank}").read_text())
        assert seen == [str(Path(executable).parent / "python3"), *ours.values(), str(hosts.folder)]


@pytest.mark.parametrize(("count", "slots"), [(2, 1), (2, 2), (3, 1)])
def test_ranks_are_numbered_host_by_host(hosts, executable, count, slots):
    hosts.script(SHOW)
    option = hosts.hostfile(count, slots)
    job = hosts.run(executable, option, "--output-on-all-devices", "-x", "OF_USER=seen", "--", "train.py")
    assert (job.code, job.complaints) == (0, "")
    places = f"{slots} {','.join([str(slots)] * count)} seen {hosts.folder}"
    expected = [
        "[{0}@node{1}] node{1} {0} {2} {3} {4}".format(rank, rank // slots + 1, count * slots, rank % slots, places)
        for rank in range(count * slots)
    ]
    assert sorted(job.out.splitlines()) == expected


def test_only_the_first_rank_of_a_host_can_call_mpi(hosts, executable):
    hosts.script("""
        import os, stat
        sockets = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                if stat.S_ISSOCK(os.fstat(int(fd)).st_mode):
                    sockets.append(fd)
            except OSError:
                pass  # of the listing
        pmi = os.environ.get("PMI_FD")
        open("rank" + os.environ["TNT_RANK"], "w").write(str((pmi is not None, sockets == [pmi] * len(sockets))))
        assert os.environ["TNT_TRANSPORT"].startswith("mpi-abi:/")
        assert "TARANTELLA_COORDINATOR" not in os.environ
    """)
    assert hosts.run(executable, hosts.hostfile(2, 2), "--", "train.py").code == 0
    said = [(hosts.folder / f"rank{rank}").read_text() for rank in range(4)]
    assert said == ["(True, True)", "(False, True)"] * 2


READS = """
    import os, sys
    print(os.environ["TNT_RANK"], repr(sys.stdin.read()))
    print("seen" if os.environ["TNT_RANK"] == "0" else "not seen", file=sys.stderr)
"""
NO_INPUT = (
    "tarantella: WARNING: no rank of a job on several hosts reads stdin; open a file by its name, "
    "or redirect < /dev/null\n"
)


@pytest.mark.parametrize("size", [0, 1_000_000])
@pytest.mark.parametrize("mpi", ["mpich", "open_mpi", "intel_mpi"], indirect=True)
def test_no_rank_reads_stdin_and_the_first_writes_to_the_terminal(hosts, executable, mpi, size):
    """However much there is: what nobody reads keeps no MPI from starting."""
    hosts.script(READS)
    (hosts.folder / "in").write_bytes(bytes(size))
    with (hosts.folder / "in").open() as words:
        job = hosts.run(executable, hosts.hostfile(2, 1), "--", "train.py", stdin=words, env=mpi)
    assert (job.code, job.out, job.err) == (0, "0 ''\n", (NO_INPUT if size else "") + "seen\n")


def test_a_job_in_a_loop_leaves_the_list_to_the_shell(hosts, executable):
    hosts.script("print('ran')")
    loop = (
        f"printf 'a\\nb\\n' > list; while read -r line; do {executable} {hosts.hostfile(2, 1)} -- train.py; done < list"
    )
    job = hosts.run("sh", "-c", loop)
    assert (job.code, job.out, job.err) == (0, "ran\nran\n", "")


def test_long_output_arrives_whole(hosts, executable):
    hosts.script("""
        import os
        for line in range(200):
            print(os.environ["TNT_RANK"] * 20000)
    """)
    job = hosts.run(executable, hosts.hostfile(2, 2), "--output-on-all-devices", "--", "train.py")
    assert job.code == 0
    lines = job.out.splitlines()
    assert sorted(set(lines)) == [f"[{rank}@node{rank // 2 + 1}] {str(rank) * 20000}" for rank in range(4)]
    assert len(lines) == 800


def test_log_files_are_written_on_the_host_of_the_rank(hosts, executable):
    hosts.script("import os, socket\nprint('rank', os.environ['TNT_RANK'], 'on', socket.gethostname())")
    assert hosts.run(executable, hosts.hostfile(2, 2), "--log-dir=logs", "--", "train.py").code == 0
    said = [(hosts.folder / "logs" / f"rank-{rank}.log").read_text() for rank in range(4)]
    assert said == [f"rank {rank} on node{rank // 2 + 1}\n" for rank in range(4)]


def test_a_line_says_which_mpi_and_why(hosts, executable):
    hosts.script("")
    job = hosts.run(executable, hosts.hostfile(2, 1), "--log-level=INFO", "--", "train.py")
    assert "INFO: hostfile 'hosts': 2 ranks on 2 hosts, started by mpiexec of MPICH" in job.err
    assert "(beside this Python)" in job.err


def test_the_start_does_not_wait_for_a_time_limit(hosts, executable):
    hosts.script("#!/bin/sh\n", "train.sh").chmod(0o755)
    option = hosts.hostfile(2, 1)
    jobs = [hosts.run(executable, option, "--", "./train.sh") for _ in range(3)]
    assert {job.code for job in jobs} == {0}
    assert min(job.seconds for job in jobs) < 5


def test_dry_run_shows_what_each_host_would_start(hosts, executable):
    hosts.script("open('ran', 'w')")
    job = hosts.run(executable, hosts.hostfile(2, 2), "--dry-run", "--", "train.py")
    assert job.code == 0
    assert job.out.startswith("host node1: ranks 0-1\nhost node2: ranks 2-3\n")
    assert "-hosts node1,node2 -n 2 -ppn 1" in job.out
    assert re.search(r"^remote launcher: mpiexec of MPICH \S+ \(beside this Python\)$", job.out, re.MULTILINE)
    line = next(line for line in job.out.splitlines() if line.startswith("command: "))
    ssh_options = "-o BatchMode=yes -o ConnectTimeout=7"
    assert line.startswith(f"command: HYDRA_LAUNCHER_EXTRA_ARGS='{ssh_options}' /")
    # it can be repeated: mpiexec starts the launcher on both hosts
    launcher = hosts.folder / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {hosts.folder}/started-$(hostname)\n")
    launcher.chmod(0o755)
    assert hosts.run("sh", "-c", line.removeprefix("command: ").replace(executable, str(launcher))).code == 0
    assert all((hosts.folder / f"started-{host}").exists() for host in ("node1", "node2"))
    for host, ranks in (("node1", (0, 1)), ("node2", (2, 3))):
        part = job.out[job.out.index(f"host {host}: tarantella ") :]
        places = [part.index(f"\nrank {rank}:\n  cores: ") for rank in ranks]
        assert f"TNT_RANK={ranks[1]} " in part[places[1] :].splitlines()[3]
        assert "  command: " in part[places[1] :]
    assert not (hosts.folder / "ran").exists()
    hosts.wait_for_none()

    (hosts.folder / "silent-node2").touch()
    job = hosts.run(executable, hosts.hostfile(2, 2), "--start-timeout=3", "--dry-run", "--", "train.py")
    assert job.code == 1
    assert "host node2 did not answer within 3 s" in job.err
    (hosts.folder / "silent-node2").unlink()

    (hosts.folder / "code").mkdir()
    hosts.script("", "code/train.py")
    hosts.mount("-t", "tmpfs", "none", hosts.folder / "code")
    job = hosts.run(executable, hosts.hostfile(2, 2), "--dry-run", "--", "code/train.py")
    assert job.code == 2
    assert job.err.startswith("tarantella: host 'node2': cannot read script 'code/train.py'"), job.err


def test_each_warning_of_the_hosts_is_one_line(hosts, executable):
    hosts.script("")
    option = hosts.hostfile(2, 3)
    for gpu in (0, 1):
        (hosts.folder / "driver" / "nvidia" / "gpus" / f"0000:0{gpu}:00.0").mkdir(parents=True)
    (hosts.folder / "driver" / "nvidia" / "version").write_text("NVRM version\n")
    shell = hosts.folder / "shell"
    shows_gpu = f'sh -c "[ $host = node2 ] && mount --bind {hosts.folder}/driver /proc/driver; hostname'
    shell.write_text(shell.read_text().replace('sh -c "hostname', shows_gpu))
    on_one_core = ["env", "-u", "CUDA_VISIBLE_DEVICES", "taskset", "-c", min(os.sched_getaffinity(0)), executable]
    job = hosts.run(*on_one_core, option, "--", "train.py")
    assert job.code == 0
    assert job.err.splitlines() == [
        "tarantella: WARNING: hosts node1, node2: 3 ranks share 1 core: "
        "use a smaller -n, or more cores (Slurm: --cpus-per-task)",
        "tarantella: WARNING: host node2: there are 2 GPUs for 3 ranks: all run on the CPU; "
        "a smaller -n uses the GPUs, --no-gpu hides this warning",
    ]
    job = hosts.run(*on_one_core, option, "--log-level=ERROR", "--", "train.py")
    assert (job.code, job.complaints) == (0, "")
    (hosts.folder / "hosts").write_text("node1\nnode2\n")
    unused = "1 rank uses 1 of 2 GPUs: slots=2 in the hostfile uses all, slots=1 hides this warning"
    job = hosts.run(*on_one_core, option, "--", "train.py")
    assert (job.code, job.err) == (0, f"tarantella: WARNING: host node2: {unused}\n")
    job = hosts.run(*on_one_core, option, "--n-per-node=1", "--", "train.py")
    assert (job.code, job.complaints) == (0, "")


def test_one_other_host(hosts, executable):
    hosts.script(SHOW)
    (hosts.folder / "hosts").write_text("node2 slots=2\n")
    job = hosts.run(executable, "--hostfile=hosts", "--", "train.py")
    assert (job.code, job.out) == (0, f"node2 0 2 0 2 - None {hosts.folder}\n")
    assert socket.gethostname() != "node2"


WRONG = [
    ("down-node2", "train.py", "node2.*(No route to host|try ssh to (each of these|this) host)"),
    ("silent-node2", "train.py", "hosts? .*node2 did not answer within 9 s"),
    ("no script", "code/train.py", "host 'node2': cannot read script 'code/train.py'"),
    ("no Python", "train.py", f"host 'node2': cannot run '{sys.prefix}/bin/python3', which runs .*; install the same"),
    (None, "/proc/self/fd/0", "is not a file that every rank can read"),
    ("no launcher", "train.py", "host 'node2' cannot run .*; install the same version"),
    ("version", "train.py", f"host 'node2' has tarantella 0.1, but this one is {tarantella.__version__}; install"),
    ("protocol", "train.py", "host 'node2' uses another protocol; install the same version of tarantella on all"),
    ("mute", "train.py", "host node2 did not answer within 9 s"),
    ("place", "train.py", "'node2' claims to be host 7 of 2: it was started by another MPI than"),
]
# What a guest says at a door (runtime/door.h), with SipHash-2-4 of 128 bits.
KNOCKING = """
import struct
MASK = 2**64 - 1

def siphash(key, text):
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]
    def turn(x, bits):
        return (x << bits | x >> 64 - bits) & MASK
    def rounds(count):
        for _ in range(count):
            for a, b, c, d, p, q in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & MASK
                v[b] = turn(v[b], p) ^ v[a]
                v[a] = turn(v[a], 32)
                v[c] = (v[c] + v[d]) & MASK
                v[d] = turn(v[d], q) ^ v[c]
    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    tag = b""
    for place, mark in ((2, 0xee), (1, 0xdd)):
        v[place] ^= mark
        rounds(4)
        tag += struct.pack("<Q", v[0] ^ v[1] ^ v[2] ^ v[3])
    return tag

def knock(head, secret):
    key, own, question = siphash(bytes(16), secret), bytes(range(16)), b""
    while len(question) < 16:
        question += head.recv(16 - len(question))
    head.sendall(own + siphash(key, b"guest" + question + own))
    answer = b""
    while len(answer) < 16:
        answer += head.recv(16 - len(answer))
    assert answer == siphash(key, b"host" + question + own)
"""
SAYS = """#!{python}
import os, socket, struct, sys
sys.path.insert(0, "{folder}")
from knocking import knock
secret, port, addresses = os.environb[b"TARANTELLA_COORDINATOR"].split()
words = b"{version}", b"node2", b"{place}", b"0"  # and no variable of its environment
hello = b"".join(struct.pack("<I", len(word)) + word for word in words)
head = socket.create_connection((addresses.split(b",")[0], int(port)))
knock(head, secret)
head.sendall(struct.pack("<II", 0, len(hello)) + hello)
if head.recv(1):  # the job
    if {ready}:
        head.sendall(struct.pack("<III", 2, 4, 1))  # ready, but the word of one byte is missing
    while head.recv(4096):
        pass
"""


@pytest.mark.parametrize(("wrong", "script", "said"), WRONG)
def test_what_is_wrong_on_a_host_is_one_line(hosts, executable, mpi, wrong, script, said):
    (hosts.folder / "code").mkdir()
    for name in ("train.py", "code/train.py"):
        hosts.script("open('ran' + __import__('os').environ['TNT_RANK'], 'w')", name)
    if wrong == "no script":
        hosts.mount("-t", "tmpfs", "none", hosts.folder / "code")
    elif wrong == "no Python":  # but another in PATH
        programs = Path(sys.prefix) / "bin"
        shutil.copytree(programs, hosts.folder / "bin", symlinks=True, ignore=shutil.ignore_patterns("python*"))
        hosts.mount("--bind", hosts.folder / "bin", programs)
    elif wrong == "no launcher":
        hosts.mount("--bind", "/dev/null", executable)
    elif wrong in ("version", "place", "protocol", "mute"):
        says = {"version": tarantella.__version__, "place": 1, "ready": wrong != "mute"}
        says |= {wrong: {"version": "0.1", "place": 7}.get(wrong)}
        hosts.script(KNOCKING, "knocking.py")
        other = hosts.script(SAYS.format(python=sys.executable, folder=hosts.folder, **says), "other")
        other.chmod(0o755)
        hosts.mount("--bind", other, executable)
    elif wrong:
        (hosts.folder / wrong).touch()
    job = hosts.run(executable, hosts.hostfile(2, 1), "--", script, env=mpi | {"TNT_START_TIMEOUT": "9"})
    assert job.code != 0
    waits, lines = "WARNING: still waiting for host", job.err.splitlines()
    assert any(waits in line for line in lines) == ("did not answer" in said)
    assert [bool(re.search(said, line)) for line in lines if waits not in line] == [True], job.err
    assert job.seconds < 15  # ten, and what a busy machine adds
    assert not list(hosts.folder.glob("ran*"))
    hosts.wait_for_none()


def test_a_stranger_is_not_heard(hosts, executable):
    hosts.script("import time; time.sleep(3)")
    (hosts.folder / "silent-node2").touch()
    job = hosts.start(executable, hosts.hostfile(2, 1), "--start-timeout=9", "--", "train.py")
    listening = ["ip", "netns", "exec", f"{hosts.prefix}-node1", "ss", "-tlnpH"]
    port = None
    while port is None:
        lines = subprocess.run(listening, capture_output=True, text=True, check=True).stdout.splitlines()
        port = next((line.split()[3].rpartition(":")[2] for line in lines if '"tarantella"' in line), None)
    talk = (
        f"import socket; s = socket.create_connection(('node1', {port})); s.sendall(bytes(8) + b'x' * 4096); s.recv(1)"
    )
    hosts.run("python3", "-c", talk, host="node3")
    job.wait()
    assert "host node2 did not answer" in job.err


def test_horovodrun_takes_hosts(hosts, executable):
    hosts.script(SHOW)
    words = ["-np", "3", "-H", "node1:2,node2:2", "python", "train.py"]
    job = hosts.run(executable, "horovodrun", *words)
    assert job.code == 0, job.err
    assert [line.split()[:7] for line in sorted(job.out.splitlines())] == [
        [f"[{rank}@{host}]", host, str(rank), "3", str(local), str(near), "2,1"]
        for rank, host, local, near in ((0, "node1", 0, 2), (1, "node1", 1, 2), (2, "node2", 0, 1))
    ]


@pytest.mark.parametrize(("mpi", "name"), [("open_mpi", "Open MPI"), ("intel_mpi", "Intel MPI")], indirect=["mpi"])
def test_other_mpis(hosts, executable, mpi, name):
    hosts.script("""
        import numpy as np
        import tarantella as tnt
        tnt.init()
        print(tnt.TensorAllreducer(np.ones(4)).allreduce(np.ones(4)))
    """)
    job = hosts.run(executable, hosts.hostfile(2, 1), "--log-level=INFO", "--no-gpu", "--", "train.py", env=mpi)
    assert job.code == 0, job.err
    assert f"started by mpiexec of {name}" in job.err
    assert job.out == "[2. 2. 2. 2.]\n"


def test_machines_with_different_versions_of_the_package(hosts, executable):
    hosts.script("""
        import os
        from tarantella import _core
        if os.uname().nodename == "node2":
            _core.__version__ = "0.1"
        import tarantella as tnt
        tnt.init()
    """)
    job = hosts.run(executable, hosts.hostfile(2, 2), "--", "train.py")
    assert job.code != 0
    assert job.err.count("the machines have different versions of tarantella: ") == 1
    assert f"{tarantella.__version__} on node1; 0.1 on node2; install one version on all of them" in job.err


def test_machines_with_different_versions_of_frameworks(hosts, executable):
    hosts.script("""
        import os, sys
        if os.uname().nodename != "node1":
            sys.path.insert(0, "other")
        import tarantella as tnt
        tnt.init()
    """)
    for name, version in (("keras", "3.6.0"), ("numpy", "1.26.4")):
        folder = hosts.folder / "other" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    job = hosts.run(executable, hosts.hostfile(3, 1), "--", "train.py")
    assert job.code == 0, job.err
    keras, numpy = (metadata.version(name) for name in ("keras", "numpy"))
    assert job.err == (
        f"tarantella: WARNING: the machines have different versions of Keras: {keras} on node1; 3.6.0 on node2, node3, "
        f"of NumPy: {numpy} on node1; 1.26.4 on node2, node3; results may differ between ranks, or a call may "
        "fail on some of them only; install the same versions on all machines\n"
    )


def test_versions_that_differ():
    same = ["1.0.0", "3.11.2", "3.15.1", "2.21.0", "2.4.6"]
    assert rendezvous.version_differences([["node1", *same], ["node2", *same]]) == []
    assert (
        rendezvous.version_differences([["node1", *same], ["node2", "1.0.0", "3.11.9", "3.15.0", "-", "2.4.0"]]) == []
    )
    other = ["node2", "1.0.0", "3.12.2", "3.15.1", "2.20.0", "2.4.6"]
    assert rendezvous.version_differences([["node1", *same], other]) == [
        "Python: 3.11.2 on node1; 3.12.2 on node2",
        "TensorFlow: 2.21.0 on node1; 2.20.0 on node2",
    ]
