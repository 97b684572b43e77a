"""How the ranks of a job that torchrun, mpirun or srun has started find one another: host of rank 0, MPI, secret name.

The MPI of the starter is not used: one rank of each machine connects to the host of rank 0, and these ranks start an
MPI job (src/runtime/leaders.h). The starter only tells which host that is.

Then all machines compare versions: a folder that is not shared may have older packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import socket
import stat
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING

from .. import _installed
from .launch_environment import Layout, numbering
from .log import abbreviated, logger

if TYPE_CHECKING:
    from .._core import Context

KEY_BYTES = 32
_LONGEST_VERSIONS = 256
# The frameworks that ranks compute with, and the packages that may provide them.
_FRAMEWORKS = {"Keras": ("keras", "keras-nightly"), "TensorFlow": _installed.TENSORFLOW, "NumPy": ("numpy",)}
_UNKNOWN = "-"

# Prints the host of rank 0, as mpirun of Open MPI knows it. If one rank asks, all must. A separate process, because a
# rank cannot use two MPIs.
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


def of(place: Layout, timeout: float) -> tuple[str, str, str]:
    """The name of this rank's job, the host of rank 0 and the transport; no host if the launcher connects the machines.

    Collective over ranks that mpiexec or mpirun has started on several machines.
    Raises RuntimeError, with the cure, if the starter does not tell the host of rank 0, or if there is no MPI.
    """
    transport = os.environ.get("TNT_TRANSPORT", "").strip()
    if place.launched:
        return place.job, "", transport
    if len(place.nodes) == 1 or not place.starter:
        job = place.job
        # On one machine the kernel tells whose process each rank is; the key only hides the name of the job.
        with contextlib.suppress(RuntimeError):  # there may be no home folder
            job = secret_name(job)
        return job, "", transport
    job, host = place.job, os.environ.get("MASTER_ADDR", "").strip("[]")  # of an IPv6 address
    if place.starter == "mpiexec":
        job, answer = _ask_hydra(place, timeout)
        host = host or answer
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
    return secret_name(job), host, transport


def first_of(hosts: str) -> str:
    """The first host of a host list of Slurm: n01 for n[01-04,7],m."""
    found = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\])?([^\[,]*)", hosts)
    return "".join(part or "" for part in found.groups()) if found else ""


def _mpi(wanted: str) -> str:
    """The library of an MPI of the standard ABI, which works without its mpiexec. The launcher finds it."""
    if wanted not in ("", "mpi-abi"):
        return wanted  # the core refuses it
    launcher = _installed.launcher()
    found = subprocess.run([launcher, "--list-mpis"], capture_output=True, text=True, timeout=60, check=False)
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    libraries = [row[2] for row in rows if len(row) > 2 and "libmpi_abi." in os.path.basename(row[2])]
    if not libraries:
        raise RuntimeError(
            "ranks on several machines need MPICH 5 or newer, or Intel MPI, with any starter; install one on all "
            "machines: pip install 'tarantella[mpi]'"
        )
    return f"mpi-abi:{libraries[0]}"


def _ask_open_mpi() -> str:
    """The host of rank 0; empty if Open MPI does not tell it."""
    command = [sys.executable, "-S", "-c", ASK_PMIX]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    except subprocess.TimeoutExpired:
        return ""


def _ask_hydra(place: Layout, timeout: float) -> tuple[str, str]:
    """The job's name and the host of rank 0, exchanged through mpiexec as MPI does it."""
    descriptor = os.environ.get("PMI_FD", "")
    if not descriptor.isdecimal():
        raise RuntimeError("mpiexec has set no PMI_FD; start the ranks with tarantella")
    # The program itself cannot use MPI after this. Without "finalize", mpiexec would end all ranks with the first one.
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
                if host in ("", "localhost") or host.startswith("127."):  # other machines cannot use it
                    host = socket.gethostname()
                ask("put", kvsname=name, key="tarantella-host", value=host)
            ask("barrier_in")
            host = ask("get", kvsname=name, key="tarantella-host")["value"]
            mapping = ask("get", kvsname=name, key="PMI_process_mapping")["value"]
            ask("finalize")
        except OSError as error:
            raise RuntimeError(f"mpiexec has not answered in time ({error})") from None
        finally:
            connection.settimeout(None)  # the program shares the connection
    if len(place.nodes) != 1 and mapping.replace(" ", "") != f"(vector,(0,{len(place.nodes)},{place.nodes[0]}))":
        raise RuntimeError(numbering("mpiexec", place.rank))
    return f"mpiexec-{name}"[:64], host


def secret_name(job: str) -> str:
    """A name of the job that only processes of this user can compute, with the user's key (see `key_path`).

    Creates the key if there is none. Raises RuntimeError, with the cure, if the key cannot be read or created, or if
    others can read it.
    """
    return hashlib.blake2s(job.encode(), key=_key(), digest_size=16).hexdigest()


def key_path() -> str:
    """The file of the user's key: TNT_KEY_FILE, by default tarantella/key in the user's configuration folder."""
    chosen = os.environ.get("TNT_KEY_FILE", "").strip()
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return chosen or os.path.join(folder, "tarantella", "key")


def _key() -> bytes:
    file = key_path()
    cure = "set TNT_KEY_FILE to a file of yours that exists, with the same content, on all machines of the job"
    try:
        if not os.path.exists(file):
            _make_key(file)
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode):  # a FIFO would wait for its writer
            raise RuntimeError(f"the key of your jobs, {file!r}, is no regular file; {cure}")
        with open(file, "rb") as opened:
            key = opened.read(KEY_BYTES + 1)
    except OSError as error:
        raise RuntimeError(f"cannot read or make the key of your jobs: {error}; {cure}") from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RuntimeError(f"others may read the key of your jobs, {file!r}: run chmod 600 as its owner; or {cure}")
    if len(key) < 16:
        size = f"{len(key)} bytes, and needs 16 to {KEY_BYTES}"
        raise RuntimeError(f"the key of your jobs, {file!r}, has {size}; remove it")
    return key[:KEY_BYTES]


def _make_key(file: str) -> None:
    """Writes a key atomically. If another rank is faster, its key stays."""
    folder = os.path.dirname(file) or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial = os.path.join(folder, f".key.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(KEY_BYTES))
            os.fsync(descriptor)
        if not os.path.exists(file):
            os.link(partial, file)
    except FileExistsError:
        pass
    finally:
        os.unlink(partial)


def check_versions(context: Context) -> None:
    """Compares the machines. Collective, blocks.

    Raises RuntimeError on all ranks if they have different versions of the package. Logs a WARNING for different minor
    versions of Python or a framework, because results may differ.
    """
    from .._core import __version__

    frameworks = [_installed.version(*packages) or _UNKNOWN for packages in _FRAMEWORKS.values()]
    local = " ".join([socket.gethostname()[:64], __version__, platform.python_version(), *frameworks]).encode()
    values = array("i", local.ljust(_LONGEST_VERSIONS)[:_LONGEST_VERSIONS])  # any buffer will do
    received = context.allgather(values, "the versions of the machines").tobytes()  # type: ignore[arg-type]
    ranks = [
        received[at : at + _LONGEST_VERSIONS].decode(errors="replace").split()
        for at in range(0, len(received), _LONGEST_VERSIONS)
    ]
    different = version_differences(ranks)
    if different and different[0].startswith("tarantella: "):
        raise RuntimeError(
            f"the machines have different versions of {different[0]}; install one version on all of them"
        )
    if different:
        logger.warning(
            "the machines have different versions of %s; results may differ between ranks, or a call may fail on some "
            "of them only; install the same versions on all machines",
            ", of ".join(different),
        )


def version_differences(ranks: list[list[str]]) -> list[str]:
    """Describes each package that differs between ranks, as in "Keras: 3.15.1 on node1; 3.10.0 on node2, node3".

    A rank is a list: its host, and the versions of this package, Python and the frameworks, of which another version of
    this package may send fewer. Of the others than this package, only minor versions count.
    """
    found = []
    for at, name in enumerate(("tarantella", "Python", *_FRAMEWORKS), 1):
        hosts: dict[str, dict[str, None]] = {}
        for rank in ranks:
            if rank[at:] and rank[at] != _UNKNOWN:
                hosts.setdefault(rank[at], {})[rank[0]] = None
        if len({tuple(number.split(".")[: None if at == 1 else 2]) for number in hosts}) > 1:
            listed = "; ".join(f"{number} on {abbreviated(list(names), most=4)}" for number, names in hosts.items())
            found.append(f"{name}: {listed}")
    return found
