"""Where the machines of a job meet that torchrun, mpirun or srun has started, the MPI that they use then, and versions.

Neither needs the MPI of the starter: one rank of each machine connects to the host of rank 0, and they become the
processes of an MPI job of their own (src/runtime/leaders.h). The starter only tells which host that is.

Then all machines compare versions: a folder that is not shared may have older packages.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple

from .. import _installed
from . import key
from .environment import Layout
from .launch_environment import numbering
from .log import logger

if TYPE_CHECKING:
    from .._core import Context

CURE = "pip install 'tarantella[mpi]' on all machines brings one"

_LONGEST_VERSIONS = 256
# What ranks compute with, and the packages of which one brings it.
_FRAMEWORKS = {"Keras": ("keras", "keras-nightly"), "TensorFlow": _installed.TENSORFLOW, "NumPy": ("numpy",)}
_UNKNOWN = "-"

# Prints the host of rank 0, as mpirun of Open MPI knows it. If one rank asks, all must. A process of its own keeps that
# MPI apart from the one that the rank uses.
ASK_PMIX = """
import ctypes, os
class Process(ctypes.Structure):
    _fields_ = [("job", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]
class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint16), ("text", ctypes.c_char_p)]
pmix = ctypes.CDLL(os.path.join(os.environ.get("OMPI_LIBDIR_LOC", ""), "libmpi.so.40"))
own, none, found = Process(), ctypes.c_size_t(0), ctypes.POINTER(Value)()
ok = pmix.PMIx_Init(ctypes.byref(own), None, none) == 0
first = Process(own.job, 0)
ok = ok and pmix.PMIx_Get(ctypes.byref(first), b"pmix.hname", None, none, ctypes.byref(found)) == 0
if ok and found.contents.type == 3:
    print(found.contents.text.decode())
pmix.PMIx_Finalize(None, none)
"""


class Rendezvous(NamedTuple):
    """How the ranks of a job find one another."""

    job: str
    first_host: str = ""  # of rank 0; empty: the launcher has joined the machines
    transport: str = ""


def of(place: Layout, timeout: float) -> Rendezvous:
    """The rendezvous of this rank's job. Collective over ranks that mpiexec or mpirun has started on several machines.

    Raises RuntimeError, with the cure, if the starter does not tell enough, or if there is no MPI.
    """
    transport = os.environ.get("TNT_TRANSPORT", "").strip()
    if place.launched:
        return Rendezvous(place.job, "", transport)
    if len(place.nodes) == 1 or not place.starter:
        return Rendezvous(_named_here(place.job), "", transport)
    job, host = place.job, os.environ.get("MASTER_ADDR", "").strip("[]")  # of an IPv6 address
    if place.starter == "mpiexec":
        job, told = _ask_hydra(place, timeout)
        host = host or told
    if place.starter == "mpirun" and not host:
        host = _ask_open_mpi()
    if place.starter == "srun":
        host = host or first_of(os.environ.get("SLURM_STEP_NODELIST", ""))
    if not host and place.local_rank == 0:
        raise RuntimeError(
            f"{place.starter} does not tell on which host rank 0 runs: set MASTER_ADDR to that host on all machines "
            "(mpirun -x MASTER_ADDR=node1 …), or start the ranks with tarantella"
        )
    if place.local_rank == 0 and ":" not in transport:
        transport = _mpi(transport)
    return Rendezvous(key.named(job), host, transport)


def _named_here(job: str) -> str:
    """The job's name on one machine, where the kernel tells whose process it is, and a key only hides the name."""
    with contextlib.suppress(RuntimeError):  # there may be no home folder
        return key.named(job)
    return job


def first_of(hosts: str) -> str:
    """The first host of a list of Slurm, as in n[01-04,7],m: n01."""
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\])?([^\[,]*)", hosts)
    return "".join(part or "" for part in found.groups()) if found else ""


def _mpi(wanted: str) -> str:
    """The MPI to use, which the launcher finds: of the standard ABI, which can start without its own mpiexec."""
    if wanted not in ("", "mpi-abi"):
        return wanted  # the core says what is wrong with it
    launcher = _installed.launcher()
    found = subprocess.run([launcher, "--list-mpis"], capture_output=True, text=True, timeout=60, check=False)
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    libraries = [row[2] for row in rows if len(row) > 2 and "libmpi_abi." in os.path.basename(row[2])]
    if not libraries:
        raise RuntimeError(
            f"ranks on several machines need MPICH 5 or newer, or Intel MPI, whatever has started them; {CURE}"
        )
    return f"mpi-abi:{libraries[0]}"


def _ask_open_mpi() -> str:
    """The host of rank 0; empty if it is not told."""
    command = [sys.executable, "-S", "-c", ASK_PMIX]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except subprocess.TimeoutExpired:
        return ""


def _ask_hydra(place: Layout, timeout: float) -> tuple[str, str]:
    """The job's name and the host of rank 0, which mpiexec passes on between all ranks, as it does for MPI."""
    descriptor = os.environ.get("PMI_FD", "")
    if not descriptor.isdecimal():
        raise RuntimeError("mpiexec has left no PMI_FD; start the ranks with tarantella")
    # It is over then for MPI of the program itself, too: mpiexec ends all ranks with one that has not said "finalize".
    with socket.socket(fileno=os.dup(int(descriptor))) as connection, connection.makefile("rw", newline="\n") as pmi:
        connection.settimeout(timeout)

        def ask(command: str, **words: object) -> dict[str, str]:
            print(f"cmd={command}", *(f"{name}={value}" for name, value in words.items()), file=pmi, flush=True)
            answer = dict(re.findall(r"(\w+)=(\S*)", pmi.readline()))
            if answer.get("rc", "0") != "0" or not answer:
                raise RuntimeError(f"mpiexec refuses {command} ({answer.get('msg', 'it is gone')})")
            return answer

        try:
            ask("init", pmi_version=1, pmi_subversion=1)
            name = ask("get_my_kvsname")["kvsname"]
            if place.rank == 0:
                host = os.environ.get("PMI_HOSTNAME", "")
                if host in ("", "localhost") or host.startswith("127."):  # as in a hostfile; others cannot use it
                    host = socket.gethostname()
                ask("put", kvsname=name, key="tarantella-host", value=host)
            ask("barrier_in")
            host = ask("get", kvsname=name, key="tarantella-host")["value"]
            mapping = ask("get", kvsname=name, key="PMI_process_mapping")["value"]
            ask("finalize")
        except OSError as error:
            raise RuntimeError(f"the ranks did not join in time through mpiexec ({error})") from None
        finally:
            connection.settimeout(None)  # also that of the program
    if len(place.nodes) != 1 and mapping.replace(" ", "") != f"(vector,(0,{len(place.nodes)},{place.nodes[0]}))":
        raise RuntimeError(numbering("mpiexec", place.rank))
    return f"mpiexec-{name}"[:64], host


def check_versions(context: Context, nodes: tuple[int, ...]) -> None:
    """Compares the machines. Collective, blocks.

    Raises RuntimeError on all ranks if they have different versions of the package. If they have different minor
    versions of Python or a framework, which may compute something else, a WARNING says so.
    """
    from .._core import __version__

    words = [socket.gethostname()[:64], __version__, platform.python_version(), *map(_known, _FRAMEWORKS.values())]
    values = array("i", " ".join(words).encode().ljust(_LONGEST_VERSIONS)[:_LONGEST_VERSIONS])  # any buffer will do
    heard = context.allgather(values, "the versions of the machines").tobytes()  # type: ignore[arg-type]
    told = [
        heard[at : at + _LONGEST_VERSIONS].decode(errors="replace").split()
        for at in range(0, len(heard), _LONGEST_VERSIONS)
    ]
    firsts = [told[sum(nodes[:node])] for node in range(len(nodes))]
    if len({words[1] for words in told}) > 1:
        packages = _version_difference("tarantella", [(host, own) for host, own, *_ in firsts])
        raise RuntimeError(f"the machines have different versions of {packages}; install one version on all of them")
    if different := version_differences(firsts):
        logger.warning(
            "the machines have different versions of %s; what ranks compute may differ, or a call may fail on some of "
            "them only; install the same versions on all machines",
            ", of ".join(different),
        )


def version_differences(machines: list[list[str]]) -> list[str]:
    """The frameworks of which machines have different minor versions, each with its versions.

    A machine is its host, the version of the package, and those of Python and the frameworks.
    """
    found = []
    for at, name in enumerate(("Python", *_FRAMEWORKS), 2):
        known = [(machine[0], machine[at]) for machine in machines if machine[at] != _UNKNOWN]
        if len({tuple(words.split(".")[:2]) for _, words in known}) > 1:
            found.append(_version_difference(name, known))
    return found


def _version_difference(name: str, machines: list[tuple[str, str]]) -> str:
    """Which machines have which version: "Keras: 3.15.1 on node1; 3.10.0 on node2, node3"."""
    hosts: dict[str, list[str]] = {}
    for host, number in machines:
        hosts.setdefault(number, []).append(host)
    return f"{name}: " + "; ".join(f"{number} on {_first_four(names)}" for number, names in hosts.items())


def _known(packages: tuple[str, ...]) -> str:
    return _installed.version(*packages) or _UNKNOWN


def _first_four(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
