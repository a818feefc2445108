"""Altered copies of staged test images: with noise that nobody sees, or cut afresh and stretched to the old size.

A model that looks at images answers the copies about as it answers the image. One that finds answers in a table, by the
bytes or pixels of an image or by a coarse print of it (a perceptual hash), does not find the copies there.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import DataError
from m3b.isolation.untrusted import announce_opening

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOISE, CROP = "noise", "crop"
WAYS = (NOISE, CROP)
MAX_BYTES = 16 * 2**20
"""Of one file that is altered."""
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
VOLUMES = (".nii", ".nii.gz")
MIN_LEVELS = 32
"""Grey levels below which a step of one is seen."""
MIN_SIDE = 16
"""Axes that are shorter are channels, or too few slices to be cut."""
NOISE_SHARE = 0.002
"""Standard deviation of the noise in values that are no whole numbers, in those of the image."""
CUT = (0.05, 0.10)
"""Share of an axis that is cut off at each end, from and to."""


def can_alter(image: str | Sequence[str] | Mapping[str, str], base: Path) -> bool:
    """Whether copies of an image, as an index below `base` names it, can be altered: one file of a known kind that is not
    too large, or an archive's item."""
    if not isinstance(image, str):
        return False
    try:
        size = (base / image).stat().st_size
    except OSError:
        return "#" in image
    return size <= MAX_BYTES and image.lower().endswith((*PICTURES, *VOLUMES, ".npy"))


def alter(file: Path, way: str) -> bool:
    """Change a file in place, always in the same way.

    Args:
        way: `noise` or `crop`.

    Returns:
        Whether it was changed; not where it is of another kind, too large, or has too few grey levels.
    """
    import numpy as np

    name = file.name.lower()
    try:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > MAX_BYTES:
            return False
        announce_opening(file)
        random = np.random.default_rng(zlib.crc32(file.read_bytes()))
        if name.endswith(".npy"):
            array = np.load(file, allow_pickle=False)
            changed = altered(array, way, random)
            if changed is not None:
                np.save(file, changed, allow_pickle=False)
            return changed is not None
        if name.endswith(VOLUMES):
            return _volume(file, way, random)
        return name.endswith(PICTURES) and _picture(file, way, random)
    except (OSError, ValueError, DataError):
        return False  # predict.py gets the same file as a plain copy then, which is not counted


def altered(array: NDArray[Any], way: str, random: np.random.Generator) -> NDArray[Any] | None:
    """The same picture, altered; None where that cannot be done without being seen."""
    import numpy as np

    if array.dtype.kind not in "uif" or array.size == 0:
        return None
    if way == CROP:
        return _cut(array, random)
    if array.dtype.kind == "f":
        noise = random.normal(0.0, NOISE_SHARE * float(np.nanstd(array)), array.shape)
        seen: NDArray[Any] = (array + noise).astype(array.dtype)
        return seen
    low, high = int(array.min()), int(array.max())
    if high - low < MIN_LEVELS:
        return None
    steps = random.integers(-1, 2, array.shape)
    stepped: NDArray[Any] = np.clip(array.astype(np.int64) + steps, low, high).astype(array.dtype)
    return stepped


def _cut(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any] | None:
    """Every axis of space shortened at both ends by a random share, and stretched to its length by repeating."""
    import numpy as np

    axes = [axis for axis, side in enumerate(array.shape) if side >= MIN_SIDE]
    if len(axes) < 2:
        return None
    for axis in axes:
        side = array.shape[axis]
        first, last = (max(1, round(random.uniform(*CUT) * side)) for _ in range(2))
        array = np.take(array, np.rint(np.linspace(first, side - 1 - last, side)).astype(int), axis=axis)
    return array


def _picture(file: Path, way: str, random: np.random.Generator) -> bool:
    import numpy as np
    from PIL import Image

    with Image.open(file) as image:
        if image.mode not in ("L", "RGB", "I;16", "F"):
            return False
        kind = image.format
        changed = altered(np.asarray(image), way, random)
    if changed is None:
        return False
    options: dict[str, Any] = {"quality": 97, "subsampling": 0} if kind == "JPEG" else {}
    Image.fromarray(changed).save(file, format=kind, **options)
    return True


def _volume(file: Path, way: str, random: np.random.Generator) -> bool:
    import nibabel
    import numpy as np

    image = nibabel.load(file)
    slope, inter = image.dataobj.slope, image.dataobj.inter
    if (slope, inter) != (1.0, 0.0):
        return False  # steps of the stored numbers are not those of the values
    changed = altered(np.asanyarray(image.dataobj.get_unscaled()), way, random)
    if changed is None:
        return False
    nibabel.save(type(image)(changed, image.affine, image.header), file)
    return True
