"""Programs that are no part of a job and reach its ports, or have another key."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jobs import of_torchrun

pytestmark = pytest.mark.timeout(120)

SUM = """
    import numpy as np
    import tarantella as tnt
    print(int(tnt.Allreduce().execute(np.ones(1))[0]), flush=True)
"""
CROWD = """
    import resource, socket, sys
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    address, port = sys.argv[1], int(sys.argv[2])
    held = []
    try:
        for number in range(2000):
            held.append(socket.create_connection((address, port), 5))
        for number in range(100):
            held.append(socket.create_connection((address, port), 5))
            held[-1].setblocking(False)
            held[-1].send(bytes(1 << 16))
    except OSError as error:
        print(error)  # the job has started, and its port is gone
    open("crowded", "w").close()
    input()
"""


def crowd_at(hosts, program: str) -> None:
    """2,000 silent connections and 100 with junk, at the first port on which the program listens on node1."""
    hosts.script(CROWD, name="crowd.py")
    while not (ports := hosts.listening("node1", program)):
        pass
    words = (sys.executable, "crowd.py", hosts.address("node1"), ports[0])
    hosts.start(*words, host="node3", stdin=subprocess.PIPE)
    hosts.wait_for_files("crowded")


def test_a_crowd_at_the_launchers_port(hosts, executable):
    hosts.script(SUM)
    shell = hosts.folder / "shell"
    waits = f"[ $host = node2 ] && while [ ! -e {hosts.folder}/crowded ]; do sleep 0.05; done\nclock=$(cat"
    shell.write_text(shell.read_text().replace("clock=$(cat", waits, 1))
    job = hosts.start(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py")
    crowd_at(hosts, "tarantella")
    job.wait()
    assert (job.code, job.out, job.err) == (0, "2\n", "")
    hosts.end_all()


def test_a_crowd_at_the_port_of_the_first_leader(hosts):
    hosts.script(SUM)
    first = hosts.start(sys.executable, "train.py", env=of_torchrun(0))
    crowd_at(hosts, "python")
    second = hosts.start(sys.executable, "train.py", host="node2", env=of_torchrun(1))
    for job in (first, second):
        assert (job.wait().code, job.out, job.err) == (0, "2\n", "")
    hosts.end_all()


def test_hosts_with_other_keys_are_told_how_to_share_one(hosts):
    hosts.script(SUM)
    for number in (0, 1):
        (hosts.folder / f"key{number}").write_bytes(bytes([number]) * 32)
        (hosts.folder / f"key{number}").chmod(0o600)
    own = [{"TNT_KEY_FILE": str(hosts.folder / f"key{rank}"), "TNT_TIMEOUT": "4"} for rank in (0, 1)]
    jobs = [
        hosts.start(sys.executable, "train.py", host=f"node{rank + 1}", env=of_torchrun(rank) | own[rank])
        for rank in (0, 1)
    ]
    for job in jobs:
        assert job.wait().code != 0
    assert "did not join in time: 1" in jobs[0].err
    assert "machine 1 found no rank 0 on host 'node1' in time" in jobs[1].err
    for job in jobs:
        assert "have all machines one key (that of the home folder, or of TNT_KEY_FILE)?" in job.err, job.err


HEARS = """
    import socket
    everything = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
    with open("heard", "wb", buffering=0) as file:
        open("hears", "w").close()
        while True:
            file.write(everything.recv(1 << 16))
"""
TOKEN = "hf_0123456789abcdefghijklmnopqrstuv"


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi", "intel_mpi"], indirect=True)
def test_who_hears_all_packets_reads_no_token_of_the_user(hosts, executable, mpi):
    hosts.script("""
        import os
        assert os.environ["HF_TOKEN"].startswith("hf_")
        print("in clear", flush=True)
    """)
    shell = hosts.folder / "shell"  # of a remote shell: the other host has not the token
    shell.write_text(shell.read_text().replace("clock=$(cat", "unset HF_TOKEN\nclock=$(cat", 1))
    hosts.script(HEARS, name="hears.py")
    hosts.start(sys.executable, "hears.py", host="node1")
    hosts.wait_for_files("hears")
    env = {**mpi, "HF_TOKEN": TOKEN}
    words = ("--output-on-all-devices", "--", "train.py")
    job = hosts.run(executable, hosts.hostfile(2, 1), *words, env=env)
    assert (job.code, job.complaints) == (0, "")
    heard = (hosts.folder / "heard").read_bytes()
    assert b"[1@node2] in clear" in heard
    assert TOKEN.encode() not in heard
    hosts.end_all()
