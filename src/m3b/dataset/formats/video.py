"""Video clips with PyAV: the middle frame as a picture, `#frames=N` evenly spaced frames as the slices of a volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .base import (
    Format,
    Image,
    ImageInfo,
    check_memory,
    load_library,
    naming_file,
    parse_number,
    spread_frames,
    stack_frames,
)
from .errors import DataError

CONTAINER_OPTIONS = {
    "protocol_whitelist": "file",
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,avi,mpeg,mpegvideo,mpegts,matroska,webm,asf",
}
"""What a video may be, whatever its name: playlists and lists of files name others, which would be opened too."""
MAX_FRAMES = 100_000
CODEC_ROUNDING = 6
"""Levels by which the channels of a grey pixel differ at most after a codec, which stores brightness and two colours apart."""
MAX_COLOURED_SHARE = 0.001
"""Share of a frame's pixels that may differ more, and the frame is grey still."""


class Video(Format):
    """A clip. Fewer frames than asked for are repeated, so that every case has as many."""

    name = "video"
    suffixes = (".mp4", ".avi", ".mov", ".mpeg", ".mpg", ".mkv", ".webm", ".wmv", ".m4v")
    magic = ((4, b"ftypisom"), (4, b"ftypmp42"), (4, b"ftypqt"), (0, b"\x1aE\xdf\xa3"), (8, b"AVI "))

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with naming_file(path), _open_video(path) as container:
            stream = _video_stream(path, container)
            part = parse_number(path, item, ("frames", "frame"))
            frames = part[1] if part and part[0] == "frames" else 1
            sides = (int(stream.codec_context.height), int(stream.codec_context.width))
            shape = (*sides, frames) if frames > 1 else sides
            count = _count_frames(path, container, stream)
            return ImageInfo(self.name, shape, 3, "uint8", len(shape), bits_stored=8, stored_range=(0.0, 255.0), frames=count,
                             lossy=True)  # fmt: skip

    def read(self, path: Path, item: str = "") -> Image:
        with naming_file(path):
            with _open_video(path) as container:
                stream = _video_stream(path, container)
                check_memory(path, (stream.codec_context.height, stream.codec_context.width, 3), 1)
                count = _count_frames(path, container, stream)
            part = parse_number(path, item, ("frames", "frame")) or ("frames", 1)
            if part[0] == "frame" and part[1] >= count:
                raise DataError(f"{path}#{item}: the clip has {count} frames, counted from 0")
            places = [part[1]] if part[0] == "frame" else spread_frames(count, max(1, part[1]))
            return stack_frames(_decode_frames(path, places))


def _open_video(path: Path) -> Any:
    av = load_library(path, "av", "av")
    return av.open(str(path), options=dict(CONTAINER_OPTIONS))


def _video_stream(path: Path, container: Any) -> Any:
    if not container.streams.video:
        raise DataError(f"{path}: holds no pictures, sound at most")
    return container.streams.video[0]


def _count_frames(path: Path, container: Any, stream: Any) -> int:
    """Return the frames of a stream, counted without decoding them."""
    count = 0
    for packet in container.demux(stream):
        count += packet.size > 0
        if count > MAX_FRAMES:
            raise DataError(f"{path}: more than {MAX_FRAMES:,} frames; cut the clip into parts")
    if not count:
        raise DataError(f"{path}: a clip without a frame")
    return count


def _decode_frames(path: Path, places: list[int]) -> list[np.ndarray]:
    """Return frames by their places; where the clip breaks off before, the last one that was decoded."""
    decoded: dict[int, np.ndarray] = {}
    last: Any = None
    with _open_video(path) as container:
        for place, frame in enumerate(container.decode(container.streams.video[0])):
            last = frame
            if place in places:
                decoded[place] = _frame_array(frame)
            if place >= places[-1]:
                break
    if last is None:
        raise DataError(f"{path}: a clip without a frame")
    ending = _frame_array(last)
    return [decoded.get(place, ending) for place in places]


def _frame_array(frame: Any) -> np.ndarray:
    """Return (C, H, W) uint8; colour with three equal channels is grey, as far as a codec keeps them equal."""
    array = np.ascontiguousarray(np.moveaxis(frame.to_ndarray(format="rgb24"), -1, 0))
    differing = np.count_nonzero(array.max(axis=0) - array.min(axis=0) > CODEC_ROUNDING)
    if differing <= MAX_COLOURED_SHARE * array[0].size:
        grey: np.ndarray = np.rint(array.mean(axis=0, keepdims=True)).astype(np.uint8)
        return grey
    return array


FORMATS = (Video(),)
