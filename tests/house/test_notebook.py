"""The notebook of the documentation runs on any campaign, and is committed without outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.engine.certifying import store
from tasks.record import reconcile
from tasks.trial import History
from tests.support.histories import certified, search, tried
from tests.support.ledgers import created, filled

NOTEBOOK = Path(__file__).parents[2] / "docs/trials.ipynb"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["certified", "crashes alone", "baseline alone"])
def test_the_notebook_runs_to_its_end(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    import nbformat
    from nbclient import NotebookClient

    history: History = search(14) if kind == "certified" else (tried((), None if "crashes" in kind else 1.0),)
    ledger = filled(created(tmp_path), history)
    if kind == "certified":
        store(ledger, certified(1, [210, 215, 212, 214], [80, 82, 79, 84]))
    reconcile(ledger)
    monkeypatch.setenv("NIGHTSHIFT_CAMPAIGN", "n")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)

    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(NOTEBOOK.parents[1])}}).execute()

    pictures = [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 5
