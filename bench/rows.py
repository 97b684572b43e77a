"""What bench/training.py measures: the rows, how much each of them does, and the ratios of rows with their goals.

A row is one way of training; in every round it is started afresh, for each network that it has subjects for. Rows take
turns (bench/turns.py) with their steps, epochs and calls; the rest of what a row measures runs alone. Subjects:

- steps: the mean step of an epoch; what lies between two epochs counts too, but not of plain Keras.
- epochs: the same for epochs of few steps.
- calls: fit of a dataset of one batch, then fit, evaluate and predict of one batch of arrays; the first of them counts
  with what a pause costs, so no goal is set for it.
- start: from the command to the end of the first step.
- memory: the proportional set size (PSS) of all processes at the end of the last step, the launcher's included.
- copy: bytes per second that a core reads and writes while it copies, with the other cores doing the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Amount(NamedTuple):
    """How much a row does. An epoch and a call of each kind before that are not measured.

    `turns` are of an epoch of `steps`, and of as many epochs of few steps as `short` says; `calls` is the number of
    turns of a call of each kind.
    """

    steps: int
    turns: int
    short: dict[int, int]
    calls: int


SHORT = {30: 1, 10: 2, 3: 4}  # epochs of a turn by their steps
CALLS = ("fit of a dataset", "fit", "evaluate", "predict")  # in the order of a turn
IN_TURNS = ("step", *(f"epoch of {steps}" for steps in SHORT), "calls")  # in the order in which a row measures them
# The speed of a machine drifts within seconds, so a turn takes one or less.
AMOUNTS = {
    "lenet5": Amount(80, 8, SHORT, 6),
    "resnet20": Amount(8, 6, SHORT, 6),
    "mlp": Amount(4, 8, SHORT, 6),
}
NETS = tuple(AMOUNTS)
MLP_BYTES = 4 * 25_205_770  # of its gradients


def amount(net: str, tiny: bool) -> Amount:
    return Amount(2, 2, dict.fromkeys(SHORT, 1), 1) if tiny else AMOUNTS[net]


class Row(NamedTuple):
    """One way of training.

    `mode` is one of bench/train_worker.py, or `copy`. `starter` is `python`, for processes that do not know of each
    other, or `launcher`. `cores` is the number for each process, or for the launcher as a whole; two in all, even where
    there are more. A global batch has the rows of `size` ranks. Fields with the names of networks have the subjects for
    each.
    """

    name: str
    mode: str
    starter: str
    processes: int
    cores: int
    size: int
    lenet5: str = ""
    resnet20: str = ""
    mlp: str = ""

    def subjects(self, net: str) -> list[str]:
        return getattr(self, net).split()

    def in_turns(self, net: str) -> tuple[str, ...]:
        """Which of IN_TURNS it measures."""
        found = {"steps": ("step",), "epochs": IN_TURNS[1:-1], "calls": ("calls",)}
        return tuple(number for subject in self.subjects(net) for number in found.get(subject, ()))

    def takes_turns(self, net: str, number: str) -> bool:
        """Whether it measures `number`, a step or a call of a kind, in turns with other rows."""
        return ("calls" if number in CALLS else number) in self.in_turns(net)


ROWS = [
    Row("silent", "silent", "python", 2, 1, 2, "steps epochs", "steps", "steps"),
    Row("silent, again", "silent", "python", 2, 1, 2, "steps epochs", "steps", "steps"),
    Row("silent in lockstep", "lockstep", "python", 2, 1, 2, "steps", mlp="steps"),
    Row("2 ranks", "ranks", "launcher", 2, 2, 2, "steps epochs calls", "steps", "steps calls"),
    Row("plain, both cores", "plain", "python", 1, 2, 2, "steps", "steps", "steps"),
    Row("plain, one core", "plain", "python", 1, 1, 1, "steps calls", mlp="steps calls"),
    Row("-n 1", "ranks", "launcher", 1, 1, 1, "steps calls", mlp="steps calls"),
    Row("no launcher", "ranks", "python", 1, 1, 1, "steps calls", mlp="steps calls"),
    Row("2 plain, started", "plain", "python", 2, 1, 1, "start"),
    Row("2 ranks, started", "ranks", "launcher", 2, 2, 2, "start"),
    Row("2 silent, weighed", "silent", "python", 2, 1, 2, mlp="memory"),
    Row("2 ranks, weighed", "ranks", "launcher", 2, 2, 2, mlp="memory"),
    Row("4 silent, weighed", "silent", "python", 4, 1, 4, mlp="memory"),
    Row("4 ranks, weighed", "ranks", "launcher", 4, 2, 4, mlp="memory"),
    Row("copies", "copy", "python", 2, 1, 2, mlp="copy"),
]
_BY_NAME = {row.name: row for row in ROWS}
SILENT = ("silent", "silent, again")


def named(name: str) -> Row:
    return _BY_NAME[name]


class Ratio(NamedTuple):
    """A row compared with the fastest of the rows `against`, in the same round.

    Kinds: `share` is their time over the row's, with goals that are least values; `times` is the row's over theirs, and
    `extra` is what the row has more than they, over `unit`, both with goals that are largest values. `goal` is for the
    median over the rounds, `limit` for every round. Without a goal the ratio is only printed.
    """

    what: str
    net: str
    subject: str
    row: str
    against: tuple[str, ...]
    kind: str = "share"
    goal: float | None = None
    limit: float | None = None
    unit: float = 1


def _steps(net: str, goal: float, limit: float) -> list[Ratio]:
    beside = [name for name in ("silent, again", "silent in lockstep") if named(name).subjects(net)]
    return [
        Ratio("steps of 2 ranks", net, "step", "2 ranks", SILENT, "share", goal, limit),
        Ratio("2 ranks ahead of plain Keras on both cores", net, "step", "2 ranks", ("plain, both cores",), "share", 1),
        *(Ratio(f"steps, {name}", net, "step", name, ("silent",)) for name in beside),
    ]


def _calls(net: str, goal: float) -> list[Ratio]:
    found = []
    for call in CALLS:
        most = None if call == "fit of a dataset" else goal
        found.append(Ratio(f"{call}, one batch, 2 ranks", net, call, "2 ranks", ("plain, one core",), "times", most))
    return found


def _alone(net: str, row: str) -> list[Ratio]:
    found = [Ratio(f"steps, {row}", net, "step", row, ("plain, one core",), "times", 1.01)]
    for call in CALLS[1:]:
        found.append(Ratio(f"{call}, one batch, {row}", net, call, row, ("plain, one core",), "times", 1.02))
    return found


def _memory(ranks: int) -> Ratio:
    what, row, against = f"memory of {ranks} ranks", f"{ranks} ranks, weighed", f"{ranks} silent, weighed"
    return Ratio(what, "mlp", "memory", row, (against,), "extra", 2, unit=ranks * MLP_BYTES)


RATIOS = [
    *_steps("lenet5", 0.97, 0.94),
    *_steps("resnet20", 0.99, 0.96),
    *_steps("mlp", 0.87, 0.84),
    *(
        Ratio(f"epochs of {steps} steps", "lenet5", f"epoch of {steps}", "2 ranks", SILENT, "share", goal)
        for steps, goal in ((30, 0.95), (10, 0.90), (3, 0.80))
    ),
    *_calls("lenet5", 1.3),
    *_calls("mlp", 1.4),
    *(ratio for net in ("lenet5", "mlp") for row in ("-n 1", "no launcher") for ratio in _alone(net, row)),
    Ratio("start of 2 ranks", "lenet5", "start", "2 ranks, started", ("2 plain, started",), "times", 1.08),
    _memory(2),
    _memory(4),
]
