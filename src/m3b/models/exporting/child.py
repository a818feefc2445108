"""Starts `inside/m3b_child.py`, the process that loads a deliverable's code or an export of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import ModelError
from m3b.models.running import run_plain
from m3b.writing import replace_text

TOLERANCE = 1e-4
"""The largest absolute difference between an export's numbers and the model's that is let through."""

INSIDE = Path(__file__).with_name("inside")


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        to: the format.
        folder: where it lies.
        compared: what was compared, in words.
        largest_difference: between its numbers and the model's, over everything compared.
    """

    to: str
    folder: Path
    compared: str
    largest_difference: float

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "to": self.to,
            "folder": str(self.folder),
            "files": sorted(f.relative_to(self.folder).as_posix() for f in self.folder.rglob("*") if f.is_file()),
            "compared": self.compared,
            "largest_difference": self.largest_difference,
            "tolerance": TOLERANCE,
        }


def need(packages: Sequence[str], extra: str) -> None:
    """Raises ModelError where a package is missing, with the command that installs it."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"{', '.join(missing)} not installed; install with: pip install 'm3b[{extra}]'")


def child(action: str, folder: Path, request: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """Run one action of the child and give back what it found.

    Raises:
        ModelError: it failed; the message ends with what it printed.
    """
    asked, result = scratch / f"{action}.request.json", scratch / f"{action}.result.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    argv = [sys.executable, "-B", str(INSIDE / "m3b_child.py"), action, str(folder), str(asked), str(result)]
    status, log = run_plain(argv, scratch, result)
    if status != 0 or not result.is_file():
        lines = [line for line in log.strip().splitlines() if line.strip()]
        raise ModelError(f"{action}: the export ended with status {status}: {' / '.join(lines[-6:])[-1200:]}")
    found = json.loads(result.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ModelError(f"{action}: the export wrote a {type(found).__name__}")
    return found


def accept(difference: float, what: str) -> None:
    """Raises ModelError where an export is not equal to its model; NaN never is."""
    if not difference <= TOLERANCE:
        raise ModelError(
            f"{what} differs from the model by {difference:.3g}, more than {TOLERANCE:g}; nothing was kept"
        )


def versions(*names: str) -> dict[str, str]:
    """Installed versions, without local build marks."""
    return {name: importlib.metadata.version(name).split("+")[0] for name in names}


def write_json(file: Path, content: Any) -> None:
    """Indented JSON that keeps the order of keys."""
    replace_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
