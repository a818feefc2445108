"""Clips: their frames, size and speed, where a reader of videos is there; pictures of several frames are clips too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.pixels import Values
from m3b.data.reading import shared
from m3b.data.survey.samples import FileSample


def look_at_video(path: Path) -> FileSample:
    """Frames, rows and columns of one clip, from its container and its first frame."""
    try:
        if not path.is_file():
            return FileSample("special")
        if not path.stat().st_size:
            return FileSample("empty")
        if path.suffix.lower() in (".gif", ".webp"):
            return attempt(lambda: _animation(path), path)
        if find_spec("av") is None:
            return FileSample("no_reader")
        return attempt(lambda: _clip(path), path)
    except Unreadable as error:
        return FileSample(error.code)


def _animation(path: Path) -> FileSample:
    from PIL import Image as Pillow

    with Pillow.open(path) as picture:
        channels = 3 if picture.mode in ("RGB", "RGBA", "P") else 1
        frames = int(getattr(picture, "n_frames", 1))
        return FileSample(
            "", (picture.height, picture.width), channels, frames, 2, "uint8", values=Values("picture", 0, 255)
        )


def _clip(path: Path) -> FileSample:
    import av

    with av.open(str(path), options=dict(shared().clips.SAFELY)) as container:
        if not container.streams.video:
            return FileSample("no_pixels")
        stream = container.streams.video[0]
        frame: Any = next(container.decode(stream))
        values = frame.to_ndarray(format="rgb24")
        grey = bool((values[..., 0] == values[..., 1]).all() and (values[..., 0] == values[..., 2]).all())
        return FileSample(
            "", (int(frame.height), int(frame.width)), 1 if grey else 3, _frames(stream, container), 2, "uint8",
            values=Values("picture", float(values.min()), float(values.max())),
        )  # fmt: skip


def _frames(stream: Any, container: Any) -> int:
    """The number of frames as the container says, or by its length and speed; 2 where it says nothing of either."""
    if stream.frames:
        return int(stream.frames)
    if stream.duration and stream.time_base and stream.average_rate:
        return max(int(stream.duration * stream.time_base * stream.average_rate), 1)
    if container.duration and stream.average_rate:
        return max(int(container.duration / 1_000_000 * stream.average_rate), 1)
    return 2
