"""A case as layers for a viewer: its image, the reference and the prediction, on one grid.

`READ_CASE_JOB` runs in the reader process, since images and masks are untrusted. Volumes are NIfTI files, whose display
range is set; pictures are PNG files, the masks on them with a transparent background.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.data import kinds
from m3b.data.index import Index, Record, read_index
from m3b.errors import DataError
from m3b.isolation.reader import WorkerJob
from m3b.isolation.reader.base64_bytes import Blob
from m3b.models.predictions import Prediction
from m3b.models.thresholds import DEFAULT_BOX_SCORE

if TYPE_CHECKING:
    import numpy as np

    from m3b.models.overlay import DrawnBox

MAX_VOXELS = 2**24
"""Maximum voxels of a volume that is shown; a larger one is thinned out."""
MAX_SIDE_PX = 2048
"""Longest side of a picture that is shown; a larger one is scaled."""
MAX_FRAMES = 48
"""Maximum number of frames or views that are shown, evenly spaced."""
FILL_ALPHA, OUTLINE_ALPHA = 110, 255
REFERENCE, PREDICTION = "reference", "prediction"
OUTLINE, FILL, BOTH = "outline", "fill", "both"


@dataclass(frozen=True)
class LayersRequest:
    """The case of a locked index to read.

    Args:
        locked: the folder of the index; paths of the index are relative to it.
        key: of the case.
        answer: the prediction; its mask files are read.
        channel: number of the channel that is shown, if the image is no colour picture.
    """

    locked: Path
    task: str
    key: str
    answer: Prediction | None = None
    channel: int = 0


@dataclass(frozen=True)
class MaskLayer:
    """Masks of one source (`reference` or `prediction`): a label volume, or a PNG of the class with the number `label`."""

    source: str
    content: Blob
    label: int = 0


@dataclass(frozen=True)
class PictureBox:
    """A box on a picture: left, top, right and bottom as shares of its sides; no score if it is a reference."""

    source: str
    label: int
    corners: tuple[float, float, float, float]
    score: float | None = None


@dataclass(frozen=True)
class LayeredImage:
    """A volume (NIfTI, compressed by gzip), or one picture (PNG), with what lies on it.

    Args:
        size: of the volume or picture as it is shown.
        is_oriented: whether the axes of the volume are anatomical.
        centre: of what is marked on a volume, else of the volume, in mm of NIfTI (to the right, front and head).
    """

    title: str
    content: Blob
    is_volume: bool
    size: tuple[int, ...]
    is_oriented: bool = False
    centre: tuple[float, ...] = ()
    layers: list[MaskLayer] = field(default_factory=list)
    boxes: list[PictureBox] = field(default_factory=list)


@dataclass(frozen=True)
class CaseLayers:
    """A case for a viewer.

    Args:
        images: one volume, or pictures: one, the frames of a clip, or the views of a study.
        legend: each class and its colour as `#rrggbb`; the number of a class in a label volume is its place from 1.
        channels: names of the channels of which one is shown; empty if there is one.
        notes: sentences on what is shown otherwise than it is stored, or cannot be shown.
        text: the report of the case.
        labels: what is known of the case, in words.
    """

    images: list[LayeredImage] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    text: str = ""
    labels: str = ""


READ_CASE_JOB = WorkerJob("m3b.models.case_layers:read_case", LayersRequest, CaseLayers, 120.0)


def read_case(request: LayersRequest) -> CaseLayers:
    """Worker job: read a case of a locked index as layers. Raises DataError."""
    from m3b.models.example_images import format_labels
    from m3b.models.overlay import make_legend

    index = read_index(request.locked, request.task)
    record = next((item for item in index.records if item.key == request.key), None)
    if record is None:
        raise DataError("The index has no such case.")
    notes: list[str] = []
    images: list[LayeredImage] = []
    channels = list(record.channels)
    try:
        images, n_channels = _read_images(record, index, request, notes)
        if not channels and n_channels > 1:
            channels = [f"channel {number + 1}" for number in range(n_channels)]
    except (DataError, ValueError, OSError, MemoryError) as error:
        notes.append(f"The image cannot be shown: {_to_line(error)}")
    notes = [note.replace(f"{request.locked}/", "") for note in notes]
    has_marks = index.masked or any(item.boxes for item in index.records)
    text = record.report.text if record.report is not None else ""
    return CaseLayers(
        images, make_legend(index) if has_marks else [], channels, notes, text, format_labels(record, index.classes)
    )


def _read_images(
    record: Record, index: Index, request: LayersRequest, notes: list[str]
) -> tuple[list[LayeredImage], int]:
    """Return the images, and the number of grey channels of which one is shown."""
    from m3b.dataset.reading import geometry, read_image, read_overview

    base = str(request.locked)
    if kinds.separate(record, index.task):
        views = record.images[:MAX_FRAMES]
        if len(views) < len(record.images):
            notes.append(f"{len(views)} of {len(record.images)} views are shown.")
        pictures = [_read_view(path, base, f"view {number} of {len(views)}") for number, path in enumerate(views, 1)]
        return pictures, 1
    path = record.reference
    is_marked = index.masked or record.boxes is not None
    image = (read_image if is_marked else read_overview)(path, base)
    shape = image.array.shape[1:]
    sources = _read_sources(record, index, request, shape, notes)
    array, is_colour = image.array, _is_colour(image.array)
    if not is_colour:
        channel = min(max(request.channel, 0), len(array) - 1)
        array = array[channel : channel + 1]
    if len(shape) == 3 and not is_colour:
        affine = geometry(path, base).affine
        volume = _make_volume(array[0], affine, image.spacing, image.modality, sources, notes)
        return [volume], len(image.array)
    return _make_pictures(array, image.modality, sources, notes), 1 if is_colour else len(image.array)


def _is_colour(array: np.ndarray) -> bool:
    return bool(array.dtype.name == "uint8" and len(array) == 3)


def _read_view(path: str, base: str, title: str) -> LayeredImage:
    from m3b.dataset.reading import read_overview
    from m3b.models.overlay import to_display_rgb

    image = read_overview(path, base)
    array = image.array if image.array.ndim == 3 else image.array[..., image.array.shape[-1] // 2]
    content, size = _encode_png(to_display_rgb(array, image.modality))
    return LayeredImage(title, content, False, size)


@dataclass(frozen=True)
class _Marks:
    """Masks (K, ...) and boxes of one source."""

    source: str
    masks: np.ndarray
    boxes: Sequence[DrawnBox]


def _read_sources(
    record: Record, index: Index, request: LayersRequest, shape: tuple[int, ...], notes: list[str]
) -> list[_Marks]:
    """Return the marks of the reference and of the prediction; what cannot be read is left out with a note."""
    import numpy as np

    from m3b.dataset.reading import boxes_to_array
    from m3b.models.case_pictures import read_answer_masks
    from m3b.models.overlay import DrawnBox, read_true_masks

    base, path, answer, marks = str(request.locked), record.reference, request.answer, []
    try:
        masks = np.concatenate(read_true_masks(record, index.values if index.masked else {}, base, shape))
        boxes = [
            DrawnBox(boxes_to_array(box.box, path, base), index.classes.index(box.label)) for box in record.boxes or ()
        ]
        if masks.shape[1:] != shape:
            raise DataError(f"the mask has the shape {masks.shape[1:]}, the image {shape}")
        marks.append(_Marks(REFERENCE, masks, boxes))
    except (DataError, ValueError, OSError) as error:
        notes.append(f"The reference cannot be shown: {_to_line(error)}")
    if answer is None:
        return marks
    try:
        masks = read_answer_masks(answer, index, shape, base, path)
        if masks.shape[1:] != shape:
            raise DataError(f"the mask has the shape {masks.shape[1:]}, the image {shape}")
        shown = [box for box in answer.boxes or () if box.score >= DEFAULT_BOX_SCORE and box.label in index.classes]
        if answer.boxes and (n_hidden := len(answer.boxes) - len(shown)):
            notes.append(f"{n_hidden} predicted boxes with a score below {DEFAULT_BOX_SCORE:g} are not shown.")
        boxes = [
            DrawnBox(boxes_to_array(box.box, path, base), index.classes.index(box.label), box.score) for box in shown
        ]
        marks.append(_Marks(PREDICTION, masks, boxes))
    except (DataError, ValueError, OSError) as error:
        notes.append(f"The prediction cannot be shown: {_to_line(error)}")
    return marks


def _to_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- volumes -------------------------------------------------------------------------------------------------------


def _make_volume(
    grey: np.ndarray,
    affine: np.ndarray | None,
    spacing: Sequence[float] | None,
    modality: str,
    sources: Sequence[_Marks],
    notes: list[str],
) -> LayeredImage:
    import numpy as np

    from m3b.dataset.formats.geometry import RAS_TO_LPS
    from m3b.models.overlay import choose_display_range, find_centre

    steps = choose_steps(grey.shape)
    if max(steps) > 1:
        notes.append(
            f"The volume has {' x '.join(map(str, grey.shape))} voxels; every {' x '.join(map(str, steps))}th is shown."
        )
    thinned = tuple(slice(None, None, step) for step in steps)
    if affine is None:
        row, column, plane = spacing if spacing and len(spacing) == 3 else (1.0, 1.0, 1.0)
        grid = np.array([[0, column, 0, 0], [row, 0, 0, 0], [0, 0, plane, 0], [0, 0, 0, 1]], float)
        notes.append("The file does not say how its axes lie in the body.")
    else:
        grid = np.asarray(affine, float)
    grid = grid @ np.diag([*steps, 1.0])
    shown = np.nan_to_num(grey[thinned])
    content = _encode_nifti(_to_small_type(shown), grid, choose_display_range(shown.astype(np.float32), modality))
    has_prediction = any(marks.source == PREDICTION and (len(marks.masks) or marks.boxes) for marks in sources)
    layers = []
    for marks in sources:
        outline = marks.source == REFERENCE and has_prediction
        volumes = _make_label_volumes(marks, grey.shape, thinned, outline)
        layers += [MaskLayer(marks.source, _encode_nifti(labels, grid, (0, 255))) for labels in volumes]
    guide = next((marks for marks in sources if marks.masks.any() or marks.boxes), None)
    masks, boxes = (guide.masks, guide.boxes) if guide else (np.zeros((0, *grey.shape), bool), ())
    voxel = np.array(find_centre(masks, boxes, grey.shape)) // steps
    centre = tuple(float(value) for value in (RAS_TO_LPS @ grid @ [*voxel, 1.0])[:3])
    return LayeredImage("", content, True, shown.shape, affine is not None, centre, layers)


def choose_steps(shape: Sequence[int]) -> tuple[int, ...]:
    """Return every how many voxels one is shown along each axis, the longest axes thinned out first."""
    import math

    steps = [1] * len(shape)
    while math.prod(-(-size // step) for size, step in zip(shape, steps, strict=True)) > MAX_VOXELS:
        longest = max(range(len(shape)), key=lambda axis: shape[axis] / steps[axis])
        steps[longest] += 1
    return tuple(steps)


def _to_small_type(array: np.ndarray) -> np.ndarray:
    """Return whole numbers as 16 bits if they fit, other numbers as 32 bits."""
    import numpy as np

    if array.dtype.name == "uint8":
        return array
    if array.size and array.min() >= -(2**15) and array.max() < 2**15 and np.array_equal(array, np.round(array)):
        return array.astype(np.int16)
    return array.astype(np.float32)


def _make_label_volumes(
    marks: _Marks, shape: Sequence[int], thinned: tuple[slice, ...], is_outline: bool
) -> list[np.ndarray]:
    """Return volumes with the class number from 1 in its voxels; one, or one a class if classes overlap."""

    masks = [mask[thinned] for mask in marks.masks]
    volumes: list[np.ndarray] = []
    for number, mask in enumerate(masks, 1):
        drawn = mask & ~_erode_slices(mask) if is_outline else mask
        _paint_labels(volumes, drawn, number)
    size = tuple(-(-length // (part.step or 1)) for length, part in zip(shape, thinned, strict=True))
    for box in marks.boxes:
        _paint_labels(volumes, _draw_box_walls(box, size, [part.step or 1 for part in thinned]), box.class_index + 1)
    return [volume for volume in volumes if volume.any()]


def _paint_labels(volumes: list[np.ndarray], mask: np.ndarray, number: int) -> None:
    """Paint a mask into the first volume in which it covers nothing of another class."""
    import numpy as np

    for volume in volumes:
        covered = volume[mask]
        if not ((covered != 0) & (covered != number)).any():
            volume[mask] = number
            return
    volumes.append(np.where(mask, number, 0).astype(np.uint8))


def _draw_box_walls(box: DrawnBox, shape: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """Return the walls of a box in the planes of slices."""
    import numpy as np

    low, high = [], []
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        start = min(max(int(box.box[axis] / step), 0), size - 1)
        low.append(start)
        high.append(min(max(int(np.ceil(box.box[axis + 3] / step)), start + 1), size))
    walls = np.zeros(tuple(shape), bool)
    walls[low[0] : high[0], low[1] : high[1], low[2] : high[2]] = True
    walls[low[0] + 1 : high[0] - 1, low[1] + 1 : high[1] - 1, low[2] : high[2]] = False
    return walls


def _erode_slices(mask: np.ndarray) -> np.ndarray:
    """Return the voxels of a mask whose four neighbours in the same slice all belong to it."""
    import numpy as np

    inner: np.ndarray = mask.copy()
    for axis in (0, 1):
        for shift in (1, -1):
            neighbour = np.roll(mask, shift, axis)
            edge = [slice(None)] * mask.ndim
            edge[axis] = slice(0, 1) if shift == 1 else slice(-1, None)
            neighbour[tuple(edge)] = False
            inner &= neighbour
    return inner


def _encode_nifti(array: np.ndarray, affine: np.ndarray, display_range: tuple[float, float]) -> bytes:
    """Return a compressed NIfTI file.

    Args:
        affine: from voxels to mm in LPS.
    """
    import nibabel
    import numpy as np

    from m3b.dataset.formats.geometry import RAS_TO_LPS

    image: Any = nibabel.Nifti1Image(np.ascontiguousarray(array), RAS_TO_LPS @ affine)
    image.header["cal_min"], image.header["cal_max"] = display_range
    return gzip.compress(image.to_bytes(), compresslevel=1, mtime=0)


# --- pictures ------------------------------------------------------------------------------------------------------


def _make_pictures(array: np.ndarray, modality: str, sources: Sequence[_Marks], notes: list[str]) -> list[LayeredImage]:
    """Return a picture, or the frames of a clip."""
    import numpy as np

    from m3b.models.overlay import to_display_rgb

    picture = to_display_rgb(array, modality)
    if picture.ndim == 3:
        return [_make_picture("", picture, sources, notes)]
    n_frames = picture.shape[2]
    numbers = np.unique(np.linspace(0, n_frames - 1, min(n_frames, MAX_FRAMES)).round().astype(int))
    if len(numbers) < n_frames:
        notes.append(f"{len(numbers)} of {n_frames} frames are shown, evenly spaced.")
    frames = []
    for number in map(int, numbers):
        marks = [
            _Marks(
                item.source,
                item.masks[..., number],
                [box for box in item.boxes if box.box[2] < number + 1 and box.box[5] > number],
            )
            for item in sources
        ]
        frames.append(_make_picture(f"frame {number + 1} of {n_frames}", picture[:, :, number], marks, notes))
    return frames


def _make_picture(title: str, picture: np.ndarray, sources: Sequence[_Marks], notes: list[str]) -> LayeredImage:
    height, width = picture.shape[:2]
    content, size = _encode_png(picture)
    note = f"The picture has {width} x {height} pixels; it is shown with {size[0]} x {size[1]}."
    if size != (width, height) and note not in notes:
        notes.append(note)
    has_prediction = any(marks.source == PREDICTION and len(marks.masks) for marks in sources)
    layers, boxes = [], []
    for marks in sources:
        style = BOTH if not has_prediction else OUTLINE if marks.source == REFERENCE else FILL
        layers += [
            MaskLayer(marks.source, _paint_mask(mask, number, size, style), number)
            for number, mask in enumerate(marks.masks)
            if mask.any()
        ]
        for box in marks.boxes:
            top, left, bottom, right = (*box.box[:2], *box.box[len(box.box) // 2 :][:2])
            corners = (left / width, top / height, right / width, bottom / height)
            boxes.append(PictureBox(marks.source, box.class_index, corners, box.score))
    return LayeredImage(title, content, False, size, layers=layers, boxes=boxes)


def _encode_png(picture: np.ndarray) -> tuple[bytes, tuple[int, int]]:
    """Return a PNG and its width and height, at most `MAX_SIDE_PX`."""
    from PIL import Image

    image = Image.fromarray(picture)
    if max(image.size) > MAX_SIDE_PX:
        scale = MAX_SIDE_PX / max(image.size)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.BILINEAR)
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue(), image.size


def _paint_mask(mask: np.ndarray, number: int, size: tuple[int, int], style: str) -> bytes:
    """Return a PNG of a class in its colour: its outline, a fill that can be seen through, or both."""
    import numpy as np
    from PIL import Image

    from m3b.models.overlay import class_colour, mask_outline

    painted = np.zeros((size[1], size[0], 4), np.uint8)
    scaled = np.array(Image.fromarray(mask.astype(np.uint8)).resize(size, Image.Resampling.NEAREST)) > 0
    if style != OUTLINE:
        painted[scaled] = (*class_colour(number), FILL_ALPHA)
    if style != FILL:
        painted[mask_outline(scaled)] = (*class_colour(number), OUTLINE_ALPHA)
    stream = io.BytesIO()
    Image.fromarray(painted).save(stream, "PNG", compress_level=1)
    return stream.getvalue()
