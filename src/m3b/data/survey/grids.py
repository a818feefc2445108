"""Whether the files of two groups lie on the same grid, by the headers of a few pairs."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.data.opening import Unreadable, attempt
from m3b.data.reading import shared
from m3b.data.survey.gathering import Gathered, Gathering

_COMPARED = 4


def grids(found: Gathering, left: Gathered, right: Gathered, pairs: dict[str, list[str]]) -> tuple[int, int, int]:
    """Of a few pairs: compared, of one shape, of one shape or the one a whole multiple of the other."""
    step = max(len(pairs) // _COMPARED, 1)
    compared = same = fits = 0
    for path in list(pairs)[::step][:_COMPARED]:
        one, other = _shape(found, path, left), _shape(found, pairs[path][0], right)
        if not one or not other:
            continue
        compared += 1
        same += one == other
        fits += one == other or _multiple(one, other)
    return compared, same, fits


def _shape(found: Gathering, path: str, group: Gathered) -> tuple[int, ...]:
    if group.by_folder:
        return _series_shape(found, path, group)
    if (look := found.looks.get((path, group.fact.kind))) is not None:
        return look.shape
    if group.fact.kind not in ("picture", "nifti"):
        return found.look(path, group.merged).shape if group.fact.kind in ("itk", "dicom") else ()
    try:
        shape: tuple[int, ...] = attempt(lambda: shared().probe(str(found.tree.root / path)), found.tree.root, path)
    except Unreadable:
        return ()
    return shape


def _series_shape(found: Gathering, folder: str, group: Gathered) -> tuple[int, ...]:
    """Rows, columns and slices of a DICOM series, by its headers."""
    slices = [one for one in (group.headers.found if group.headers else ()) if one.path.rpartition("/")[0] == folder]
    if not slices or "Rows" not in slices[0].tags:
        return ()
    return int(slices[0].tags["Rows"]), int(slices[0].tags.get("Columns", 0)), len(slices)


def _multiple(one: Sequence[int], other: Sequence[int]) -> bool:
    if len(one) != len(other):
        return False
    ratios = {a / b for a, b in zip(one, other, strict=True)}
    ratio = ratios.pop()
    return not ratios and (ratio == int(ratio) or 1 / ratio == int(1 / ratio))
