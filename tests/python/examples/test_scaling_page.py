"""The page of `tarantella scaling`. Its example keeps the global batch; that of the MirroredStrategy page does not."""

from __future__ import annotations

import pytest

from .conftest import Page, Place

PAGE = Page("scaling.md")


def test_the_scaling_of_lenet5_is_measured_and_is_strong(place: Place) -> None:
    smaller = {"-n 1,2,4": "-n 1,2 --repeat 1", "--epochs=20": "--epochs=2"}
    output = PAGE.run(place, "tarantella scaling", changes=smaller)
    assert "strong scaling: the global batch stays at 256 rows" in output
    assert (place.folder / "examples/quick_start/scaling.html").exists()


def test_every_command_of_the_page_is_run(request: pytest.FixtureRequest) -> None:
    PAGE.assert_all_ran(request)
