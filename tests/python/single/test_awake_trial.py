"""The trial that decides whether cores are kept from going idle, with a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pytest

from tarantella.keras.calls.awake import Trial


class Steps:
    """A clock, and steps that take longer or shorter with cores kept awake, in milliseconds."""

    def __init__(self, off: float, on: float) -> None:
        self.now, self.times = 0.0, {False: off / 1e3, True: on / 1e3}
        self.trial = Trial(lambda: self.now, on_all_ranks=lambda seconds: seconds)

    def fit(self, steps: int) -> list[bool]:
        """Whether cores were kept awake in each step. A stall before the first one is not timed."""
        self.now += 60
        self.trial.pause()
        return [self.step() for _ in range(steps)]

    def step(self) -> bool:
        on = self.trial.before_step()
        self.now += self.times[on]
        return on


@pytest.mark.parametrize(
    ("off", "on", "choice"),
    [(2.0, 1.0, True), (1.1, 1.0, True), (1.0, 1.0, False), (1.02, 1.0, False), (1.0, 2.0, False)],
)
def test_the_faster_way_is_kept(off: float, on: float, choice: bool) -> None:
    steps = Steps(off, on)
    tried = steps.fit(Trial.STEPS)
    assert (tried.count(True), tried.count(False)) == (54, 57)
    assert steps.trial.choice is None
    assert steps.fit(20) == [choice] * 20 or steps.fit(1) == [choice]
    assert steps.trial.choice is choice


@pytest.mark.parametrize("jump", range(1, 111, 5))
def test_steps_that_become_longer_decide_nothing(jump: int) -> None:
    steps = Steps(1.0, 1.0)
    steps.fit(jump)
    steps.times = {False: 4e-3, True: 4e-3}
    steps.fit(113)
    assert steps.trial.choice is False


def test_ranks_that_measure_other_times_try_the_same() -> None:
    random = np.random.default_rng(1)
    one, other = Steps(1.0, 2.0), Steps(2.0, 1.0)
    other.trial._on_all_ranks = lambda seconds: seconds[::-1]  # as if they had agreed
    while one.trial.choice is None:
        steps = int(random.integers(1, 40))
        assert one.fit(steps) == other.fit(steps)
    assert (one.trial.choice, other.trial.choice) == (False, False)


@pytest.mark.parametrize(("step", "window"), [(1000.0, 2), (100.1, 2), (99.9, 3), (26.0, 8), (25.0, 8), (1.0, 8)])
def test_long_steps_are_tried_in_shorter_windows(step: float, window: int) -> None:
    steps = Steps(step, step / 2)
    steps.fit(3 + 12 * (window + 1))
    assert steps.trial.choice is None
    steps.step()
    assert steps.trial.choice is True


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_hitch_shortens_no_window(slow: int) -> None:
    steps = Steps(1.0, 1.0)
    for step in range(Trial.STEPS):
        steps.step()
        steps.now += 0.5 if step == slow else 0
    assert steps.trial.choice is None
    steps.step()
    assert steps.trial.choice is False


@pytest.mark.parametrize("steps_of_epoch", [2, 9, 12, 18, 36, 40])
@pytest.mark.parametrize(("off", "on", "choice"), [(2.0, 1.0, True), (1.0, 2.0, False)])
def test_what_lies_between_epochs_is_not_timed(steps_of_epoch: int, off: float, on: float, choice: bool) -> None:
    steps = Steps(off, on)
    epochs = 0
    while steps.trial.choice is None and epochs < 200:
        steps.trial.pause()
        for _ in range(steps_of_epoch):
            steps.step()
        steps.now += 60  # validation
        epochs += 1
    assert steps.trial.choice is choice
    assert steps.trial._means == pytest.approx([off / 1e3, on / 1e3, on / 1e3, off / 1e3] * 3)


def test_fits_of_few_steps_are_tried_and_those_of_one_keep_cores_as_they_are() -> None:
    steps = Steps(2.0, 1.0)
    fits = next(fits for fits in range(100) if steps.fit(8) and steps.trial.choice is not None)
    assert (fits, steps.trial.choice) == (15, True)  # 111 steps, and one for each fit before
    single = Steps(2.0, 1.0)
    assert not any(on for _ in range(300) for on in single.fit(1))
