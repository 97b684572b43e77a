"""Compares the package's version over the machines of a job: a folder that is not shared may have an older one."""

from __future__ import annotations

import socket
from array import array

from .._core import Context, __version__

_LONGEST = 128


def check(context: Context, nodes: tuple[int, ...]) -> None:
    """Raises RuntimeError on all ranks if machines have different versions. Collective, blocks."""
    own = f"{socket.gethostname()[:64]} {__version__}".encode().ljust(_LONGEST)[:_LONGEST]
    values = array("i", own)  # any buffer will do
    heard = context.allgather(values, "the versions of the machines").tobytes()  # type: ignore[arg-type]
    told = [heard[at : at + _LONGEST].decode(errors="replace").split() for at in range(0, len(heard), _LONGEST)]
    firsts = [told[sum(nodes[:node])] for node in range(len(nodes))]
    if len({version for _, version in told}) > 1:
        raise RuntimeError(difference([(host, version) for host, version in firsts]))


def difference(machines: list[tuple[str, str]]) -> str:
    """One line: which machines have which version, and the cure."""
    hosts: dict[str, list[str]] = {}
    for host, version in machines:
        hosts.setdefault(version, []).append(host)
    told = "; ".join(f"{version} on {_listed(names)}" for version, names in hosts.items())
    return f"the machines have different versions of tarantella: {told}; install one version on all of them"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
