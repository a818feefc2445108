"""Text that is burnt into pixels, read by RapidOCR (extra `ocr`): where it stands, and whether it looks like identity.

The models come with the package; nothing is downloaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from m3b.data.persons import find
from m3b.data.phi_values import is_full_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

Identity = Literal["name", "date", "number", ""]
MIN_SIDE_PX = 64
"""Shorter side of the smallest picture that is searched: a line of text needs about so much."""
TILE_PX, OVERLAP_PX, MAX_ENLARGEMENT = 640, 128, 2
"""Side of the tiles that are searched, by how much they overlap, and the factor by which small pictures are enlarged."""
MAX_SIDE_PX = 2048
"""Longer side to which larger pictures are reduced."""
_DATE = re.compile(
    r"(?<!\d)(?:\d{1,2}[./-]\d{1,2}[./-](?:19|20)?\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2}"
    r"|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|\d{1,2}[ .-]?[A-Za-z]{3,9}[ .,-]{0,2}(?:19|20)\d\d)(?!\d)"
)
_LABEL = re.compile(r"\b(?:patient|pat|name|dob|mrn|born|geb|pid|accession)\b|\bid\s*[:#.]?\s*\d", re.I)
_NUMBER = re.compile(r"(?<![\d.,])\d{6,16}(?![\d.,])")
_CARET = re.compile(r"[^\W\d_]{2,}\^[^\W\d_]{2,}")
_MARKER = re.compile(
    r"(?:[LRAPHFSI]|left|right|supine|prone|erect|portable|\d{1,3}([.,]\d{1,2})?\s*(?:mm|cm|m)?)", re.I
)
"""Markers of a side or posture, and the numbers of a scale bar."""


@dataclass(frozen=True)
class PixelText:
    """A line of text in a picture.

    Args:
        box: top, left, bottom, right in pixels.
    """

    text: str
    box: tuple[int, int, int, int]

    @property
    def identity(self) -> Identity:
        """What of a person it looks like; empty for markers, scales and other words."""
        return classify_identity(self.text)

    @property
    def is_marker(self) -> bool:
        """Whether it only marks a side, a posture or a length."""
        return _MARKER.fullmatch(self.text.strip()) is not None


def is_ocr_installed() -> bool:
    """Return whether text in pixels can be read."""
    return find_spec("rapidocr") is not None


def classify_identity(text: str) -> Identity:
    """Return what of a person a text looks like: a name (or its label), a date, or a record number."""
    if _DATE.search(text):
        return "date"
    if _LABEL.search(text) or _CARET.search(text) or is_full_name(text) or any(e.kind == "name" for e in find(text)):
        return "name"
    return "number" if _NUMBER.search(text) else ""


def find_pixel_texts(picture: Picture) -> list[PixelText]:
    """Return the lines of text in a picture (H, W, 3). The extra `ocr` must be installed.

    Large pictures are searched in overlapping tiles, since the detector misses small text in them; a line that lies in
    two tiles may be found twice.
    """
    import numpy as np
    from PIL import Image

    rows, columns = picture.shape[:2]
    if min(rows, columns) < MIN_SIDE_PX:
        return []
    scale = min(max(1.0, min(MAX_ENLARGEMENT, TILE_PX / max(rows, columns))), MAX_SIDE_PX / max(rows, columns))
    size = (round(columns * scale), round(rows * scale))
    pixels = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC))
    texts = []
    for y in range(0, max(1, pixels.shape[0] - OVERLAP_PX), TILE_PX - OVERLAP_PX):
        for x in range(0, max(1, pixels.shape[1] - OVERLAP_PX), TILE_PX - OVERLAP_PX):
            result = _load_engine()(np.ascontiguousarray(pixels[y : y + TILE_PX, x : x + TILE_PX]))
            for text, corners in zip(result.txts or (), () if result.boxes is None else result.boxes, strict=True):
                points = np.add(corners, (x, y)) / scale
                (left, top), (right, bottom) = np.floor(points.min(axis=0)), np.ceil(points.max(axis=0))
                box = (max(int(top), 0), max(int(left), 0), min(int(bottom), rows), min(int(right), columns))
                texts.append(PixelText(text, box))
    return texts


@cache
def _load_engine() -> Any:
    from rapidocr import RapidOCR

    settings = {
        "Global.log_level": "critical",
        "Global.use_cls": False,
        "Det.limit_type": "min",
        "Det.limit_side_len": MIN_SIDE_PX,
        "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }
    return RapidOCR(params=settings)


def to_text_picture(array: NDArray[Any]) -> Picture:
    """Return (C, H, W[, D]) as uint8 (H, W, 3) for the search: colours as they are, else the first channel from its lowest to
    its highest value; the middle slice of a volume."""
    import numpy as np

    plane = array[..., array.shape[-1] // 2] if array.ndim == 4 else array
    if plane.dtype == np.uint8 and plane.shape[0] == 3:
        return np.ascontiguousarray(np.moveaxis(plane, 0, -1))
    grey = np.nan_to_num(plane[0].astype(np.float32))
    low, high = float(grey.min()), float(grey.max())
    scaled = ((grey - low) / max(high - low, 1e-6) * 255).astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=-1)
