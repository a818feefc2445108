"""Regions of Aperio ImageScope files: `Annotations/Annotation/Regions/Region/Vertices/Vertex`, in pixels of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable
from m3b.data.spec.contours import half_open
from m3b.data.survey.annotations.aperio import Region, in_root
from m3b.data.survey.reading_documents import xml_root
from m3b.errors import DataError


def regions(file: Path) -> Iterator[Region]:
    """The regions of one file.

    Raises:
        Unreadable, ValueError: it is no such file.
    """
    return in_root(xml_root(file))


def drawn(
    file: Path, shape: tuple[int, ...], classes: Mapping[str, int], names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The areas of one file by class; holes are taken out of what is drawn.

    Raises:
        DataError: it is no such file.
    """
    wanted = {text.strip().casefold(): own for own in classes for text in (names.get(own) or (own,))}
    size = (int(shape[0]), int(shape[1]))
    found: dict[str, Any] = {}
    try:
        for one in sorted(regions(file), key=lambda region: region.hole):
            own = wanted.get(one.name.strip().casefold())
            if own is None:
                continue
            area = half_open(list(one.points), size)
            if one.hole and own in found:
                found[own] = found[own] & ~area
            elif not one.hole:
                found[own] = area | found[own] if own in found else area
    except (Unreadable, ValueError, OSError) as error:
        raise DataError(f"it cannot be read as Aperio: {error}") from error
    return found
