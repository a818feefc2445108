"""Hidden test cases on disk: the agent's copy without them, their files, and a manifest in m3b's own index format."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from m3b.errors import DataError

from .datasets import PixelBox, RawCase

AGENT_FOLDER, HIDDEN_FOLDER, CARVE_OUT_FILE = "agent", "hidden", "hidden.json"


@dataclass(frozen=True)
class CarveOut:
    """A carve-out on disk.

    Args:
        folder: holds `agent/`, `hidden/` and the manifest.
        cases: the hidden ones, as the trusted reader reads them; paths count from `hidden/`.
        kept: how many cases the agent's copy holds.
        withheld: files that were left out because they could hold anything, archives for instance.
        stand_in: whether the data was drawn by a program, so that the stand-in's range holds.
    """

    folder: Path
    dataset: str
    cases: tuple[RawCase, ...]
    kept: int
    withheld: tuple[str, ...]
    stand_in: bool
    seed: int

    @property
    def agent_folder(self) -> Path:
        return self.folder / AGENT_FOLDER

    @property
    def hidden_folder(self) -> Path:
        return self.folder / HIDDEN_FOLDER

    def save(self) -> None:
        """Write the manifest; the last step, so that its presence says that the carve-out is whole."""
        from m3b.writing import write_text_atomically

        raw = {**asdict(self), "folder": "."}
        write_text_atomically(self.folder / CARVE_OUT_FILE, json.dumps(raw, ensure_ascii=False, indent=1))

    @classmethod
    def load(cls, folder: Path) -> CarveOut:
        """A carve-out that was made before.

        Raises:
            DataError: there is none, or its manifest is broken.
        """
        file = folder / CARVE_OUT_FILE
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            cases = tuple(_case_from_json(raw_case) for raw_case in raw.pop("cases"))
            return cls(**{**raw, "folder": folder, "cases": cases, "withheld": tuple(raw["withheld"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is no manifest of hidden cases: {error}. Carve the data out again.") from error


def _case_from_json(raw: dict[str, Any]) -> RawCase:
    raw = {**raw, "images": tuple(raw["images"]), "labels": tuple(raw["labels"])}
    raw["boxes"] = tuple(PixelBox(**box) for box in raw["boxes"])
    raw["rescale"] = tuple(raw["rescale"]) if raw["rescale"] else None
    return RawCase(**raw)
