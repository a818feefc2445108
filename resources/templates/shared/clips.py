"""Frames of clips: `cine.mp4#frames=4` is four evenly spaced frames as the slices of a volume, `cine.mp4#frames=1`, and
`cine.mp4` alone, the middle one as a picture.

The reference works on video containers, on pictures of several pages (GIF, WebP, TIFF) and on DICOM files of several frames. A clip
of fewer frames repeats some, so that every case has as many. A model keeps the number in plan.json (`frames`), and then takes
clips without a reference in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or __package__:
    from . import formats
    from .formats import Image, ImageError
else:  # loaded by its path, for an `images` module that was loaded in the same way
    import sys

    formats = sys.modules[f"{__name__.rsplit('_', 1)[0]}_formats"]
    Image, ImageError = formats.Image, formats.ImageError

VIDEOS = (".mp4", ".avi", ".mov", ".mpeg", ".mpg", ".mkv", ".webm", ".wmv", ".m4v")
SAFELY = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,avi,mpeg,mpegvideo,mpegts,matroska,webm,asf",
}
"""What a video may be, whatever its name: playlists and lists of files name others, which would be opened too."""
MAX_FRAMES = 100_000
MAX_PIXELS = 1 << 26
"""Of one frame."""
_REFERENCE = re.compile(r"(?P<file>.+)#frames=(?P<number>[1-9]\d{0,3})", re.DOTALL)


def parse(path: str) -> tuple[str, int] | None:
    """The file and the number of frames of a reference; None of a plain path."""
    found = _REFERENCE.fullmatch(path)
    return (found["file"], int(found["number"])) if found else None


def frames_of(records: Sequence[Mapping[str, Any]]) -> int | None:
    """Frames a case of an index of clips; None where its images are none. Ends the program for a mixture."""
    found: dict[int | None, Any] = {}
    for record in records:
        path = record["image_path"]
        told = parse(path) if isinstance(path, str) else None
        found.setdefault(told[1] if told else None, path)
    if len(found) > 1:
        told_apart = "; ".join(
            f"{number or 'no number of'} frames ({path})" for number, path in list(found.items())[:3]
        )
        raise SystemExit(f"train.json: every image_path must name as many frames of its clip; found {told_apart}")
    return next(iter(found), None)


def asked(path: str, frames: int | None) -> str:
    """A path as a model takes it that was trained on so many frames of a clip; of other models as it is."""
    return f"{path}#frames={frames}" if frames and "#" not in Path(path).name else path


def chosen(count: int, number: int) -> list[int]:
    """The places of `number` frames out of `count`: the middles of as many equal parts of the clip."""
    return [min(count - 1, (2 * at + 1) * count // (2 * number)) for at in range(number)]


def read(full: str, number: int, kind: str) -> Image:
    """That many frames of a clip: a picture of one, else a volume of as many slices. Raises ImageError.

    Args:
        kind: as `images.kind_of` says.
    """
    if kind == "clip":
        return _volume(_decoded(full, number), "")
    if kind == "picture":
        return _volume(_pages(full, number), "")
    if kind == "dicom":
        image = formats.read_dicom(full)
        planes = [image.array] if image.dims == 2 else list(np.moveaxis(image.array, -1, 0))
        return _volume([planes[at] for at in chosen(len(planes), number)], image.modality)
    raise ImageError(f"{full}: no clip; frames are taken of videos, pictures of several pages, and DICOM files")


def _volume(frames: Sequence[np.ndarray], modality: str) -> Image:
    """Frames (C, H, W) one after the other; grey and colour ones together become colour."""
    if len(frames) == 1:
        return Image(np.ascontiguousarray(frames[0]), None, 2, modality)
    channels = max(frame.shape[0] for frame in frames)
    planes = [np.broadcast_to(frame, (channels, *frame.shape[1:])) for frame in frames]
    return Image(np.stack(planes, axis=-1), None, 3, modality)


def _pages(full: str, number: int) -> list[np.ndarray]:
    from PIL import Image as Pillow

    with Pillow.open(full, formats=formats.PICTURES) as picture:
        found: dict[int, np.ndarray] = {}
        wanted = chosen(getattr(picture, "n_frames", 1), number)
        for at in sorted(set(wanted)):
            picture.seek(at)
            found[at] = formats.picture_array(picture)
    return [found[at] for at in wanted]


def _decoded(full: str, number: int) -> list[np.ndarray]:
    """Frames of a video container, by the places of all that its stream says to hold; where it breaks off before, the
    last that was decoded."""
    wanted = chosen(_count(full), number)
    found: dict[int, np.ndarray] = {}
    last: Any = None
    with _opened(full) as container:
        for at, frame in enumerate(container.decode(container.streams.video[0])):
            last = frame
            if at in wanted:
                found[at] = _array(frame)
            if at >= wanted[-1]:
                break
    if last is None:
        raise ImageError(f"{full}: a clip without a frame")
    ending = _array(last)
    return [found.get(at, ending) for at in wanted]


def _opened(full: str) -> Any:
    try:
        import av
    except ImportError as error:
        raise ImageError(f"{full}: clips need PyAV, which is not installed (pip install av)") from error
    return av.open(full, options=dict(SAFELY))


def _count(full: str) -> int:
    """Frames of the first video stream, which are counted without decoding them."""
    with _opened(full) as container:
        if not container.streams.video:
            raise ImageError(f"{full}: holds no pictures, sound at most")
        stream = container.streams.video[0]
        if stream.codec_context.width * stream.codec_context.height > MAX_PIXELS:
            raise ImageError(
                f"{full}: frames of {stream.codec_context.width} x {stream.codec_context.height} are too large"
            )
        count = 0
        for packet in container.demux(stream):
            count += packet.size > 0
            if count > MAX_FRAMES:
                raise ImageError(f"{full}: more than {MAX_FRAMES:,} frames; cut the clip into parts")
    if not count:
        raise ImageError(f"{full}: a clip without a frame")
    return count


def _array(frame: Any) -> np.ndarray:
    """(C, H, W) uint8; colour with three equal channels is grey."""
    array = frame.to_ndarray(format="rgb24")
    first = array[..., 0]
    if np.array_equal(first, array[..., 1]) and np.array_equal(first, array[..., 2]):
        return np.ascontiguousarray(first[None])
    return np.ascontiguousarray(np.moveaxis(array, -1, 0))
