"""Shared parts of the generators: files in the formats of the real sets, and the faults that all of them get."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.bench.datasets.definitions import DatasetSpec, GeneratedSet

README = """# {name}: synthetic stand-in

Drawn by a program in the layout of {name}; no person is behind any image, row or word. Not for clinical use.
Licence of these synthetic files: CC0 1.0 (public domain). The real data set has its own terms: {url}
"""


def make_empty_folder(folder: Path) -> None:
    """Make `folder`.

    Raises:
        UsageError: it exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty. Name a folder that does not exist yet.")
    folder.mkdir(parents=True, exist_ok=True)


def finish_stand_in(
    spec: DatasetSpec, generated: GeneratedSet, folder: Path, *, with_broken_image: bool
) -> GeneratedSet:
    """What every stand-in gets: a note on its licence, a stray file, and on request an image that does not open."""
    planted_faults = [*generated.planted_faults, "a stray .DS_Store"]
    (folder / "README.md").write_text(README.format(name=spec.name, url=spec.url), encoding="utf-8")
    inner_folder = min((entry for entry in folder.iterdir() if entry.is_dir()), default=folder)
    (inner_folder / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    if with_broken_image:
        broken_image = folder / spec.read(folder).cases[-1].images[-1]
        broken_image.write_bytes(broken_image.read_bytes()[:64])
        planted_faults.append(f"an image that does not open: {broken_image.relative_to(folder).as_posix()}")
    return replace(generated, folder=folder, planted_faults=tuple(planted_faults))


def save_nifti(file: Path, array: NDArray[Any], spacing: Sequence[float] = (1, 1, 1), orientation: str = "RAS") -> None:
    """A `.nii.gz` whose voxels are `array` (x, y, z in RAS order), stored in another orientation if asked.

    Args:
        spacing: mm along the three axes of `array`.
        orientation: three letters of the stored axes, e.g. `PIR`; the place of each voxel in space stays the same.
    """
    import nibabel as nib
    from nibabel.orientations import axcodes2ornt, ornt_transform

    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = [-size * step / 2 for size, step in zip(array.shape, spacing, strict=True)]
    image = nib.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm")
    if orientation != "RAS":
        image = image.as_reoriented(ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(orientation)))
    file.parent.mkdir(parents=True, exist_ok=True)
    nib.save(image, file)


def save_picture(file: Path, array: NDArray[np.uint8]) -> None:
    """A PNG or JPEG from `(H, W)` or `(H, W, channels)`."""
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(array)
    if file.suffix.lower() in (".jpg", ".jpeg"):
        picture.save(file, quality=92)
    else:
        picture.save(file, compress_level=1)


def save_csv(file: Path, header: Sequence[str], rows: Sequence[Sequence[object]], *, quote_all: bool = False) -> None:
    """A CSV file with a header."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
        writer.writerow(header)
        writer.writerows(rows)


def save_json(file: Path, value: Any) -> None:
    """A JSON file, indented by one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_apple_double(file: Path) -> None:
    """The `._name` file that macOS archives leave beside `name`."""
    (file.parent / f"._{file.name}").write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        ")
