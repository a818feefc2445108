"""Opening a few files of a group: geometry, channels, type, value structure. A file that does not open is counted."""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from m3b.data.opening import Unreadable, attempt
from m3b.data.pixels import MAX_LABELS, ValueKind, Values, values_of
from m3b.data.reading import read_image
from m3b.data.survey.facts import Content, FileKind, Level, Shape, SurveyLimits

UNKNOWN = Values("unknown")
MASKS: frozenset[ValueKind] = frozenset({"mask", "lossy_mask", "labels"})
_COUNTS, _COUNTED = 3, 4
"""Different numbers of objects, and the most in one picture, from which on values count objects: three structures of which
one is rare have 1 to 2 and 1 to 3."""


@dataclass(frozen=True)
class FileSample:
    """What one file, or one member of a container, showed; with `error` set, nothing else is."""

    error: str = ""
    shape: tuple[int, ...] = ()
    """In the axes of the file, channels left out."""
    channels: int = 1
    frames: int = 1
    dims: int = 2
    dtype: str = ""
    spacing: tuple[float, ...] | None = None
    modality: str = ""
    values: Values = UNKNOWN


def look_at(path: Path, kind: FileKind, limits: SurveyLimits) -> FileSample:
    """Open one image file within limits. Never raises for what a file holds."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            return FileSample("special")
        if not found.st_size:
            return FileSample("empty")
        if found.st_size > limits.file_bytes:
            return FileSample("large")
        if (size := attempt(lambda: announced(path, kind), path)) > limits.pixels:
            return FileSample("large" if size < 100 * max(found.st_size, 1) else "bomb")
        image = attempt(lambda: read_image(str(path)))
        dtype = attempt(lambda: _dtype(path, kind)) or str(image.array.dtype)
    except Unreadable as error:
        return FileSample("no_pixels" if "without pixels" in str(error) else error.code)
    except OSError:
        return FileSample("unreadable")
    return from_array(image.array, image.dims, image.spacing, image.modality, dtype)


def from_array(
    array: Any, dims: int, spacing: tuple[float, ...] | None = None, modality: str = "", dtype: str = ""
) -> FileSample:
    """A look at an array `(C, H, W)` or `(C, H, W, D)`."""
    shape = tuple(int(side) for side in array.shape[1:])
    return FileSample(
        "", shape, int(array.shape[0]), shape[-1] if dims == 3 else 1, dims, dtype or str(array.dtype), spacing, modality,
        values_of(array),
    )  # fmt: skip


def announced(path: Path, kind: FileKind) -> int:
    """The number of values that a file's header announces; 0 where that is not quickly known."""
    size = 1
    if kind not in ("picture", "nifti"):
        return 0
    if kind == "picture":
        from PIL import Image as Pillow

        with Pillow.open(path) as picture:
            return int(picture.width * picture.height * min(getattr(picture, "n_frames", 1), 10_000))
    import nibabel as nib

    for side in nib.load(path).shape:
        size *= int(side)
    return size


def _dtype(path: Path, kind: FileKind) -> str:
    """The type on the disk where reading changes it: 1-bit and palette pictures."""
    if kind != "picture":
        return ""
    from PIL import Image as Pillow

    with Pillow.open(path) as picture:
        return {"1": "bit", "P": "palette"}.get(picture.mode, "")


def content(looks: list[FileSample]) -> Content:
    """What looks at several files have in common."""
    good = [one for one in looks if not one.error]
    if not good:
        return Content(looked=len(looks), failed=len(looks))
    dims = {one.dims for one in good}
    flat = 3 not in dims
    frames = [one.frames for one in good]
    spacings = [one.spacing for one in good if one.spacing]
    length = Counter(len(one) for one in spacings).most_common(1)[0][0] if spacings else 0
    alike_long = [one for one in spacings if len(one) == length]
    shapes = Counter(one.shape for one in good)
    return Content(
        looked=len(looks),
        failed=len(looks) - len(good),
        dims=dims.pop() if len(dims) == 1 else None,
        channels=tuple(sorted({one.channels for one in good})),
        frames=(min(frames), max(frames)) if max(frames) > 1 and flat else None,
        shapes=tuple(Shape(shape=shape, count=count) for shape, count in sorted(shapes.items(), key=_common)[:8]),
        spacing=tuple(round(median(one[axis] for one in alike_long), 5) for axis in range(length)) or None,
        dtypes=tuple(sorted({one.dtype for one in good})),
        modality=tuple(sorted({one.modality for one in good if one.modality})),
        **_of_values([one.values for one in good]),
    )


def _common(item: tuple[tuple[int, ...], int]) -> tuple[int, tuple[int, ...]]:
    return -item[1], item[0]


def _of_values(found: list[Values]) -> dict[str, Any]:
    kind = _kind(found)
    facts: dict[str, Any] = {
        "values": kind, "low": min(one.low for one in found), "high": max(one.high for one in found),
    }  # fmt: skip
    if kind not in MASKS and kind != "constant":
        return facts
    shares = sorted(one.foreground for one in found if one.foreground is not None)
    cuts = [one.cut for one in found if one.cut is not None]
    facts["levels"] = tuple(_levels(found, lossy=kind == "lossy_mask"))
    facts["cut"] = median(cuts) if cuts else None
    facts["foreground"] = (shares[0], median(shares), shares[-1]) if shares else None
    facts["empty"] = sum(1 for one in found if one.kind == "constant")
    facts["alike"] = _alike(found)
    facts["covers_border"] = _fields(found)
    objects = [one.objects for one in found if one.objects is not None]
    facts["several_objects"] = round(sum(objects) / len(objects), 2) if objects else None
    facts["counted"] = _counted(found) if kind == "labels" else None
    return facts


def _counted(found: list[Values]) -> tuple[int, int] | None:
    """Least and most objects where values count them. Classes have the same values in most pictures: counts must differ."""
    some = [one for one in found if one.kind in MASKS]
    counts = [one.counted if one.kind == "labels" else int(one.high == 1 and one.objects == 1) for one in some]
    if not counts or not all(counts) or len(set(counts)) < _COUNTS or max(counts) < _COUNTED:
        return None
    return min(counts), max(counts)


def _kind(found: list[Values]) -> ValueKind:
    """One kind for several files: the strictest that holds for nearly all of them."""
    kinds = Counter(one.kind for one in found)
    telling = [one for one in found if one.kind != "constant"]
    if not telling:
        return "mask" if len({one.low for one in found}) == 2 else "constant"
    marked = sum(kinds[kind] for kind in MASKS)
    if marked < 0.8 * len(telling):
        rest = Counter(one.kind for one in telling if one.kind not in MASKS)
        return sorted(rest, key=lambda kind: (-rest[kind], kind))[0]
    if kinds["lossy_mask"] and kinds["lossy_mask"] >= kinds["labels"]:
        return "lossy_mask"
    values = {value for one in found if one.kind in ("mask", "labels", "constant") for value in one.levels}
    if len(values) <= 2:
        return "mask"
    return "labels" if len(values) <= 4 * MAX_LABELS else "picture"


def _levels(found: list[Values], *, lossy: bool) -> list[Level]:
    shares: dict[float, list[float]] = {}
    for one in found:
        if lossy and one.kind != "lossy_mask":
            continue
        for value, share in one.levels.items():
            shares.setdefault(value, []).append(share)
    if lossy:
        pairs = [sorted(one.levels.items()) for one in found if one.kind == "lossy_mask"]
        return [
            Level(value=median(pair[at][0] for pair in pairs), share=round(median(pair[at][1] for pair in pairs), 6),
                  samples=len(pairs))
            for at in (0, 1)
        ]  # fmt: skip
    return [
        Level(value=value, share=round(median(some), 6), samples=len(some)) for value, some in sorted(shares.items())
    ][:40]


def _alike(found: list[Values]) -> float | None:
    """Mean Dice of each mask's coarse copy with the next one's, of the same number of axes."""
    coarse = [one.coarse for one in found if one.coarse is not None]
    scores = []
    for one, other in itertools.pairwise(coarse):
        if one.shape == other.shape and (total := int(one.sum()) + int(other.sum())):
            scores.append(2 * int((one & other).sum()) / total)
    return round(sum(scores) / len(scores), 3) if scores else None


def _fields(found: list[Values]) -> float | None:
    """The share of masks that are one large field around the middle."""
    masks = [one for one in found if one.kind in ("mask", "lossy_mask") and one.coarse is not None]
    if not masks:
        return None
    fields = 0
    for one in masks:
        middle = one.coarse[tuple(side // 2 for side in one.coarse.shape)]
        fields += bool(middle) and (one.foreground or 0) > 0.3 and (one.objects or 0) <= 2
    return round(fields / len(masks), 3)
