"""Hosts with more than one network: that over which the launchers have met carries the data."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from jobs import of_torchrun

pytestmark = pytest.mark.timeout(120)

SUMS = """
    import numpy as np
    import tarantella as tnt
    for size in (1, 1000, 1000000):  # messages that leave at once, and that ask first
        total = tnt.Allreduce().execute(np.full(size, tnt.get_rank() + 1.0, np.float32))
        assert (total == 3).all(), total
    print("summed", flush=True)
"""
# Devices before eth0 in the order of names, and behind it: one address on both hosts, and networks of their own.
DEAD = {
    "docker0": ["172.17.0.1/16", "172.17.0.1/16"],
    "zmanage0": ["10.240.0.1/24", "10.240.1.1/24"],
    "adead0": ["192.168.5.1/24", "192.168.6.1/24"],
}
TWO, ALL = ("docker0", "zmanage0"), tuple(DEAD)


def add_dead_networks(hosts, devices: tuple[str, ...] = TWO) -> None:
    for device in devices:
        hosts.add_dead_network(device, DEAD[device])


@pytest.mark.parametrize("devices", [TWO, pytest.param(ALL, marks=pytest.mark.full)])
@pytest.mark.parametrize("mpi", ["mpich", "open_mpi", "intel_mpi"], indirect=True)
def test_devices_that_lead_nowhere(hosts, executable, mpi, devices):
    add_dead_networks(hosts, devices)
    hosts.script(SUMS)
    job = hosts.run(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py", env=mpi)
    assert (job.code, job.out) == (0, "summed\n"), job.err


@pytest.fixture
def shared_memory_of_node2(hosts) -> Path:
    """What /dev/shm is there: nobody else's."""
    folder = hosts.folder / "shm"
    folder.mkdir()
    hosts.mount("--bind", folder, "/dev/shm")
    return folder


def test_the_users_device_is_used_and_named(hosts, executable, mpich, shared_memory_of_node2):
    add_dead_networks(hosts)
    hosts.script(SUMS)
    job = hosts.run(
        executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py", env={"TNT_SOCKET_IFNAME": "zmanage0"}
    )
    assert job.code != 0
    assert list(shared_memory_of_node2.iterdir()) == []  # nothing is left of a start that MPI broke off
    assert "over the network device zmanage0 (TNT_SOCKET_IFNAME chooses another)" in job.err, job.err


def test_a_signal_while_mpi_starts_leaves_no_shared_memory(hosts, executable, mpich, shared_memory_of_node2):
    hosts.script(SUMS + '    open("summed", "w").close()\n    import signal; signal.pause()\n')
    job = hosts.start(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py")
    # A busy machine may miss the file, which is there for a moment.
    while not list(shared_memory_of_node2.glob("mpich_shm_*")) and not (hosts.folder / "summed").exists():
        assert job.process.poll() is None
    job.process.terminate()
    assert job.wait().code == -signal.SIGTERM
    assert list(shared_memory_of_node2.iterdir()) == []


@pytest.mark.parametrize("devices", [TWO, pytest.param(ALL, marks=pytest.mark.full)])
def test_devices_that_lead_nowhere_where_torchrun_has_started_the_ranks(hosts, devices):
    add_dead_networks(hosts, devices)
    hosts.script(SUMS)
    jobs = []
    for rank in (0, 1):
        jobs.append(hosts.start(sys.executable, "train.py", host=f"node{rank + 1}", env=of_torchrun(rank)))
    assert [(job.wait().code, job.out, job.err) for job in jobs] == [(0, "summed\n", "")] * 2


def test_a_device_that_is_not_there_is_refused_by_name(hosts, executable, mpich):
    hosts.script(SUMS)
    options = (hosts.hostfile(2, 1), "-n", "2", "--", "train.py")
    job = hosts.run(executable, *options, env={"TNT_SOCKET_IFNAME": "eth9"})
    assert job.code == 1
    assert "this machine has no network device 'eth9' (TNT_SOCKET_IFNAME); it has lo, eth0" in job.err


def test_an_address_that_does_not_answer_delays_by_one_connection(hosts):
    """The first of two addresses of the host of rank 0, in the order in which the C library tries them."""
    hosts.script("""
        import time
        began = time.monotonic()
        import tarantella as tnt
        tnt.Barrier().execute()
        print(time.monotonic() - began)
    """)
    with hosts.names_in_etc("10.231.0.14 first", f"{hosts.address('node1')} first"):
        jobs = []
        for rank, host in enumerate(("node1", "node3")):
            jobs.append(hosts.start(sys.executable, "train.py", host=host, env=of_torchrun(rank, first="first")))
        assert [job.wait().code for job in jobs] == [0, 0], jobs[1].err
    assert 2 <= float(jobs[0].out) < 10  # eight ports were tried at this address


def test_a_port_scan_ends_no_job(hosts, executable):
    """2,000 connections to the port of a rank's MPI, closed or with junk in them, while the job runs."""
    hosts.script("""
        import os, time
        import numpy as np
        import tarantella as tnt
        total = tnt.Allreduce()
        total.execute(np.ones(9, np.float32))
        open(f"up{tnt.get_rank()}", "w").close()
        while total.execute(np.array([float(os.path.exists("scanned"))]))[0] < 2:
            pass
    """)
    hosts.script(
        """
        import socket, sys
        for number in range(2000):
            with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as connection:
                if number % 2:
                    connection.send(b"x" * 200)
        """,
        name="scan.py",
    )
    job = hosts.start(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py")
    hosts.wait_for_files("up0", "up1")
    ports = hosts.listening("node1", "python3")
    assert ports
    for port in ports:
        scan = hosts.run(sys.executable, "scan.py", hosts.address("node1"), port, host="node3")
        assert scan.code == 0, scan.err
    (hosts.folder / "scanned").touch()
    assert (job.wait().code, job.complaints) == (0, "")


def test_hosts_whose_names_have_addresses_of_ipv6_first(hosts, executable, mpich):
    hosts.script(SUMS)
    addresses = {name: f"fd00:231::1{number}" for number, name in enumerate(hosts.names)}
    for name, address in addresses.items():
        hosts.add_address(name, f"{address}/64")
    try:
        with hosts.names_in_etc(*(f"{address} {name}" for name, address in addresses.items())):
            job = hosts.run(executable, hosts.hostfile(2, 1), "-n", "2", "--", "train.py", env=mpich)
        assert (job.code, job.out) == (0, "summed\n"), job.err
    finally:
        for name, address in addresses.items():
            hosts.remove_address(name, f"{address}/64")
