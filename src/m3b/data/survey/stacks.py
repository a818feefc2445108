"""Files that hold several planes, frames or volumes: TIFF stacks (OME or not), 4D volumes, clips."""

from __future__ import annotations

import re
from pathlib import Path

from m3b.data.opening import Unreadable, attempt
from m3b.data.survey.facts import Container, Content, FileKind

_DESCRIPTION = 270
"""The TIFF tag in which OME-TIFF keeps its XML."""


def stack_of(group: str, kind: FileKind, files: int, path: Path, content: Content | None) -> Container | None:
    """The container facts of a group by its samples' content and one file's header; None where files are single."""
    if content is None or content.failed == content.looked:
        return None
    if kind == "video":
        return Container(group=group, format="video", files=files, looked=content.looked, axes="TYX")
    if kind in ("nifti", "itk") and content.dims == 3 and max(content.channels, default=1) > 1:
        return Container(group=group, format="volume4d", files=files, looked=content.looked, axes="XYZT")
    if kind != "picture" or not path.name.lower().endswith((".tif", ".tiff")):
        return None
    try:
        pages, description = attempt(lambda: _pages(path), path)
    except Unreadable:
        return None
    if "<OME" in description:
        return Container(group=group, format="ome_tiff", files=files, looked=content.looked, axes=_axes(description))
    if pages > 1:
        return Container(group=group, format="tiff_stack", files=files, looked=content.looked, note=f"{pages} pages")
    return None


def _pages(path: Path) -> tuple[int, str]:
    from PIL import Image as Pillow

    with Pillow.open(path) as picture:
        tags = getattr(picture, "tag_v2", {})
        return int(getattr(picture, "n_frames", 1)), str(tags.get(_DESCRIPTION, ""))[: 1 << 20]


def _axes(description: str) -> str:
    """The axes that are longer than one, slowest first, such as "TCZYX"; OME writes them fastest first."""
    order = re.search(r'DimensionOrder="([XYZCT]{5})"', description)
    sizes = dict(re.findall(r'Size([XYZCT])="(\d+)"', description))
    return "".join(axis for axis in (order[1] if order else "XYZCT")[::-1] if sizes.get(axis, "1") != "1")
