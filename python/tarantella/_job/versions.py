"""Compares versions over the machines of a job: a folder that is not shared may have older packages."""

from __future__ import annotations

import platform
import socket
from array import array

from .._core import Context, __version__
from .._installed import TENSORFLOW, version
from .log import logger

_LONGEST = 256
# What ranks compute with, and the packages of which one brings it.
_FRAMEWORKS = {"Keras": ("keras", "keras-nightly"), "TensorFlow": TENSORFLOW, "NumPy": ("numpy",)}
_UNKNOWN = "-"


def check(context: Context, nodes: tuple[int, ...]) -> None:
    """Compares the machines. Collective, blocks.

    Raises RuntimeError on all ranks if they have different versions of the package. If they have different minor
    versions of Python or a framework, which may compute something else, a WARNING says so.
    """
    words = [socket.gethostname()[:64], __version__, platform.python_version(), *map(_known, _FRAMEWORKS.values())]
    values = array("i", " ".join(words).encode().ljust(_LONGEST)[:_LONGEST])  # any buffer will do
    heard = context.allgather(values, "the versions of the machines").tobytes()  # type: ignore[arg-type]
    told = [heard[at : at + _LONGEST].decode(errors="replace").split() for at in range(0, len(heard), _LONGEST)]
    firsts = [told[sum(nodes[:node])] for node in range(len(nodes))]
    if len({words[1] for words in told}) > 1:
        packages = difference("tarantella", [(host, own) for host, own, *_ in firsts])
        raise RuntimeError(f"the machines have different versions of {packages}; install one version on all of them")
    if different := differences(firsts):
        logger.warning(
            "the machines have different versions of %s; what ranks compute may differ, or a call may fail on some of "
            "them only; install the same versions on all machines",
            ", of ".join(different),
        )


def differences(machines: list[list[str]]) -> list[str]:
    """The frameworks of which machines have different minor versions, each with its versions.

    A machine is its host, the version of the package, and those of Python and the frameworks.
    """
    found = []
    for at, name in enumerate(("Python", *_FRAMEWORKS), 2):
        known = [(machine[0], machine[at]) for machine in machines if machine[at] != _UNKNOWN]
        if len({tuple(words.split(".")[:2]) for _, words in known}) > 1:
            found.append(difference(name, known))
    return found


def difference(name: str, machines: list[tuple[str, str]]) -> str:
    """Which machines have which version: "Keras: 3.15.1 on node1; 3.10.0 on node2, node3"."""
    hosts: dict[str, list[str]] = {}
    for host, number in machines:
        hosts.setdefault(number, []).append(host)
    return f"{name}: " + "; ".join(f"{number} on {_listed(names)}" for number, names in hosts.items())


def _known(packages: tuple[str, ...]) -> str:
    return version(*packages) or _UNKNOWN


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
