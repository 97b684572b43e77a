"""Downloads of a job: one for all nodes, or one for each, and the same data on every rank."""

from __future__ import annotations

from collections.abc import Callable

import tarantella as tnt


def download_once(fetch: Callable[[], None]) -> None:
    """Calls `fetch` on the master rank, then on one rank of each other node, and returns when all are done.

    `fetch` does nothing where the files exist: nodes that share a folder download once. Call it on all ranks.
    """
    is_master = tnt.is_master_rank()
    for chosen in (is_master, tnt.get_local_rank() == 0 and not is_master):
        if chosen:
            fetch()
        tnt.barrier()


def on_all_ranks(found: bool) -> bool:
    """Whether every rank has found its data: if one has not, all use other data. Call it on all ranks."""
    return bool(tnt.allreduce(int(found), "min"))
