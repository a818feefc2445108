"""Boxes in the columns of tables: which roles a format needs, and the corners that a row gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from m3b.data.survey.rows import Cell
from m3b.errors import DataError

CORNERS, SIDES, CENTRES = "corners", "sides", "centres"
"""Roles of one column of boxes: two corners; a corner and the sizes; a middle and the sizes."""
FORMS = (CORNERS, SIDES, CENTRES)
_AXES = (("x", "width"), ("y", "height"), ("z", "depth"))


def check_columns(form: str, columns: Mapping[str, str]) -> None:
    """Raise where a format lacks a role.

    Raises:
        DataError: the message names the roles.
    """
    if form in ("json_boxes", "csv_lists"):
        need = [["image"], list(FORMS)]
    elif form == "csv_circles":
        need = [["x", "cx"], ["y", "cy"], ["radius", "diameter"]]
    elif form == "csv_boxes":
        need = [[one for one in (f"{axis}min", axis, f"c{axis}")] for axis, _ in _AXES[:2]]
        need += [[f"{axis}max", size] for axis, size in _AXES[:2]]
    else:
        return
    if missing := [" or ".join(some) for some in need if not set(some) & columns.keys()]:
        raise DataError(
            f"boxes.columns: {form} needs the role {' and the role '.join(missing)}; given: {_some(columns)}."
        )
    if _deep(columns) and form == "csv_boxes" and not {"zmax", "depth"} & columns.keys():
        raise DataError(f"boxes.columns: a box with {columns[_deep(columns)]!r} needs the role zmax or depth too.")


def check_names(columns: Mapping[str, str], names: Sequence[str], path: str) -> None:
    """Raise where a table lacks a column.

    Raises:
        DataError: the message names the role, the column and the columns that there are.
    """
    for role, name in columns.items():
        if name not in names and name != "(file)":
            raise DataError(f"boxes.columns.{role}: {path} has no column {name!r}; columns: {', '.join(names[:40])}.")


def _deep(columns: Mapping[str, str]) -> str:
    """The role that begins a box along the third axis; empty for flat boxes."""
    return next((role for role in ("zmin", "cz", "z") if role in columns), "")


def _some(columns: Mapping[str, str]) -> str:
    return ", ".join(columns) or "none"


def rows_of(row: Mapping[str, Cell], columns: Mapping[str, str]) -> list[Mapping[str, Cell]]:
    """A row whose cells list the sides of several boxes as a row a box; others as they are.

    Raises:
        ValueError: its lists are of different lengths.
    """
    lists = {
        name: cell for role, name in columns.items() if role != "image" and isinstance(cell := row.get(name, ""), list)
    }
    sides = {name: cell for name, cell in lists.items() if name != columns.get("class")}
    if not sides:
        return [row]
    sizes = {len(cell) for cell in lists.values()}
    if len(sizes) > 1 or len(sides) < len(columns.keys() - {"image", "class"}):
        raise ValueError("the lists of a row's boxes are of different lengths")
    return [{**row, **{name: cell[at] for name, cell in lists.items()}} for at in range(sizes.pop())]


def cell_of(row: Mapping[str, Cell], column: str) -> str:
    """A cell as text; of a list its first value."""
    cell = row.get(column, "")
    return str(cell[0] if isinstance(cell, list) and cell else "" if isinstance(cell, list) else cell).strip()


def corners_of(columns: Mapping[str, str], row: Mapping[str, Cell]) -> tuple[float, ...] | None:
    """The lower and upper corner of a row's box; None where its cells are empty (a healthy image).

    Raises:
        ValueError: a cell holds no number.
    """
    roles = {role: name for role, name in columns.items() if role not in ("image", "class")}
    texts = {role: cell_of(row, name) for role, name in roles.items()}
    if any(text.casefold() in ("", "nan", "none", "null", "na", "n/a") for text in texts.values()):
        return None
    numbers = {role: float(text) for role, text in texts.items()}
    axes = [_axis(numbers, axis, size) for axis, size in _AXES[: 3 if _deep(columns) else 2]]
    return (*(low for low, _ in axes), *(high for _, high in axes))


def _axis(numbers: Mapping[str, float], axis: str, size: str) -> tuple[float, float]:
    """Where a box begins and ends along one axis."""
    if "radius" in numbers or "diameter" in numbers:
        radius = numbers["radius"] if "radius" in numbers else numbers["diameter"] / 2
        middle = numbers[axis] if axis in numbers else numbers[f"c{axis}"]
        return middle - radius, middle + radius
    if f"c{axis}" in numbers and f"{axis}min" not in numbers:
        half = numbers.get(size, 0.0) / 2
        return numbers[f"c{axis}"] - half, numbers[f"c{axis}"] + half
    low = numbers[f"{axis}min"] if f"{axis}min" in numbers else numbers[axis]
    return low, numbers[f"{axis}max"] if f"{axis}max" in numbers else low + numbers[size]


def formed(form: str, numbers: Sequence[float]) -> tuple[float, ...]:
    """The corners of a box that a list of four (or six) numbers gives."""
    half = len(numbers) // 2
    first, second = numbers[:half], numbers[half:]
    if form == CORNERS:
        return tuple(numbers)
    if form == SIDES:
        return (*first, *(low + size for low, size in zip(first, second, strict=True)))
    return (
        *(middle - size / 2 for middle, size in zip(first, second, strict=True)),
        *(middle + size / 2 for middle, size in zip(first, second, strict=True)),
    )
