"""The example notebooks run from top to bottom in a kernel, and are kept without outputs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from .conftest import EXAMPLES, environment

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def test_digits(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "notebooks/digits.ipynb", as_version=4)
    variables = environment(KERAS_HOME=str(tmp_path), IPYTHONDIR=str(tmp_path))
    client = NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=variables)
    shown = "".join(
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream" and output["name"] == "stdout"
    )
    assert shown.count("Epoch 10/10") == 2  # of one rank, and of the master of two
    pairs = re.findall(r"^epoch \d+: loss (\S+) on one rank, (\S+) on two$", shown, re.M)
    assert len(pairs) == 10
    accuracy = re.search(r"^test accuracy: (\S+) and (\S+)$", shown, re.M)
    assert accuracy
    assert min(map(float, accuracy.groups())) > 0.9
    assert "return x / tnt.get_rank()\n" in shown
    assert "ZeroDivisionError: division by zero\n\nrank 0 (pid " in shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_committed(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)
