"""Masks from outlines of CVAT, the VGG annotator and YOLO: polygons, ellipses and rectangles, drawn on one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from m3b.data.opening import Unreadable
from m3b.data.spec.contours import half_open
from m3b.data.survey.annotations import cvat, in_text, via
from m3b.data.survey.annotations.marks import UNNAMED
from m3b.data.survey.annotations.outline import DrawnOutline
from m3b.data.survey.reading_documents import xml_root
from m3b.errors import DataError
from m3b.isolation.untrusted import parse_data_json

OutlineFormat = Literal["yolo", "cvat", "via"]
MAX_BYTES = 512 * 2**20


def drawn(
    format: OutlineFormat, file: Path, image: str, shape: Sequence[int], wanted: Mapping[str, str]
) -> dict[str, Any] | None:
    """The areas of one image by class; empty where nothing is marked, None where the file does not name the image.

    Args:
        image: its path; the file gives it or its end (of YOLO it is called like the file).
        shape: rows and columns of the image.
        wanted: name in the file, case and spaces folded -> class.

    Raises:
        DataError: it is no such file.
    """
    size = (int(shape[0]), int(shape[1]))
    try:
        every = _of_file(format, file, image, size)
    except (Unreadable, ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise DataError(f"it cannot be read as {format}: {type(error).__name__}: {error}") from error
    own = [one for one in every if f"/{image}".endswith(f"/{one.image.lstrip('./')}")]
    if not own:
        return None
    longest = max(len(one.image) for one in own)
    found: dict[str, Any] = {}
    for one in own:
        name = wanted.get((one.label or UNNAMED).strip().casefold())
        if len(one.image) == longest and one.points and name is not None:
            area = half_open(list(one.points), size)
            found[name] = area | found[name] if name in found else area
    return found


def _of_file(format: OutlineFormat, file: Path, image: str, size: tuple[int, int]) -> Sequence[DrawnOutline]:
    state = file.stat()
    if state.st_size > MAX_BYTES:
        raise ValueError("larger than 512 MiB")
    if format == "yolo":
        return list(in_text.outlines(file.read_text(encoding="utf-8", errors="replace"), image, size))
    return _document(format, file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _document(format: OutlineFormat, file: Path, changed: int, size: int) -> Sequence[DrawnOutline]:
    """The outlines of one state of a file, which is asked for every one of its images."""
    return list(
        cvat.in_root(xml_root(file)) if format == "cvat" else via.in_document(parse_data_json(file.read_bytes()))
    )
