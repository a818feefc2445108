"""Pascal VOC: one XML file an image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from m3b.data.survey.annotations.marks import Marks, numbers
from m3b.data.survey.tables import FILE, Loaded

_NAME, _BOX = "object.name", "object.bndbox."
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def find(tables: Sequence[Loaded]) -> Iterator[Marks]:
    """Groups of XML files with `object/name` and `object/bndbox`."""
    by_group: dict[str, list[Loaded]] = defaultdict(list)
    for table in tables:
        if table.fact.format == "xml":
            by_group[table.fact.group].append(table)
    for group, some in by_group.items():
        if any(_BOX + "xmin" in table.names for table in some):
            yield _voc(group, some)


def _voc(group: str, tables: Sequence[Loaded]) -> Marks:
    first = tables[0].fact
    marks = Marks("voc", first.path, sum(one.fact.files for one in tables), group=group, table=first.id,
                  shapes={"box"}, class_source=_NAME)  # fmt: skip
    for table in tables:
        for row in table.rows:
            names = _cells(row.get(_NAME, []))
            marks.classes.update(names)
            marks.items += len(names)
            marks.marked += bool(names)
            marks.named.append(str(row.get(FILE, table.fact.path)))
            sides = [numbers(_cells(row.get(_BOX + side, []))) for side in _SIDES]
            if any(side is None or len(side) != len(names) for side in sides):
                marks.faults["unreadable_box"] += 1
                continue
            xmin, ymin, xmax, ymax = (side or [] for side in sides)
            marks.faults["no_area"] += sum(
                right <= left or low <= high for left, high, right, low in zip(xmin, ymin, xmax, ymax, strict=True)
            )
    return marks


def _cells(cell: str | list[str]) -> list[str]:
    return cell if isinstance(cell, list) else [cell]
