"""Pictures that Pillow decodes: PNG, JPEG, JPEG 2000, BMP, WebP, GIF, AVIF and PNM."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .base import (
    MAX_DECODED_BYTES,
    Format,
    FormatNote,
    Image,
    ImageInfo,
    Mask,
    check_memory,
    labels_from_image,
    merge_equal_channels,
    naming_file,
    parse_number,
    smallest_label_type,
    spread_frames,
    stack_frames,
    turn_upright,
)
from .description import MAX_COLOURS, MAX_DESCRIBED_BYTES, describe_pixels, describe_values
from .errors import DataError

TAIL_BYTES = 1 << 16
"""Bytes at the end of a file among which its end mark must be; some cameras append a preview after it."""


MODES = {"1": "1-bit", "L": "8-bit grey", "LA": "8-bit grey with alpha", "P": "8-bit palette", "RGB": "8-bit RGB",
         "RGBA": "8-bit RGB with alpha", "CMYK": "8-bit CMYK", "I": "32-bit integer grey", "I;16": "16-bit grey",
         "I;16B": "16-bit grey", "F": "32-bit float grey"}  # fmt: skip
"""Pillow's names of pixels, in words."""


def describe_picture(kind: str, width: int, height: int, pixels: str, orientation: int, frames: int) -> str:
    """Return the line about a picture: sides as stored, and as EXIF turns them."""
    line = f"{kind} picture, width {width} x height {height} px, {pixels}"
    if orientation > 1:
        width, height = (height, width) if orientation >= 5 else (width, height)
        line += f", EXIF orientation {orientation}: turned when read, to width {width} x height {height} px"
    return line + (f", {frames} frames" if frames > 1 else "")


def exif_orientation(picture: Any) -> int:
    """Return how a Pillow picture is to be turned for display, 1 (as stored) to 8 (EXIF 2.32, tag 0x0112).

    1 too if the tag is missing or damaged, as the pixels may be whole.
    """
    try:
        value = picture.getexif().get(0x0112, 1)
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, struct.error):
        return 1
    return int(value) if value in range(1, 9) else 1


class PictureFormat(Format):
    """A picture format of Pillow; `pillow` names its decoders, since others of Pillow would start other programs."""

    pillow: ClassVar[tuple[str, ...]] = ()
    end_mark: ClassVar[bytes] = b""
    """Bytes that end a complete file."""

    @contextmanager
    def open_picture(self, path: Path) -> Iterator[Any]:
        """Open the header with Pillow, and refuse a picture that is too large for the memory."""
        from PIL import Image as Pillow

        Pillow.MAX_IMAGE_PIXELS = MAX_DECODED_BYTES // 2  # Pillow refuses twice as many
        with naming_file(path), Pillow.open(path, formats=self.pillow) as picture:
            check_memory(path, (picture.height, picture.width, len(picture.getbands())), 1)
            yield picture

    def probe(self, path: Path, item: str = "") -> ImageInfo:
        with self.open_picture(path) as picture:
            orientation = exif_orientation(picture)
            sides = (picture.height, picture.width)
            sides = sides[::-1] if orientation >= 5 else sides
            pages = int(getattr(picture, "n_frames", 1))
            part = parse_number(path, item, ("frames", "frame"))
            frames = pages if part is None else part[1] if part[0] == "frames" else 1
            channels, dtype, bits = self.stored_type(path, picture)
            return ImageInfo(
                self.name,
                (*sides, frames) if frames > 1 else sides,
                channels,
                dtype,
                3 if frames > 1 else 2,
                bits_stored=bits,
                stored_range=(0.0, 255.0) if dtype == "uint8" else None,
                photometric=picture.mode,
                frames=pages,
                orientation=orientation,
                lossy=self.is_lossy(path, picture),
                notes=self.end_notes(path),
            )

    def stored_type(self, path: Path, picture: Any) -> tuple[int, str, int | None]:
        """Return channels, dtype and bits of the pixels as `read` gives them."""
        mode = picture.mode
        if mode.startswith("I;16"):
            return 1, "uint16", 16
        if mode in ("I", "F"):
            return 1, "int32" if mode == "I" else "float32", None
        return (1 if mode in ("1", "L", "LA", "La") else 3), "uint8", 8

    def is_lossy(self, path: Path, picture: Any) -> bool:
        """Return whether the compression changes values, so that labels may have noise."""
        return False

    def end_notes(self, path: Path) -> tuple[FormatNote, ...]:
        """Return a note if the file ends before its end mark."""
        if not self.end_mark:
            return ()
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return () if self.end_mark in file.read() else (FormatNote("truncated", {"bytes": size}),)

    def read(self, path: Path, item: str = "") -> Image:
        with self.open_picture(path) as picture:
            orientation = exif_orientation(picture)
            pages = int(getattr(picture, "n_frames", 1))
            places = self.chosen_frames(path, item, pages)
            if len(places) == 1:
                picture.seek(places[0])
                array = turn_upright(self.decode(path, picture), orientation)
                return Image(array, None, 2, stored_range=self.value_range(path, array), orientation=orientation)
            check_memory(path, (picture.height, picture.width, len(set(places)), 3), 1)
            decoded = {}
            for place in sorted(set(places)):
                picture.seek(place)
                decoded[place] = turn_upright(self.decode(path, picture), orientation)
            shapes = {frame.shape[1:] for frame in decoded.values()}
            if len(shapes) > 1:
                raise DataError(f"{path}: its {len(decoded)} pages differ in size: {sorted(shapes)[:4]}")
            return stack_frames([decoded[place] for place in places])

    def chosen_frames(self, path: Path, item: str, pages: int) -> list[int]:
        """Return the places of the frames that an item names; all without one."""
        part = parse_number(path, item, ("frames", "frame"))
        if part is None:
            return list(range(pages))
        if part[0] == "frames":
            return spread_frames(pages, max(1, part[1]))
        if part[1] >= pages:
            raise DataError(f"{path}#{item}: the file has {pages} frames, counted from 0")
        return [part[1]]

    def decode(self, path: Path, picture: Any) -> np.ndarray:
        """Return the current frame as (C, H, W): without transparency, palettes looked up, equal channels merged."""
        mode = picture.mode
        if mode in ("1", "LA", "La"):
            picture = picture.convert("L")
        elif mode not in ("L", "RGB", "I", "F") and not mode.startswith("I;"):
            picture = picture.convert("RGB")
        return channels_first(np.array(picture))

    def describe(self, path: Path) -> str:
        with self.open_picture(path) as picture:
            width, height, mode = picture.width, picture.height, picture.mode
            frames, orientation = int(getattr(picture, "n_frames", 1)), exif_orientation(picture)
            kind = picture.format
            used_colours = _palette_colours(picture, np.array(picture)) if mode == "P" and frames == 1 else {}
        info = self.probe(path)
        words = "16-bit RGB" if info.dtype == "uint16" and info.channels == 3 else MODES.get(mode, mode)
        line = describe_picture(kind, width, height, words, orientation, frames)
        lines = [", ".join([line, *map(str, info.notes)])]
        if used_colours and len(used_colours) <= MAX_COLOURS:
            colours = ", ".join(f"{index} {colour}" for index, colour in used_colours.items())
            return "\n".join([*lines, f"palette: {describe_values(self.read_labels(path).array)}; colours {colours}"])
        item = "frame=0" if frames > 1 else ""
        need = width * height * info.channels * np.dtype(info.dtype).itemsize
        if need > MAX_DESCRIBED_BYTES:
            return "\n".join([*lines, "pixels not read: the picture is too large"])
        array = self.read(path, item).array
        lines.append(("first frame: " if frames > 1 else "") + describe_pixels(array))
        if info.channels == 3 and array.shape[0] == 1:
            lines.append("the three channels are equal: a grey picture stored as RGB")
        return "\n".join(lines)

    def value_range(self, path: Path, array: np.ndarray) -> tuple[float, float] | None:
        """Return what the stored bits can hold, if the file says it."""
        return (0.0, 255.0) if array.dtype == np.uint8 else None

    def read_labels(self, path: Path, item: str = "") -> Mask:
        """Return label numbers: palette indices; else grey values, or the numbers of colours."""
        with self.open_picture(path) as picture:
            if picture.mode == "P" and getattr(picture, "n_frames", 1) == 1:
                indices = turn_upright(np.array(picture), exif_orientation(picture))
                return Mask(indices, colours=_palette_colours(picture, indices))
            if picture.mode in ("LA", "RGBA", "PA") and (alpha := _labels_in_alpha(picture)) is not None:
                notes = (FormatNote("labels_in_transparency"),)
                return Mask(turn_upright(alpha, exif_orientation(picture)), notes=notes)
        return labels_from_image(self.read(path, item), str(path))

    def write_labels(self, array: np.ndarray, reference: Path, stem: Path, item: str = "") -> Path | None:
        return write_png_labels(array, stem)


def write_png_labels(array: np.ndarray, stem: Path) -> Path | None:
    """Write flat label numbers as PNG and return the file; None for volumes and numbers that PNG does not hold."""
    from PIL import Image as Pillow

    array = array.astype(smallest_label_type(int(array.max(initial=0))))
    if array.ndim != 2 or array.dtype == np.uint32:
        return None
    file = Path(f"{stem}.png")
    Pillow.fromarray(array).save(file)
    return file


def channels_first(array: np.ndarray) -> np.ndarray:
    """Return (H, W) or (H, W, C) as (C, H, W): the first three channels; equal ones merged."""
    if array.dtype == bool:
        array = array.astype(np.uint8) * np.uint8(255)
    if array.ndim == 2:
        return array[None]
    colour_count = 1 if array.shape[-1] <= 2 else 3
    return merge_equal_channels(np.ascontiguousarray(np.moveaxis(array[..., :colour_count], -1, 0)))


def _palette_colours(picture: Any, indices: np.ndarray) -> dict[int, tuple[int, int, int]]:
    colours = np.array(picture.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    used = [int(index) for index in np.unique(indices)]
    return {index: tuple(int(value) for value in colours[index]) for index in used if index < len(colours)}  # type: ignore[misc]


def _labels_in_alpha(picture: Any) -> np.ndarray | None:
    """Return the transparency if the colours are the same everywhere and the mask is painted in it."""
    converted = np.array(picture.convert("RGBA"))
    colours, alpha = converted[..., :3], converted[..., 3]
    if (colours == colours[:1, :1]).all() and alpha.size and alpha.min() != alpha.max():
        return np.ascontiguousarray(alpha)
    return None


class Png(PictureFormat):
    """PNG, also with 16 bits a channel, which Pillow would cut to 8 in colour."""

    name = "png"
    suffixes = (".png",)
    magic = ((0, b"\x89PNG\r\n\x1a\n"),)
    pillow = ("PNG",)
    end_mark = b"IEND"

    def decode(self, path: Path, picture: Any) -> np.ndarray:
        if not self._has_16_bits(path) or picture.mode.startswith("I"):
            return super().decode(path, picture)
        import imagecodecs

        return channels_first(np.asarray(imagecodecs.png_decode(path.read_bytes())))

    def stored_type(self, path: Path, picture: Any) -> tuple[int, str, int | None]:
        channels, dtype, bits = super().stored_type(path, picture)
        return (channels, "uint16", 16) if self._has_16_bits(path) else (channels, dtype, bits)

    def _has_16_bits(self, path: Path) -> bool:
        with path.open("rb") as file:
            head = file.read(26)
        return len(head) == 26 and head[24] == 16


class Jpeg(PictureFormat):
    """JPEG, also progressive and CMYK."""

    name = "jpeg"
    suffixes = (".jpg", ".jpeg", ".jpe", ".jfif")
    magic = ((0, b"\xff\xd8\xff"),)
    pillow = ("JPEG",)
    end_mark = b"\xff\xd9"

    def is_lossy(self, path: Path, picture: Any) -> bool:
        return True

    def chosen_frames(self, path: Path, item: str, pages: int) -> list[int]:
        return [0]  # further pictures of MPO files are previews


class Jpeg2000(PictureFormat):
    """JPEG 2000, as a file (JP2) or a bare code stream."""

    name = "jpeg2000"
    suffixes = (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jpc")
    magic = ((0, b"\0\0\0\x0cjP  \r\n\x87\n"), (0, b"\xff\x4f\xff\x51"))
    pillow = ("JPEG2000",)

    def decode(self, path: Path, picture: Any) -> np.ndarray:
        if not picture.mode.startswith("I"):
            return super().decode(path, picture)
        import imagecodecs  # Pillow shifts 10 or 12 bits to the top of 16

        return channels_first(np.asarray(imagecodecs.jpeg2k_decode(path.read_bytes())))


class Bmp(PictureFormat):
    """Windows bitmaps."""

    name = "bmp"
    suffixes = (".bmp", ".dib")
    magic = ((0, b"BM"),)
    pillow = ("BMP", "DIB")

    def has_magic(self, head: bytes) -> bool:
        return head[:2] == b"BM" and len(head) > 18 and head[15:18] == b"\0\0\0"


class WebP(PictureFormat):
    """WebP, lossy and lossless, also animated."""

    name = "webp"
    suffixes = (".webp",)
    pillow = ("WEBP",)

    def has_magic(self, head: bytes) -> bool:
        return head[:4] == b"RIFF" and head[8:12] == b"WEBP"

    def is_lossy(self, path: Path, picture: Any) -> bool:
        with path.open("rb") as file:
            return b"VP8 " in file.read(64)


class Gif(PictureFormat):
    """GIF, also animated."""

    name = "gif"
    suffixes = (".gif",)
    magic = ((0, b"GIF87a"), (0, b"GIF89a"))
    pillow = ("GIF",)


class Avif(PictureFormat):
    """AVIF."""

    name = "avif"
    suffixes = (".avif",)
    magic = ((4, b"ftypavif"),)
    pillow = ("AVIF",)

    def is_lossy(self, path: Path, picture: Any) -> bool:
        return True


class Pnm(PictureFormat):
    """PBM, PGM and PPM. Pillow stretches values to 8 or 16 bits; here they stay as they are stored."""

    name = "pnm"
    suffixes = (".pgm", ".ppm", ".pbm", ".pnm")
    magic = tuple((0, b"P%d" % number) for number in range(1, 7))
    pillow = ("PPM",)

    def has_magic(self, head: bytes) -> bool:
        return re.match(rb"P[1-6](?:\s|#[^\r\n]*[\r\n])+\d+(?:\s|#[^\r\n]*[\r\n])+\d+\s", head) is not None

    def stored_type(self, path: Path, picture: Any) -> tuple[int, str, int | None]:
        kind, _, _, highest, _ = self._header(path)
        bits = 8 if kind in (1, 4) or highest < 256 else 16
        return 3 if kind in (3, 6) else 1, f"uint{bits}", max(1, highest.bit_length()) if kind not in (1, 4) else 8

    def value_range(self, path: Path, array: np.ndarray) -> tuple[float, float] | None:
        kind, _, _, highest, _ = self._header(path)
        return 0.0, 255.0 if kind in (1, 4) else float(highest)

    def decode(self, path: Path, picture: Any) -> np.ndarray:
        kind, width, height, highest, offset = self._header(path)
        if kind in (1, 4):
            return super().decode(path, picture)
        channels = 3 if kind in (3, 6) else 1
        count = width * height * channels
        if kind in (2, 3):
            values = np.array(path.read_bytes()[offset:].split()[:count]).astype(np.uint16)
        else:
            values = np.fromfile(path, np.uint8 if highest < 256 else ">u2", count, offset=offset)
        if values.size < count:
            raise DataError(f"{path}: is cut off: {values.size:,} of {count:,} values are there; copy it again")
        values = values.astype(np.uint8 if highest < 256 else np.uint16)
        return channels_first(values.reshape((height, width, channels) if channels > 1 else (height, width)))

    def _header(self, path: Path) -> tuple[int, int, int, int, int]:
        """Return kind (1 to 6), width, height, highest value and the offset of the values."""
        with path.open("rb") as file:
            head = file.read(1 << 14)
        gap = rb"(?:\s|#[^\r\n]*[\r\n])+"
        numbers = 2 if head[1:2] in b"14" else 3
        match = re.match(rb"P([1-6])" + (gap + rb"(\d{1,9})") * numbers + rb"\s", head)
        if not match:
            raise DataError(f"{path}: its header is not that of a PNM picture")
        kind, width, height = int(match[1]), int(match[2]), int(match[3])
        highest = int(match[4]) if numbers == 3 else 1
        if not (width and height and 1 <= highest <= 65535):
            raise DataError(f"{path}: its header says {width} x {height} pixels with values up to {highest}")
        return kind, width, height, highest, match.end()


FORMATS = (Png(), Jpeg(), Jpeg2000(), Bmp(), WebP(), Gif(), Avif(), Pnm())
