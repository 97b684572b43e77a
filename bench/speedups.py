"""Measures how much faster than plain Keras on the same two cores a training is, for the table of README.md.

Each row trains the same network on batches of the same global size, one row after the other, in fresh processes: plain
Keras, Tarantella on two ranks and on two hosts of one rank (network namespaces; needs root), a loop of one's own under
MultiWorkerMirroredStrategy, and DistributedDataParallel over gloo with Keras's torch backend, beside one process of
torch. Prints the samples per second (median of the epochs, of the slowest process) as multiples of plain Keras; that of
DistributedDataParallel as a multiple of one process of torch. The noise is how much two runs of plain Keras differ.
Writes JSON, the table and a picture: losses of one process and of four ranks, beside these numbers.

    python bench/speedups.py --torch build/bench/venvs/torch/bin/python
    python bench/speedups.py --tiny --nets lenet5 --ways keras tarantella
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import machine
import processes
from hosts import ON_ITS_CORE
from libraries import BUILD, say
from processes import Command

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
from network_hosts import Hosts, missing

HERE = Path(__file__).resolve().parent
NETS = {"lenet5": "LeNet-5", "resnet20": "ResNet-20", "transformer": "Transformer encoder", "mlp": "MLP, 25 M weights"}
WAYS = {
    "tarantella": "Tarantella, 2 ranks",
    "hosts": "Tarantella, 2 hosts",
    "strategy": "MultiWorkerMirroredStrategy",
    "ddp": "torch DDP (gloo)",
}
REFERENCES = {"ddp": "torch"}  # of the others: keras
PORT = 29411
GREY, BLUE, RED = "#b9cfe8", "#3b6ea5", "#b5502f"


def commands(net: str, way: str, options: argparse.Namespace) -> list[Command]:
    """The processes of a row on this machine."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    python = options.torch if way in ("torch", "ddp") else sys.executable
    words = [str(python), str(HERE / "speedups_worker.py"), net, way, *(["--tiny"] if options.tiny else [])]
    if way in ("keras", "torch"):
        return [Command(words, set(cores), {"KERAS_BACKEND": "tensorflow" if way == "keras" else "torch"})]
    if way == "tarantella":
        return [Command([*processes.launcher(2), *words[1:]], set(cores))]
    found = []
    for rank, core in enumerate(cores):
        variables = {"RANK": str(rank)}
        if way == "strategy":
            cluster = {"worker": [f"127.0.0.1:{PORT + k}" for k in range(2)]}
            variables["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
        else:
            variables |= {"KERAS_BACKEND": "torch", "WORLD_SIZE": "2"}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT + 2)}
        found.append(Command(words, {core}, variables))
    return found


def on_hosts(net: str, options: argparse.Namespace) -> list[Any]:
    """What the two ranks of a job on two hosts wrote."""
    hosts = Hosts()
    with tempfile.TemporaryDirectory() as folder:
        try:
            hosts.use(Path(folder))
            cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
            hosts.script(ON_ITS_CORE.format(cores=cores), "on_its_core").chmod(0o755)
            words = [processes.launcher_program(), hosts.hostfile(2, 1), "--no-gpu", "--", "./on_its_core"]
            words += [sys.executable, str(HERE / "speedups_worker.py"), net, "tarantella", f"--output={folder}"]
            job = hosts.run(*words, *(["--tiny"] if options.tiny else []), timeout=processes.SECONDS)
            if job.code:
                sys.exit(f"{net} on two hosts ended with exit code {job.code}:\n{job.err[-2000:]}")
            return [json.loads(file.read_text()) for file in sorted(Path(folder).glob("[01].json"))]
        finally:
            hosts.end_all()
            hosts.remove()


def rate(net: str, way: str, options: argparse.Namespace) -> float:
    """Samples per second of a row."""
    say(f"{NETS[net]}: {way}")
    row = commands(net, way, options) if way != "hosts" else []
    outputs = processes.run(row, f"{net}, {way}").outputs if row else on_hosts(net, options)
    return min(statistics.median(rates) for rates in outputs)


def losses(ranks: int, options: argparse.Namespace) -> list[float]:
    say(f"losses of LeNet-5 on {ranks} rank{'s'[: ranks > 1]}")
    words = [str(HERE / "speedups_worker.py"), "lenet5", "losses", *(["--tiny"] if options.tiny else [])]
    start = [sys.executable] if ranks == 1 else processes.launcher(ranks)
    imports = {"PYTHONPATH": ""}  # bench/lean leaves out scikit-learn, which has the digits
    return processes.run([Command([*start, *words], None, imports)], "losses").outputs[0]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"machine": machine.describe(), "nets": {}}
    result["versions"] = machine.versions("tarantella", "tensorflow", "tensorflow-cpu", "keras")
    machine.warn_if_busy(result["machine"])
    for net in options.nets:
        first = rate(net, "keras", options)
        rates = {way: rate(net, way, options) for way in options.ways if way != "keras"}
        last = rate(net, "keras", options)
        rates["keras"] = (first + last) / 2
        result["nets"][net] = {"rates": rates, "noise": abs(first - last) / rates["keras"]}
    result["losses"] = {ranks: losses(ranks, options) for ranks in (1, 4)}
    return result


def speedup(rates: dict[str, float], way: str) -> float | None:
    reference = REFERENCES.get(way, "keras")
    return rates[way] / rates[reference] if way in rates and reference in rates else None


def table(result: dict[str, Any]) -> str:
    """The table of README.md, in Markdown."""
    lines = [f"| network | plain Keras | {' | '.join(WAYS.values())} | noise |", "|---" * (len(WAYS) + 3) + "|"]
    for net, found in result["nets"].items():
        ratios = [speedup(found["rates"], way) for way in WAYS]
        cells = ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        cells = [f"{found['rates']['keras']:,.0f}/s", *cells, f"{found['noise']:.0%}"]
        lines.append(f"| {NETS[net]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "speedups", "font.size": 11})
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    curves, bars = figure.subplots(1, 2)
    for (ranks, values), style in zip(
        result["losses"].items(),
        ({"color": GREY, "linewidth": 7}, {"color": RED, "linewidth": 1.4, "marker": "o", "markersize": 4}),
        strict=True,
    ):
        name = "one process of Keras" if int(ranks) == 1 else f"{ranks} ranks of Tarantella"
        curves.plot(range(1, len(values) + 1), values, label=name, **style)
    curves.set(title="The same training: LeNet-5, loss of each epoch", xlabel="epoch")
    curves.legend(frameon=False)
    names = [textwrap.fill(NETS[net], 12) for net in result["nets"]]
    ratios = [speedup(found["rates"], "tarantella") or 0.0 for found in result["nets"].values()]
    bars.bar(names, ratios, color=[BLUE if ratio > 1 else RED for ratio in ratios], width=0.6)
    bars.bar_label(bars.containers[0], fmt="%.2f")
    bars.axhline(1, color="black", linewidth=1)
    bars.margins(y=0.12)
    bars.set(title="Speed-up of two ranks over one process\non the same two cores")
    for axes in (curves, bars):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    ways = ["keras", *WAYS, "torch"]
    parser.add_argument("--ways", nargs="+", choices=ways, help="default: all that this machine can run")
    parser.add_argument("--torch", type=Path, help="a Python that has torch and keras")
    parser.add_argument("--tiny", action="store_true", help="few steps, to see that everything runs")
    parser.add_argument("--read", type=Path, metavar="JSON", help="show this result instead of measuring")
    parser.add_argument("--json", type=Path, default=BUILD / "speedups.json")
    parser.add_argument("--picture", type=Path, default=BUILD / "speedups.svg")
    options = parser.parse_args()
    if options.ways is None:
        lacking = [*(["hosts"] if missing() else []), *([] if options.torch else ["torch", "ddp"])]
        options.ways = [way for way in ways if way not in lacking]
    result = json.loads(options.read.read_text(encoding="utf-8")) if options.read else measure(options)
    if not options.read:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    draw(result, options.picture)
    about = result["machine"]
    print(
        f"\n{about['cores']} cores, {about['processor']}; {about['date'][:10]}\n\n{table(result)}\n\n{options.picture}"
    )


if __name__ == "__main__":
    main()
