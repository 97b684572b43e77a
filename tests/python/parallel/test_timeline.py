"""--timeline: what the trace of a job shows, and that it is as docs/timeline.md says."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

TRAINING = """
import os, signal, sys, time, numpy as np, keras
import tarantella as tnt
layers = [keras.layers.Dense(32, activation="relu") for _ in range(3)]
model = tnt.Model(keras.Sequential([keras.Input((16,)), *layers, keras.layers.Dense(1)]))
model.compile(optimizer="sgd", loss="mse")
x = np.ones((48, 16), "float32"); y = np.ones((48, 1), "float32")
"""
# As docs/timeline.md says.
GRADIENTS, BUCKETS, STEPS = 8, 2, 6


def read(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The events of each rank."""
    ranks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in json.loads(path.read_text())["traceEvents"]:
        ranks[event["pid"]].append(event)
    return ranks


def of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return sorted((event for event in events if event.get("cat") == category), key=lambda event: event["ts"])


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


def contains(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    # times are decimal numbers of microseconds with three digits: their sums round
    end = inner["ts"] + inner.get("dur", 0)
    return outer["ts"] - 0.002 <= inner["ts"] and end <= outer["ts"] + outer["dur"] + 0.002


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Slices of a track do not overlap, except those inside others."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0, event
            tracks[event["tid"]].append(event)
    for slices in tracks.values():
        around: list[dict[str, Any]] = []
        for each in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= each["ts"] + 0.002:
                around.pop()
            assert not around or contains(around[-1], each), (around[-1], each)
            around.append(each)


def test_the_trace_shows_what_each_rank_did(scripts: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    source = TRAINING + (
        "model.fit(x, y, batch_size=16, epochs=2, verbose=0)\n"
        "model.evaluate(x, y, batch_size=16, verbose=0)\n"
        "model.predict(x, batch_size=16, verbose=0)\n"
    )
    ended = scripts.ranks(2, source, options=("--timeline", str(file), "--fusion-threshold", "8"))
    assert ended.code == 0, ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "trace.json"]
    ranks = read(file)
    assert sorted(ranks) == [0, 1]
    for rank, events in ranks.items():
        (process,) = named(events, "process_name")
        assert process["args"]["name"].startswith(f"rank {rank} on ")
        check_nesting(events)
        calls = of(events, "call")
        assert [call["name"] for call in calls] == ["fit", "evaluate", "predict"]
        fit = calls[0]
        for name, count, call in (
            ("train step", STEPS, fit),
            ("test step", 3, calls[1]),
            ("predict step", 3, calls[2]),
            ("epoch 1", 1, fit),
            ("epoch 2", 1, fit),
            ("exchange metrics", 3, None),
            ("send weights of the master", 3, None),
        ):
            found = named(events, name)
            assert len(found) == count, (name, found)
            assert call is None or all(contains(call, each) for each in found)
        steps = named(events, "train step")
        batches = [each for each in of(events, "batch") if any(contains(step, each) for step in steps)]
        assert [each["args"] for each in batches] == [{"rows": 8}] * STEPS
        assert {each["name"] for each in batches} == {"await batch"}
        # The stated number of records: 1 + gradients + buckets; of a bucket in the file, itself and its four parts.
        for category, each_step in (("gradient", GRADIENTS), ("bucket", BUCKETS), ("fill", BUCKETS),
                                    ("sum", BUCKETS), ("wait", 2 * BUCKETS)):  # fmt: skip
            found = of(events, category)
            assert len(found) == each_step * STEPS, (category, len(found))
            for step in steps:
                assert len([each for each in found if contains(step, each)]) == each_step, category
        # The formula of docs/timeline.md. In the first step ranks also compare the plan.
        for step in steps[1:]:
            inside = [each for each in events if each["ph"] != "M" and contains(step, each)]
            assert len(inside) == 2 + GRADIENTS + 5 * BUCKETS, inside
        assert {each["name"].split("/")[-1] for each in of(events, "gradient")} == {"kernel", "bias"}
        assert of(events, "exchange")
    # one clock: no rank has a sum before the other has handed in its gradients
    for mine, other in ((0, 1), (1, 0)):
        for bucket in {each["tid"] for each in of(ranks[mine], "bucket")}:
            sums = [each for each in of(ranks[mine], "sum") if each["tid"] == bucket]
            fills = [each for each in of(ranks[other], "fill") if each["tid"] == bucket]
            assert len(sums) == len(fills) == STEPS
            for done, fill in zip(sums, fills, strict=True):
                assert done["ts"] + done["dur"] >= fill["ts"] + fill["dur"]


def test_a_job_that_fails_has_the_trace_up_to_there(scripts: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    source = TRAINING + (
        "class Dies(keras.callbacks.Callback):\n"
        "    def on_train_batch_begin(self, batch, logs=None):\n"
        "        if batch == 2 and tnt.get_rank() == 1:\n"
        "            time.sleep(2)\n"  # rank 0 waits in its step by then, unless it stands still
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[Dies()])\n"
    )
    ended = scripts.ranks(2, source, options=("--timeline", str(file)))
    assert ended.code == 128 + 9
    ranks = read(file)
    for events in ranks.values():
        check_nesting(events)
    waiting, died = (named(ranks[rank], "train step") for rank in (0, 1))
    assert len(died) == 2
    assert len(waiting) in (2, 3)
    (fit,) = of(ranks[1], "call")
    assert fit["args"] == {"ended": False}
    # The launcher may end rank 0 before it knows that its step has failed.
    broken = [each for each in of(ranks[0], "bucket") if each["args"].keys() & {"ended", "failed"}]
    assert len(broken) <= len(waiting) - 2
    assert all(contains(waiting[-1], each) for each in broken)


def test_one_process_without_a_launcher_writes_its_own(scripts: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    source = TRAINING + (
        "import subprocess\n"
        "subprocess.run([sys.executable, '-c', 'import tarantella'], check=True)\n"  # does not replace the file
        "model.fit(x, y, batch_size=16, epochs=2, verbose=0)\n"
    )
    ended = scripts.plain(source, TNT_TIMELINE=str(file))
    assert ended.code == 0, ended.err
    (events,) = read(file).values()
    check_nesting(events)
    assert [call["name"] for call in of(events, "call")] == ["fit"]
    assert len(named(events, "train step")) == STEPS
    assert [each["args"] for each in of(events, "batch")] == [{"rows": 16}] * STEPS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "trace.json"]


def test_a_forked_child_writes_nothing(scripts: Any, tmp_path: Path) -> None:
    source = """
        import os, sys
        import tarantella
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
        assert not os.path.exists(sys.argv[1])
    """
    ended = scripts.plain(source, str(tmp_path / "trace.json"), TNT_TIMELINE=str(tmp_path / "trace.json"))
    assert (ended.code, ended.err) == (0, "")
    assert sorted(read(tmp_path / "trace.json")) == [0]


def test_a_full_disk_is_one_line_without_a_launcher_too(scripts: Any) -> None:
    ended = scripts.plain("import tarantella as tnt; tnt.init()", TNT_TIMELINE="/dev/full")
    assert ended.code == 0
    assert ended.err == "tarantella: WARNING: cannot write the timeline '/dev/full': No space left on device\n"


def test_a_pipe_is_refused_without_a_launcher_too(scripts: Any, tmp_path: Path) -> None:
    """Nobody may read it when Python ends."""
    os.mkfifo(tmp_path / "pipe")
    ended = scripts.plain("import tarantella as tnt; tnt.init()", TNT_TIMELINE=str(tmp_path / "pipe"))
    assert ended.code == 1
    assert "TNT_TIMELINE must be a file in a folder that can be written" in ended.err


def test_a_rank_without_the_launchers_descriptors_says_so(scripts: Any, tmp_path: Path) -> None:
    """Python's subprocess closes them; the first process that asks is the rank."""
    scripts.write("import tarantella as tnt\ntnt.init()\n", "train.py")
    wrapper = """
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, sys.argv[1]]).returncode)
    """
    ended = scripts.ranks(1, wrapper, str(tmp_path / "train.py"), options=("--timeline", str(tmp_path / "t.json")))
    assert ended.code == 0, ended.err
    assert "WARNING: no timeline is recorded: the process that started this rank closed" in ended.err


OWN_STEP = """
class Own(keras.Model):
    tnt_reduction = "mean"
    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}
"""


@pytest.mark.parametrize("kind", ["keras.Model", "Own"])
def test_buckets_are_summed_while_gradients_are_computed(kind: str, scripts: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    source = f"""
import sys, keras, tensorflow as tf
sys.path.insert(0, {str(Path(__file__).parents[3] / "bench")!r})
import nets, tarantella as tnt
{OWN_STEP}
net = nets.NETS["resnet20"]()
inner = {kind}(net.model.inputs, net.model.outputs)
inner.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = nets.data(net, 64)
tnt.Model(inner).fit(x, y, batch_size=16, verbose=0)
"""
    ended = scripts.ranks(2, source, options=("--timeline", str(file), "--fusion-threshold", "64"))
    assert ended.code == 0, ended.err
    for events in read(file).values():
        steps = named(events, "train step")[1:]
        early = 0
        for step in steps:
            last = max(each["ts"] for each in of(events, "gradient") if contains(step, each))
            sums = [each["ts"] for each in of(events, "sum") if contains(step, each)]
            early += min(sums) < last
        # not in each step: on a busy machine the thread that sums may come late
        assert early > 0
