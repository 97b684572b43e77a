"""A job over sixteen hosts with one rank each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from network_hosts import Hosts

pytestmark = [pytest.mark.timeout(240), pytest.mark.full]

HOSTS = 16
ROUNDS = 4  # log2 HOSTS
MEETS = """
    import sys
    import numpy as np
    import tarantella as tnt
    assert "tensorflow" not in sys.modules
    add, rank = tnt.Allreduce(), tnt.get_rank()
    def sent():
        with open("/sys/class/net/eth0/statistics/tx_packets") as packets:
            return int(packets.read())
    for size in (1, 5000, 300_000):
        total = add.execute(np.full(size, rank + 1.0, np.float32))
        assert (total == 136).all(), total
    before = sent()
    for _ in range(100):
        tnt.Barrier().execute()
    packets = add.execute(np.array([sent() - before])) / 100 / 16
    if rank == 0:
        print("packets of a rank in a barrier:", packets[0], flush=True)
"""


@pytest.fixture
def hosts(all_hosts, tmp_path: Path) -> Iterator[Hosts]:
    """`all_hosts` skips the test where there can be none."""
    made = Hosts(HOSTS)
    made.use(tmp_path)
    yield made
    left = made.end_all()
    made.remove()
    assert left == [], "the job left processes behind"


def test_sixteen_hosts_start_sum_and_meet_in_four_messages_each(hosts, executable):
    hosts.script(MEETS)
    job = hosts.run(executable, hosts.hostfile(HOSTS, 1), "-n", HOSTS, "--", "train.py", timeout=200)
    assert job.code == 0, job.err
    packets = float(job.out.split(":")[1])
    assert packets < 3 * ROUNDS, "each message with its acknowledgement, and the news of a node; to all others: 30"
