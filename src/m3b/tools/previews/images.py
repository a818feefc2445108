"""Pictures, volumes, clips and Parquet tables with images: what `m3b.dataset.formats` says about their header and values."""

from __future__ import annotations

from pathlib import Path

from m3b.data.phi import Phi
from m3b.dataset.formats import ImageInfo, describe_file, get_format, probe_image
from m3b.errors import DataError
from m3b.facts import FileSummary, PictureSummary, VolumeSummary
from m3b.tools.previews.lines import Lines


def preview(path: Path, phi: Phi) -> list[str]:
    """Return lines about an image file, with a summary of a file that is one image.

    Raises:
        DataError: it cannot be read; the message leaves out its path, which the caller knows by the agent's name.
    """
    try:
        lines = describe_file(path).splitlines()
        if get_format(path).is_container:
            return lines
        return Lines(lines, _summarize(path, probe_image(str(path))))
    except DataError as error:
        raise DataError(str(error).removeprefix(f"{path}: ").replace(f"{path.parent}/", "")) from None


def _summarize(path: Path, info: ImageInfo) -> FileSummary:
    """Return the facts of a header; sizes of a volume are those of the file's own axes."""
    grid = get_format(path).file_grid(path)
    if grid is not None:
        affine, sizes = grid
        spacing = tuple(float((affine[:3, axis] ** 2).sum() ** 0.5) for axis in range(3))
        return VolumeSummary(
            shape=(*sizes, info.frames) if info.frames > 1 else sizes, spacing=spacing, dtype=info.dtype
        )
    if info.dims == 3 and info.frames == 1:
        return VolumeSummary(shape=info.shape, spacing=info.spacing or (), dtype=info.dtype)
    return PictureSummary(width=info.shape[1], height=info.shape[0], frames=info.frames, mode=info.photometric)
