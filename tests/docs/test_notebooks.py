"""The notebooks of examples/notebooks, executed from top to bottom as Jupyter does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import pytest
from docs_kit import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.py"))
FAST = "2_own_data"
"""It shows how a folder is read, and trains nothing."""


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=() if file.stem == FAST else pytest.mark.slow) for file in NOTEBOOKS],
)
def test_a_notebook_runs_from_top_to_bottom(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = jupytext.read(file)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources).execute()
    pages = [page for cell in notebook.cells for page in list_pages(cell)]
    assert pages or "print(" in file.read_text(encoding="utf-8")
    if file.stem == FAST:
        assert any("<img" in page for page in pages), "examples of the folder"
        assert any("how the data is read" in page for page in pages)


def list_pages(cell: Any) -> list[str]:
    """The HTML that a cell shows."""
    return [output["data"]["text/html"] for output in cell.get("outputs", ()) if "text/html" in output.get("data", {})]


def test_every_notebook_is_listed() -> None:
    page = (ROOT / "examples/notebooks/README.md").read_text(encoding="utf-8")
    assert [file.name for file in NOTEBOOKS if file.name not in page] == []
