"""The notebook among the examples, run as Jupyter runs it: in a kernel, with what it shows below cells."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "sizing.ipynb"
_SHORTER = {'duration="75 s"': 'duration="40 s"', '"interval": "8 s"': '"interval": "4 s"'}
"""As many windows in half of the time; what the cells show is the same."""
_TOO_BUSY = "a Python worker did not connect in time"
PATIENCE_S = 900  # for a machine that does other things too


def run_notebook(path: Path, folder: Path) -> Any:
    for module in ("nbclient", "ipykernel"):
        if os.environ.get("CI") != "true":
            pytest.importorskip(module)
    import nbformat  # type: ignore[import-not-found, unused-ignore]
    from nbclient import NotebookClient  # type: ignore[import-not-found, unused-ignore]
    from nbclient.exceptions import CellExecutionError  # type: ignore[import-not-found, unused-ignore]

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    cell = next(cell for cell in notebook.cells if "pipeline.run(" in cell.source and cell.cell_type == "code")
    for as_written, shorter in _SHORTER.items():
        assert as_written in cell.source
        cell.source = cell.source.replace(as_written, shorter)
    client = NotebookClient(
        notebook, timeout=PATIENCE_S, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    try:
        return client.execute()
    except CellExecutionError as error:
        if _TOO_BUSY in str(error):  # Spark gives its workers ten seconds: nothing of the notebook's
            pytest.skip(f"on this machine {_TOO_BUSY}")
        raise


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_a_pipeline_is_sized_below_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOK.parents[1] / "src")]))
    _, run, end = (cell for cell in run_notebook(NOTEBOOK, tmp_path).cells if cell.cell_type == "code")
    # one display that is updated; how many outputs that is depends on the client
    displays = [text_of(one.data.get("text/html", "")) for one in run.outputs if one.output_type == "display_data"]
    shown = "\n".join(displays)
    assert "stopping after the batches under way" in shown
    assert re.search(r"│ words +│ +\d+ │", shown), "the table of the operators"
    assert "deciding" in shown
    (printed,) = [one.text for one in end.outputs]
    told = re.search(r"ended with \{'words': (\d+), 'counts': (\d+)\} after (\d+) windows", printed)
    assert told is not None
    assert int(told[3]) >= 1
    # a machine that does other things may not have time for a decision; what was decided is seen
    for decided in re.findall(r"words 1 → \d+", printed):
        assert decided in shown
