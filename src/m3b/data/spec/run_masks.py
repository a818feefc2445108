"""Masks from tables whose cells hold run lengths, by the image that each row names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from m3b.data.opening import Unreadable
from m3b.data.run_lengths import RunRule, decoded, runs_of
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.folder import DataFolder, Item
from m3b.data.spec.model import Masks
from m3b.data.spec.outlines import wanted_names
from m3b.data.spec.patterns import PatternError, filled
from m3b.data.survey.annotations.box_columns import cell_of
from m3b.data.survey.annotations.marks import UNNAMED
from m3b.data.survey.facts import SurveyLimits
from m3b.data.survey.keys import key as normal
from m3b.data.survey.reading_tables import read_rows
from m3b.errors import DataError

NEEDED = ("image", "runs")


@dataclass
class RunMasks:
    """The run lengths of every image that the tables name."""

    masks: Masks
    folder: DataFolder
    items: Sequence[Item]
    _of: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        columns = self.masks.columns
        if missing := [role for role in NEEDED if role not in columns]:
            raise PatternError(f"masks.columns has no column for {' and '.join(missing)}; csv_runs needs it.")
        for item in self.items:
            self._read(item)

    def _read(self, item: Item) -> None:
        columns, file = self.masks.columns, self.folder.root / item.path
        try:
            tables = read_rows(file, file.suffix.lower(), SurveyLimits())
        except (Unreadable, ValueError, OSError) as error:
            raise DataError(f"{item.path} cannot be read as a table: {error}.") from error
        fitting = [one for one in tables if set(columns.values()) <= set(one.names)]
        if not fitting:
            names = ", ".join(tables[0].names[:40]) if tables else "none"
            raise PatternError(f"{item.path} has not the columns {', '.join(columns.values())}; it has {names}.")
        for row in fitting[0].rows:
            label = cell_of(row, columns["class"]) if "class" in columns else UNNAMED
            self._of[normal(self.masks.rule, cell_of(row, columns["image"]))].append(
                (label, cell_of(row, columns["runs"]))
            )

    def drawn(self, case: CaseDraft, shape: Sequence[int]) -> dict[str, Any] | None:
        """Class -> (rows, columns) bool; all of them empty where nothing is marked. None where no row names the image.

        Raises:
            DataError: a cell holds no runs, or they reach beyond the image.
        """
        rows = self._of.get(normal(self.masks.rule, filled(self.masks.image, case.slots)))
        if rows is None:
            return None
        import numpy as np

        masks = self.masks
        wanted = wanted_names(masks.classes, masks.names)
        rule = RunRule(masks.order, masks.first, masks.relative)
        found = {name: np.zeros((int(shape[0]), int(shape[1])), bool) for name in masks.classes}
        for label, cell in rows:
            runs, own = runs_of(cell), wanted.get(label.strip().casefold())
            if runs is None:
                raise DataError(f"a cell holds no run lengths: {cell[:40]!r}")
            if own is not None and runs:
                found[own] |= decoded(runs, shape, rule)
        return found
