"""The paper kit of a run that is given by name."""

from __future__ import annotations

from pathlib import Path

from m3b.report import paper
from m3b.report.paper import PaperKit
from m3b.run.folder import RunFolder


def write_paper_kit(run: str | Path, folder: str | Path) -> PaperKit:
    """Write the paper kit of a finished run: methods, flow diagram, Table 1, results, CLAIM 2024 and TRIPOD+AI lists.

    Each is written as Markdown and LaTeX; `facts.json` has the source of every number, and `m3b verify` compares them.

    Args:
        run: folder or id of a run, or `last`.
        folder: an empty or new folder, or that of an earlier kit, which is replaced.

    Raises:
        UsageError: there is no such run, it has no accepted measurement, or `folder` holds other files.
    """
    return paper.write_paper_kit(RunFolder.open(run).path, Path(folder).expanduser())
