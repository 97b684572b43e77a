"""Compares two hosts, one rank with one core each, with MPI_Allreduce of the same MPI and with silent processes.

The hosts are network namespaces of this machine (tools/network_hosts.py, which needs root), over an unlimited link and
over one of 1 Gbit/s. Every row is started afresh in each round, one after the other, and compared within a round only:

- the float32 sum: of tnt_allreduce() beside MPI_Allreduce in place, and of a plan, as gradients are summed, beside
  MPI_Allreduce into other memory, since a plan leaves its sums in memory of its own;
- a step of ResNet-20, beside two processes that do not communicate;
- the start: from the command to the end of LeNet-5's first step, beside two processes of plain Keras.

Prints the best, median and worst ratio over the rounds beside the goals, and writes everything as JSON.

    python bench/hosts.py --rounds 5
    python bench/hosts.py --links unlimited --mpis mpich --sizes 65536 4194304 --parts allreduce --rounds 2
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hosts_ratios
import machine
import processes
from libraries import BUILD, BenchError, compiled, find_tarantella, mpi_folder, say

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from network_hosts import Hosts, missing

HERE = Path(__file__).resolve().parent
LINKS = {"unlimited": None, "1 Gbit/s": "1gbit"}
MPIS = {"mpich": "mpi-abi", "openmpi": "openmpi"}  # by the value of TNT_TRANSPORT
SIZES = [4**k for k in range(1, 14)]
PARTS = ("allreduce", "training", "start")
# Network, subject, its number in the output, and mode of the rival.
TRAINING = {"training": ("resnet20", "steps", "step", "silent"), "start": ("lenet5", "start", "start", "plain")}
SECONDS = 300.0  # that a row may take
ON_ITS_CORE = """#!/bin/sh
exec taskset --cpu-list $(echo {cores} | cut -d, -f$((TNT_RANK + 1))) "$@"
"""


class Bench:
    """Starts rows on two hosts."""

    def __init__(self, hosts: Hosts, options: argparse.Namespace) -> None:
        self.hosts, self.options = hosts, options
        self.cores = sorted(os.sched_getaffinity(0))[:2]
        folder = find_tarantella()
        flags = [str(folder / "libtarantella.so"), f"-Wl,-rpath,{folder}"]
        self.folders = {name: mpi_folder(name, options.venvs.resolve()) for name in options.mpis}
        self.ours = compiled("hosts.cpp", *flags)
        self.theirs = {
            name: compiled("mpi.cpp", compiler=str(folder / "mpicxx"), name=f"mpi-{name}")
            for name, folder in self.folders.items()
        }
        self.launcher = [processes.launcher_program(), hosts.hostfile(2, 1), "--no-gpu", "--"]
        script = hosts.script(ON_ITS_CORE.format(cores=",".join(map(str, self.cores))), "on_its_core")
        script.chmod(0o755)

    def run(self, *command: object, **variables: str) -> str:
        """Runs a command on the first host to its end, and returns what it printed."""
        job = self.hosts.run(*command, env=variables, timeout=SECONDS)
        if job.code:
            raise BenchError(f"{command[0]} ended with exit code {job.code}:\n{job.out[-1000:]}{job.err[-2000:]}")
        return job.out

    def variables(self, mpi: str) -> dict[str, str]:
        found = {
            "PATH": f"{self.folders[mpi]}:{os.environ['PATH']}",
            "PRTE_MCA_plm_ssh_agent": str(self.hosts.folder / "shell"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # as Tarantella starts them: quicker here than what they choose themselves
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "OMPI_MCA_btl": "^ofi",
        }
        if self.options.iterations:
            found["BENCH_ITERATIONS"] = str(self.options.iterations)
        return found

    def sums(self, mpi: str, ours: bool) -> list[dict[str, Any]]:
        """The rows of Tarantella over an MPI, or that of MPI_Allreduce."""
        if ours:
            command = [*self.launcher, "./on_its_core", self.ours]
        elif mpi == "openmpi":
            command = ["mpiexec", "-n", "2", "--map-by", "ppr:1:node", "--bind-to", "none", "--host", "node1,node2"]
            command += [self.theirs[mpi]]
        else:
            command = ["mpiexec", "-launcher", "ssh", "-hosts", "node1,node2", "-n", "2", "-ppn", "1"]
            command += ["-localhost", self.hosts.address("node1"), self.theirs[mpi]]
        variables = self.variables(mpi) | ({"TNT_TRANSPORT": MPIS[mpi]} if ours else {})
        memory = Path("/dev/shm")
        with tempfile.NamedTemporaryFile(dir=memory if memory.is_dir() else None) as file:
            sizes = ",".join(map(str, self.options.sizes))
            rows = [hosts_ratios.BLOCKING] if ours else [hosts_ratios.IN_PLACE, hosts_ratios.OUT_OF_PLACE]
            output = self.run(*command, file.name, sizes, *rows, **variables)
        return [json.loads(line) | {"mpi": mpi} for line in output.splitlines() if line.startswith('{"row"')]

    def trained(self, part: str, ours: bool) -> float:
        """Seconds of a step, or until the first one has ended, of the slower process."""
        net, subject, number, mode = TRAINING[part]
        script = [str(HERE / "train_worker.py"), net, "ranks" if ours else mode, subject]
        script += ["--size=2" if part == "training" else "--size=1", *(["--tiny"] if self.options.tiny else [])]
        if not ours:
            commands = [
                processes.Command([sys.executable, *script, f"--rank={rank}"], {core})
                for rank, core in enumerate(self.cores)
            ]
            outputs = processes.run(commands, f"{net}, {mode}").outputs
        else:
            with tempfile.TemporaryDirectory() as folder:
                began = {processes.BEGAN: str(time.monotonic())}
                words = ["./on_its_core", sys.executable, *script, f"--output={folder}"]
                lean = os.pathsep.join(filter(None, [str(processes.LEAN), os.environ.get("PYTHONPATH")]))
                self.run(*self.launcher, *words, PYTHONPATH=lean, **processes.ENVIRONMENT, **began)
                outputs = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]
        return hosts_ratios.slowest(outputs, number)

    def one_round(self, number: int) -> dict[str, Any]:
        began, cores = time.monotonic(), set(self.cores)
        before = processes.usage(cores)
        measured: dict[str, Any] = {"sums": []}
        turns = (True, False) if number % 2 else (False, True)  # so that neither is always the first
        if "allreduce" in self.options.parts:
            for link in self.options.links:
                if LINKS[link]:
                    self.hosts.limit(LINKS[link])
                for mpi in self.options.mpis:
                    for ours in turns:
                        say(f"round {number + 1}: {link}, {'Tarantella over ' if ours else ''}{mpi}")
                        measured["sums"] += [row | {"link": link} for row in self.sums(mpi, ours)]
                self.hosts.mend()
        for part in TRAINING:
            if part not in self.options.parts:
                continue
            say(f"round {number + 1}: {part}")
            seconds = {ours: self.trained(part, ours) for ours in turns}
            measured[part] = {"ours": seconds[True], "alone": seconds[False]}
        measured["strangers"] = processes.strangers(before, processes.usage(cores), len(cores))
        say(f"round {number + 1} took {time.monotonic() - began:.0f} s; others used {measured['strangers']:.1%}")
        return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--mpis", nargs="+", choices=MPIS, default=list(MPIS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--venvs", type=Path, default=BUILD / "venvs", help="has mpich and openmpi; or gets them")
    parser.add_argument("--iterations", type=int, help="the most calls of a size")
    parser.add_argument("--tiny", action="store_true", help="few steps, to see that everything runs")
    parser.add_argument("--read", type=Path, metavar="JSON", help="show this result instead of measuring")
    parser.add_argument("--json", type=Path, default=BUILD / "hosts.json")
    options = parser.parse_args()
    result = json.loads(options.read.read_text(encoding="utf-8")) if options.read else measure(options)
    result["ratios"] = hosts_ratios.ratios(result["rounds"])
    print(f"\nratios within a round, over {len(result['rounds'])} rounds:\n{hosts_ratios.text(result['ratios'])}")
    if not options.read:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    wrong = sorted({row["row"] for each in result["rounds"] for row in each["sums"] if not row["correct"]})
    if wrong:
        sys.exit(f"wrong sums from {', '.join(wrong)}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    if lacks := missing():
        sys.exit(f"hosts need {', '.join(lacks)}")
    BUILD.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": machine.describe()}
    result["versions"] = machine.versions("tarantella", "tensorflow", "tensorflow-cpu", "keras", "numpy")
    machine.warn_if_busy(result["machine"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no host is left behind
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts()
        try:
            hosts.use(Path(folder))
            bench = Bench(hosts, options)
            result["rounds"] = [bench.one_round(number) for number in range(options.rounds)]
        except BenchError as error:
            sys.exit(str(error))
        finally:
            hosts.end_all()
            hosts.remove()
    return result


if __name__ == "__main__":
    main()
