"""`tarantella.run` with ranks on several hosts."""

from __future__ import annotations

import signal
import sys

import pytest

pytestmark = pytest.mark.timeout(120)

SCRIPT = """
    import pathlib, signal, socket, sys
    import tarantella as tnt

    def where(scale):
        tnt.init()
        print("on", socket.gethostname())
        return socket.gethostname(), scale * int(tnt.Allreduce().execute(float(tnt.get_rank())))

    def fail():
        if tnt.get_rank() == 1:
            raise LookupError("there")
        tnt.Barrier().execute()

    def wait():
        pathlib.Path(f"ready{tnt.get_rank()}").touch()
        signal.pause()

    hosts = "hosts" if sys.argv[1] == "file" else ["node1:1", "node2:1"]
    if sys.argv[1] == "wait":
        tnt.run(wait, 2, hosts=hosts)
    print(tnt.run(where, 2, (10,), hosts=hosts))
    try:
        tnt.run(fail, 2, hosts=hosts)
    except LookupError as error:
        print(error, str(error.__cause__).splitlines()[-1].split("(")[0], "on node2" in str(error.__cause__))
"""


@pytest.mark.parametrize("given", ["list", "file"])
def test_results_and_errors_of_hosts(hosts, given):
    hosts.script(SCRIPT)
    hosts.hostfile(2, 1)
    job = hosts.run(sys.executable, "train.py", given)
    assert (job.code, job.complaints) == (0, "")
    assert job.out == "on node1\n[('node1', 10), ('node2', 10)]\nthere rank 1  True\n"
    assert list(hosts.folder.glob(".tarantella-run-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_on_hosts_end_with_the_script(hosts, number):
    hosts.script(SCRIPT)
    job = hosts.start(sys.executable, "train.py", "wait")
    hosts.wait_for_files("ready0", "ready1")
    job.process.send_signal(number)
    job.wait()
    hosts.wait_for_none()
    assert list(hosts.folder.glob(".tarantella-run-*")) == []
