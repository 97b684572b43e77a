"""`tarantella verify`: agreement, the first difference and its cause, and runs that cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from jobs import warm

from tarantella.verify import __main__ as command
from tarantella.verify import causes, compare, record, runs

pytestmark = pytest.mark.computes

PATIENCE = 850  # up to five runs of TensorFlow, on a machine that is busy with others


def extended(*values):
    """A kind that a test of the experiments below shows in milliseconds, without a job."""
    return pytest.param(*values, marks=pytest.mark.extended)


def full(*values):
    return pytest.param(*values, marks=pytest.mark.full)


def verify(launcher, kind, *options, ranks=2):
    script = launcher.copy("trains")
    words = ("verify", "-n", ranks, "--no-gpu", *options, "--", script, kind)
    return launcher.run(*words, timeout=PATIENCE, program=warm("tarantella"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "ranks"), [extended("plain", 2), ("float64 batches", 3), full("shuffled", 2), extended("sum", 2)]
)
def test_plain_training_agrees(launcher, kind, ranks):
    done = verify(launcher, kind, ranks=ranks)
    assert done.returncode == 0, done.out + done.err
    assert f"agree: {ranks} ranks gave the results of one process over 5 steps" in done.out
    assert not (launcher.folder / "went on").exists()  # both runs were stopped


@pytest.mark.timeout(900)
def test_a_script_that_ends_sooner(launcher):
    done = verify(launcher, "plain", "--steps", "100")
    assert done.returncode == 0, done.out + done.err
    assert "over 18 steps" in done.out  # each counts once, though both calls of fit get one list of callbacks
    assert (launcher.folder / "went on").exists()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "first", "cause"),
    [
        extended("dropout", "differ: step 1, the loss: ", "likely cause: Dropout 'dropout': random"),
        full(
            "normalization", "differ: step 1, the loss: ", "likely cause: BatchNormalization 'batch_normalization': dep"
        ),
        extended(
            "variance",
            "differ: step 1, the loss: ",
            "likely cause: a loss that Variance 'variance' adds: depends on which rows share a",
        ),
        full(
            "dropout in batches", "differ: train_on_batch call 1, the loss: ", "likely cause: Dropout 'dropout': random"
        ),
        full("synchronized", "differ: step 1, the loss: ", "likely cause: ByRank 'by_rank', on rank 1: computes other"),
        ("by rank", "differ: step 1, the loss: ", "likely cause: ByRank 'by_rank', on rank 1: computes other numbers"),
        extended(
            "coupled",
            "differ: step 1, the loss: ",
            "likely cause: Coupled 'coupled': depends on which rows share a batch",
        ),
        ("data", "differ: step 1: the 20 rows on 2 ranks differ from those on one process", "likely cause: the data"),
        extended(
            "rows", "differ: step 1: 20 rows on one process, 40 in total on 2 ranks", "likely cause: the script makes"
        ),
        extended(
            "rate",
            "differ: before step 1, the learning rate, rank 0: 0.01 on one process, 0.02",
            "likely cause: the script",
        ),
        extended("second", "differ: step 1 of fit call 2, the loss: ", "likely cause: Dropout 'dropout': random"),
    ],
)
def test_a_difference_is_named_with_its_cause(launcher, kind, first, cause):
    done = verify(launcher, kind, *["--verbose"] if kind == "normalization" else [])
    assert done.returncode == 1, done.out + done.err
    lines = done.out.splitlines()
    warned = [line for line in lines if line.startswith("warning of Tarantella: ")]
    assert bool(warned) == (kind in ("normalization", "variance", "coupled")), warned
    assert any(line.startswith(first) for line in lines), done.out
    assert next(line for line in lines if line.startswith("likely cause")).startswith(cause), done.out
    assert any(line.startswith("cure: ") for line in lines)
    if kind in ("dropout", "normalization", "second"):
        assert lines[-1].endswith("switched off (training=False) both agree")


@pytest.mark.timeout(900)
@pytest.mark.full
def test_a_weight_whose_gradient_is_rounding_is_left_out(launcher):
    """Adam turns such a gradient into full steps: the bias of attention's keys moves as rounding directs."""
    script = launcher.script("""
        import keras
        import numpy as np
        import tarantella as tnt

        keras.utils.set_random_seed(0)
        random = np.random.default_rng(0)
        x, y = random.normal(size=(64, 10, 16)), random.normal(size=(64, 1))
        inputs = keras.Input((10, 16))
        outputs = keras.layers.MultiHeadAttention(2, 8)(inputs, inputs)
        outputs = keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(outputs))
        model = tnt.Model(keras.Model(inputs, outputs))
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(x, y, batch_size=16, verbose=0)
    """)
    done = launcher.run("verify", "-n", 2, "--no-gpu", "--", script, timeout=PATIENCE)
    assert done.returncode == 0, done.out + done.err
    assert "without multi_head_attention/key/bias, whose gradients are only rounding" in done.out


@pytest.mark.timeout(900)
@pytest.mark.full
def test_rounding_that_many_steps_amplify_is_named(launcher):
    script = launcher.script("""
        import keras
        import numpy as np
        import tarantella as tnt

        keras.utils.set_random_seed(0)
        random = np.random.default_rng(0)
        x, y = random.normal(size=(64, 10)).astype("float32"), random.normal(size=(64, 1))
        layers = [keras.layers.Dense(32, "tanh"), keras.layers.Dense(32, "tanh"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)  # made before tnt.Model imports what observes it
        model = tnt.Model(model)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.fit(x, y, batch_size=16, epochs=30, verbose=0)
    """)
    done = launcher.run("verify", "-n", 2, "--no-gpu", "--steps", 100, "--", script, timeout=PATIENCE)
    assert done.returncode == 1, done.out + done.err
    assert "likely cause: float32: its rounding" in done.out
    assert done.out.splitlines()[-1].endswith("steps in float64 both agree")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        extended("fails", "the run on one process failed with exit code 1"),
        ("fails on ranks", "the run on 2 ranks failed with exit code 1"),
    ],
)
def test_a_script_that_fails(launcher, kind, verdict):
    done = verify(launcher, kind)
    assert done.returncode == 3
    assert done.out.splitlines()[-1] == verdict
    assert "RuntimeError: there is no such file" in done.out


def test_a_script_that_fails_at_once(launcher):
    done = launcher.run("verify", "--", launcher.script("raise RuntimeError('there is no such file')"))
    assert done.returncode == 3
    assert done.out.splitlines()[-1] == "the run on one process failed with exit code 1"
    assert "RuntimeError: there is no such file" in done.out


def test_a_script_that_never_trains(launcher):
    done = launcher.run("verify", "--", launcher.script("import tarantella"))
    assert done.returncode == 3
    assert "script.py never trains" in done.out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-n", "1", "--", "script.py"], "must be at least 2 (got 1)"),
        (["--steps", "x", "--", "script.py"], "'x'"),
        (["-n", "2", "script.py"], "no script given"),
        (["--no-gup", "--", "script.py"], "did you mean '--no-gpu'?"),
        (["--", "nowhere.py"], "cannot read script"),
        (["--timeline=t.json", "--", "script.py"], "use it without verify"),
    ],
)
def test_an_invalid_command_line_starts_nothing(launcher, arguments, part):
    launcher.script("open('ran', 'w')")
    done = launcher.run("verify", *arguments)
    assert done.returncode == 2
    assert part in done.err
    assert not (launcher.folder / "ran").exists()


def test_help_shows_the_options(launcher):
    done = launcher.run("verify", "--help")
    assert done.returncode == 0 and "--steps" in done.out
    assert "tarantella verify  Compare training" in launcher.run("--help").out


def moments(*weights, rank=0, size=1, rows=8, loss=1.0, precision="float32"):
    """The records of a rank: before training, and after each step, a model with one tensor."""
    return [
        record.Observation(
            label=f"step {step}",
            model=1,
            method="fit",
            call=1,
            step=step,
            rows=rows // size * (step > 0),
            checksum=1000 * step // size,
            loss=loss * rows / size,
            weight=rows / size,
            learning_rate=0.1,
            precision=precision,
            loss_precision=precision,
            names=["dense/kernel"],
            shapes=[[2, 2]],
            sketches=[record.sketch(np.array(value))],
            samples=[record.sample(np.array(value))],
        )
        for step, value in enumerate(weights)
    ]


START = np.ones((2, 2))


def step_of(noise):
    return START + 0.01 * np.array([[1.0, -1.0], [1.0, 1.0 + noise]])


@pytest.mark.parametrize(("precision", "rounding", "error"), [("float32", 1e-5, 1e-3), ("float64", 1e-12, 1e-8)])
def test_weights_are_judged_by_how_far_training_has_moved_them(precision, rounding, error):
    one = moments(START, step_of(0), precision=precision)
    near, far = (
        [moments(START, step_of(noise), rank=r, size=2, precision=precision) for r in (0, 1)]
        for noise in (rounding, error)
    )
    verdict = compare.compare(one, near)
    assert isinstance(verdict, compare.Agreement) and verdict.steps == 1
    assert 0 < verdict.largest < 1.1 * 0.01 * rounding
    verdict = compare.compare(one, far)
    assert isinstance(verdict, compare.Difference)
    assert verdict.line.startswith("step 1, tensor 'dense/kernel'[1, 1], rank 0: 1.01")
    assert isinstance(compare.compare(one, far, without=["dense/kernel"]), compare.Agreement)


def test_the_rank_that_differs_is_named():
    ranks = [moments(START, step_of(noise), rank=r, size=2) for r, noise in enumerate((0, 0.5))]
    verdict = compare.compare(moments(START, step_of(0)), ranks)
    assert "rank 1: 1.01" in verdict.line


def test_not_a_number_in_both_is_no_difference():
    nan = np.full((2, 2), np.nan)
    one = moments(START, nan, loss=np.nan)
    both = [moments(START, nan, rank=r, size=2, loss=np.nan) for r in (0, 1)]
    assert isinstance(compare.compare(one, both), compare.Agreement)
    only_ranks = [moments(START, nan, rank=r, size=2) for r in (0, 1)]
    assert compare.compare(moments(START, step_of(0)), only_ranks).kind == "weights"


def test_a_loss_that_is_infinite_in_both_is_no_difference_but_in_one_it_is():
    def infinite(size, loss):
        return [moments(START, step_of(0), rank=r, size=size, loss=loss) for r in range(size)]

    assert isinstance(compare.compare(*infinite(1, np.inf), infinite(2, np.inf)), compare.Agreement)
    assert compare.compare(*infinite(1, np.inf), infinite(2, 1.0)).kind == "loss"
    assert compare.compare(*infinite(1, 1.0), infinite(2, np.inf)).kind == "loss"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_finite_in_a_tensor_is_judged_as_ever(wrong):
    def partly(noise):
        return step_of(noise) * [[wrong, 1.0], [1.0, 1.0]]

    def ranks(noise):
        return [moments(START, partly(noise), rank=r, size=2) for r in (0, 1)]

    verdict = compare.compare(moments(START, partly(0)), ranks(1e-5))
    assert isinstance(verdict, compare.Agreement)
    assert verdict.not_finite == "step 1, tensor 'dense/kernel'"
    assert compare.compare(moments(START, partly(0)), ranks(1e-3)).kind == "weights"


@pytest.mark.parametrize(
    ("losses", "code", "line"),
    [
        (
            (1.0, 1.0, np.nan, np.nan),
            0,
            "agree: 2 ranks gave the results of one process over 1 step (to the last bit); step 2, the loss is not "
            "finite in either run, so it cannot be compared",
        ),
        (
            (1.0, np.inf, np.nan),
            3,
            "nothing could be compared: step 1, the loss is not finite, on one process and on 2 ranks",
        ),
        ((1.0,), 3, "script.py never trains: it ended without a step of fit or train_on_batch of tarantella.Model"),
    ],
)
def test_only_finite_steps_agree(monkeypatch, capsys, losses, code, line):
    def run(job, name, ranks, why, **plan):
        weights = [START] * len(losses)
        observed = [moments(*weights, rank=rank, size=ranks) for rank in range(ranks)]
        for moment in (m for each in observed for m in each):
            moment.loss *= losses[moment.step]
        return runs.Run(f"{ranks} ranks", job.folder, 0, observed)

    monkeypatch.setattr(runs, "refused", lambda job, ranks: 0)
    monkeypatch.setattr(runs, "run", run)
    assert command.main("tarantella", ["--", "script.py"]) == code
    assert capsys.readouterr().out == line + "\n"


ROUNDING = "likely cause: float32: its rounding, which grows with the steps"
NONE = "likely cause: none found"


@pytest.mark.parametrize(
    ("noise", "precision", "cause", "last"),
    [
        (0, "float64", ROUNDING, "checked: over 1 step in float64 both agree"),
        (1, "float64", NONE, "checked: over 1 step in float64 they still differ: step 1, tensor 'dense/k"),
        (0, "float32", NONE, NONE),  # the script chooses its type itself
    ],
)
def test_rounding_is_what_float64_does_not_show(monkeypatch, capsys, tmp_path, noise, precision, cause, last):
    def run(job, name, ranks, why, **plan):
        for rank in range(ranks):
            (tmp_path / f"findings.{rank}.json").write_text("[]")
        how = {"precision": precision} if plan.get("floatx") == "float64" else {}
        weights = START, step_of((noise if how else 1) if ranks > 1 else 0)
        return runs.Run(
            f"{ranks} ranks", tmp_path, 0, [moments(*weights, rank=rank, size=ranks, **how) for rank in range(ranks)]
        )

    monkeypatch.setattr(runs, "refused", lambda job, ranks: 0)
    monkeypatch.setattr(runs, "run", run)
    assert command.main("tarantella", ["--", "script.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("differ: step 1, tensor 'dense/kernel'")
    assert lines[1].startswith(cause) and lines[-1].startswith(last)


def test_other_rows_and_learning_rates():
    one, ranks = moments(START, step_of(0)), [moments(START, step_of(0), rank=r, size=2) for r in (0, 1)]
    more = [moments(START, step_of(0), rank=r, size=2, rows=16) for r in (0, 1)]
    assert compare.compare(one, more).line == "step 1: 8 rows on one process, 16 in total on 2 ranks"
    for moment in (m for each in ranks for m in each):
        moment.learning_rate *= 2
    assert compare.compare(one, ranks).line == "step 0, the learning rate, rank 0: 0.1 on one process, 0.2 on 2 ranks"
    for kind in ("rows", "rate"):
        cause, cure = causes.explain(compare.Difference(kind, one[0], ""), [], [])
        assert cause.startswith("likely cause: the script makes the ") and cure.startswith("cure: ")


def test_other_numbers_of_steps():
    one = moments(START, step_of(0))
    longer = [moments(START, step_of(0), step_of(0), size=2) for _ in range(2)]
    verdict = compare.compare(one, longer)
    assert verdict.kind == "steps" and verdict.line == "step 2: on 2 ranks only, one process did not reach it"
    verdict = compare.compare(one, [moments(START, step_of(0), size=2), moments(START, size=2)])
    assert verdict.line == "step 1: on one process only, rank 1 of 2 ranks did not reach it"


def test_causes_come_in_the_order_of_their_weight():
    difference = compare.Difference("loss", moments(START)[0], "")
    lines = causes.explain(difference, [("sum", "the loss 'x'", ""), ("random", "Dropout 'd'", "d")], ["so it is"])
    assert [line.split(":")[0] for line in lines] == [
        "likely cause",
        "cure",
        "also possible",
        "cure",
        "warning of Tarantella",
    ]
    assert "Dropout" in lines[0] and "the loss 'x'" in lines[2]
    assert causes.explain(difference, [], [])[0].startswith("likely cause: none found")
    (line,) = causes.explain(difference, [("unknown", "KeyError: 'x'", "")], [])
    assert line == "likely cause: not found: the experiment on this batch failed (KeyError: 'x')"


def test_an_experiment_that_fails_is_no_clean_bill():
    import keras

    from tarantella.verify import examine

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    batch = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    uncompiled = examine.examine(model, batch)  # it has no loss to ask for
    assert [each.kind for each in uncompiled] == ["random", "unknown"]
    model.compile("sgd", "mse")
    assert [each.kind for each in examine.examine(model, batch)] == ["random"]
    (single,) = examine.examine(model, (batch[0][:1], batch[1][:1]))
    assert single == ("unknown", "ValueError: the batch has a single row", "")


def test_experiments_tell_kinds_of_layers_and_losses():
    import keras

    from tarantella.verify import examine

    class Variance(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(keras.ops.var(x, axis=0)))
            return x

    class Coupled(keras.layers.Layer):
        def call(self, x):
            return x - keras.ops.mean(x, axis=0)

    def summed(y, p):
        return keras.ops.sum(keras.losses.mean_squared_error(y, p))

    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 6)).astype(np.float32), random.normal(size=(20, 1)).astype(np.float32)

    def findings(*layers, loss="mse"):
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), *layers, keras.layers.Dense(1)])
        model.compile("sgd", loss)
        return [(each.kind, each.name) for each in examine.examine(model, (x, y))]

    assert findings() == []
    assert findings(keras.layers.Dropout(0.5, name="d")) == [("random", "Dropout 'd'")]
    assert findings(keras.layers.BatchNormalization(name="b"))[0] == ("coupled", "BatchNormalization 'b'")
    assert findings(Coupled(name="c"))[0] == ("coupled", "Coupled 'c'")
    (found,) = findings(Variance(name="v"))
    assert found == ("coupled loss", "a loss that Variance 'v' adds")
    assert findings(loss=summed) == [("sum", "the loss 'summed'")]


def test_what_no_experiment_judges_is_named_where_nothing_else_is_found():
    import keras

    from tarantella.verify import examine

    def declared(y, p):
        return keras.ops.mean(y - p)

    declared.tnt_reduction = "mean"

    class Own(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    class Clips(keras.optimizers.Adam):
        pass

    class Counts(keras.layers.Layer):
        def build(self, shape):
            self.seen = self.add_weight(shape=(), trainable=False)

        def call(self, x):
            return x

    x, y = np.arange(20).reshape(10, 2), np.ones((10, 2, 1), np.float32)
    inputs = keras.Input((2,), dtype="int32")
    embedded = keras.layers.Embedding(20, 3, name="e")(inputs)
    outputs = keras.layers.Dense(1)(Counts(name="c")(keras.layers.Dropout(0.5, name="d")(embedded)))
    model = Own(inputs, outputs)
    model.compile(Clips(), declared)
    found = examine.examine(model, (x, y))
    assert [each[:2] for each in found if each.kind in causes.SUSPECTS] == [("random", "Dropout 'd'")]
    own = [each for each in found if each.kind not in causes.SUSPECTS]
    assert [each[:2] for each in own] == [
        ("own step", "Own.train_step"),
        ("declared", "declared"),
        ("own optimizer", "Clips"),
        ("embedding", "Embedding 'e'"),
        ("own weights", "Counts 'c'"),
    ]
    difference = compare.Difference("weights", moments(START)[0], "")
    assert not any("possible cause" in line for line in causes.explain(difference, found, []))
    lines = causes.explain(difference, own, [])
    assert len(lines) == 11 and all(line.startswith("cure: ") for line in lines[1:10:2])
    assert lines[10].startswith("callbacks that change weights")
    assert lines[0].startswith("possible cause: Own.train_step: is user-defined: values that it computes from the rows")


def test_experiments_on_sparse_rows_and_gathered_ones():
    import keras
    import tensorflow as tf

    import tarantella as tnt
    from tarantella.verify import examine

    class Spread(keras.layers.Layer):
        def __init__(self, gathers, **options):
            super().__init__(**options)
            self.gathers = gathers

        def call(self, x):
            rows = tnt.gather_rows(x) if self.gathers else x
            self.add_loss([keras.ops.mean(keras.ops.var(rows, axis=0)), keras.ops.sum(x)])
            return x - keras.ops.mean(rows, axis=0)

    random = np.random.default_rng(0)
    x = tf.sparse.from_dense(random.integers(0, 2, (20, 6)).astype("float32"))
    y = random.normal(size=(20, 1)).astype(np.float32)
    for gathers, wanted in (
        (False, [("coupled", "Spread 's'"), ("coupled loss", "a loss that Spread 's' adds")]),
        (True, []),
    ):
        inputs = keras.Input((6,), sparse=True)
        outputs = keras.layers.Dense(1)(Spread(gathers, name="s")(keras.layers.Dense(8, "relu")(inputs)))
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse")
        found = [(each.kind, each.name) for each in examine.examine(model, (x, y))]
        assert [each for each in found if "mse" not in each[1]] == wanted


def test_a_sketch_is_as_long_as_the_tensor():
    random = np.random.default_rng(1)
    large, other = random.normal(size=(2, 300, 5000))
    assert np.linalg.norm(record.sketch(large)) == pytest.approx(np.linalg.norm(large), rel=0.1)
    change = np.zeros_like(large)
    change[17] = 1e-3  # a row of an embedding
    apart = record.sketch(large + change) - record.sketch(large)
    assert np.linalg.norm(apart) == pytest.approx(np.linalg.norm(change), rel=0.2)
    np.testing.assert_allclose(record.sketch(large + other), record.sketch(large) + record.sketch(other))


def test_records_come_back(tmp_path):
    written = moments(START, step_of(0))
    for number, each in enumerate(written):
        record.write(tmp_path, 1, number, each)
    read = record.read(tmp_path, 1)
    assert [each.label for each in read] == ["step 0", "step 1"] and record.read(tmp_path, 0) == []
    np.testing.assert_array_equal(read[1].sketches[0], written[1].sketches[0])


def test_row_checksums_tell_rows_but_not_their_order():
    import tensorflow as tf

    from tarantella.verify.observe import Rows

    def total(*batches):
        rows = Rows()
        for x, y in batches:
            rows.note((tf.constant(x), {"y": tf.constant(y)}))
        return rows.take()

    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array(list("abcdef"))
    order = [3, 1, 0, 5, 4, 2]
    whole = total((x, y))
    assert whole[0] == 6
    assert total((x[order], y[order])) == whole
    assert total((x, y[order])) != whole
    assert total((x[:, ::-1], y)) != whole
    first, second = total((x[:4], y[:4])), total((x[4:], y[4:]))
    assert (sum(each[1] for each in (first, second)) - whole[1]) % 2**64 == 0
