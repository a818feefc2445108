"""Whole images and masks of any size, decoded and preprocessed once into memory-mapped files: a ragged cache.

    volumes = build_volumes(records, plan)      # records with image_path and mask_path (None: nothing marked)
    volumes.image(i)    (C, H, W[, D]) float16 or float32, read-only map, intensities done, at plan["spacing"]
    volumes.mask(i)     (H, W[, D]) uint8: 0, or 1 + place in plan["classes"]; with plan["overlap"] (K, H, W[, D]) 0/1
    volumes.points(i)   (n, 1 + dims) int32: rows (class place, voxel), at most POINTS a class, to centre patches on;
                        plan["points"] = "lesions": equally many of every connected component
    volumes.shape(i)    (H, W[, D]) of the image as it was read, before any resampling
    volumes.readable    (N,) bool; the others are printed, and more than 5 % of them raise CacheError

The plan's keys that count: dims, channels, channel_names, spacing (or null), longest (limit of a side where no spacing is known, or
null), side (2D: every picture gets this longer side, instead of a spacing; or absent), pixels (true: spacing counts
pixels, whatever the files say), intensity, classes, labels ({name: value in the file}, or null where masks are objects of
one file a class), overlap, points. A case is kept under a name made of these, its paths and its files' sizes and times,
so that an interrupted build goes on, and a longer index reuses what it can.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image, normalised_range
from m3b.training.cache import CacheError
from m3b.training.channels import read_case
from m3b.training.mask_grid import iterate_masks, load_ids
from m3b.training.normalization import scale_each
from m3b.training.preprocess import match_channels
from m3b.training.resampling import resize, resize_ids
from m3b.training.voxel_spacing import true_spacing

KEYS = ("dims", "channels", "channel_names", "spacing", "extent", "longest", "side", "pixels", "intensity", "bits")
KEYS += ("classes", "labels", "overlap", "points")
FORM = 5
"""Of what is kept for a case: other forms are other cases."""
POINTS = 2000
OPEN = 192
"""Maps that stay open: each holds a descriptor, and many systems allow a process 1,024. Opening one again costs 0.1 ms."""
_BIG = 2 * 1024**3  # bytes of float32 above which half precision is stored


class Volumes:
    """The opened cache; see the top of this file."""

    def __init__(self, files: Sequence[Path], readable: np.ndarray) -> None:
        self.files, self.readable = list(files), readable

    def __len__(self) -> int:
        return len(self.files)

    def image(self, item: int) -> np.ndarray:
        return _open(f"{self.files[item]}.image.npy")

    def mask(self, item: int) -> np.ndarray:
        return _open(f"{self.files[item]}.mask.npy")

    def shape(self, item: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.load(f"{self.files[item]}.shape.npy"))

    def points(self, item: int) -> np.ndarray:
        return _open(f"{self.files[item]}.points.npy")

    def classes(self, item: int) -> dict[int, tuple[int, int]]:
        """Return place of each class of the case -> first row of its points and the row after its last one."""
        points, rows, first = self.points(item), {}, 0
        while first < len(points):
            place = int(points[first, 0])
            rows[place] = (first, bisect_right(points, place, lo=first, key=lambda row: int(row[0])))
            first = rows[place][1]
        return rows

    def presence(self, classes: int) -> np.ndarray:
        """Return (N, classes) whether each case has each class; cases that cannot be read have none."""
        table = np.zeros((len(self), classes), np.float32)
        for item in np.flatnonzero(self.readable):
            table[item, list(self.classes(int(item)))] = 1
        return table


@lru_cache(maxsize=OPEN)
def _open(file: str) -> np.ndarray:
    array: np.ndarray = np.load(file, mmap_mode="r" if os.path.getsize(file) > 4096 else None)
    return array


def build_volumes(
    records: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    folder: str | Path = "Logout/cache",
    base: str = ".",
    max_unreadable: float = 0.05,
) -> Volumes:
    """The cache of these records, made where it is missing. Raises CacheError."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    files = [place / case_key(record, plan, base) for record in records]
    reasons: dict[int, str] = {}
    half = [len(records) > 4096]

    def fill(item: int) -> None:
        try:
            image, mask, shape = prepare_case(records[item], plan, base)
            half[0] = half[0] or image.nbytes * len(records) > _BIG
            _write(files[item], image.astype(np.float16) if half[0] else image, mask, shape, plan)
        except DataError as error:
            reasons[item] = str(error)

    todo = [item for item, file in enumerate(files) if not Path(f"{file}.points.npy").exists()]
    if todo:
        fill(todo[0])
        with ThreadPoolExecutor(max(1, int(plan.get("workers") or os.cpu_count() or 1))) as pool:
            list(pool.map(fill, todo[1:]))
    failed = [reasons[item] for item in sorted(reasons)]
    if len(failed) > max_unreadable * len(records) and len(failed) * 20 > len(records):
        raise CacheError(f"{len(failed)} of {len(records)} cases cannot be used; correct the index. First: {failed[0]}")
    for reason in failed:
        print(f"left out: {reason}", flush=True)
    return Volumes(files, np.array([item not in reasons for item in range(len(records))]))


def case_key(record: Mapping[str, Any], plan: Mapping[str, Any], base: str = ".") -> str:
    """Changes with the plan's preprocessing, the record's paths, and the files' sizes and times."""
    wanted = json.dumps({"form": FORM, **{key: plan.get(key) for key in KEYS}}, sort_keys=True)
    paths = json.dumps([record["image_path"], record.get("mask_path")])
    digest = hashlib.sha256((wanted + paths).encode())
    for path in _flat([record["image_path"], record.get("mask_path")]):
        file = Path(base) / path.split("#")[0]
        if file.exists():
            state = file.stat()
            digest.update(f"{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:20]


def _flat(paths: Any) -> list[str]:
    if paths is None or isinstance(paths, str):
        return [paths] if paths else []
    inside = paths.values() if isinstance(paths, Mapping) else paths
    return [path for item in inside for path in _flat(item)]


# --- one case -----------------------------------------------------------------------------------------------------


def prepare_case(
    record: Mapping[str, Any], plan: Mapping[str, Any], base: str = "."
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Image float32 (C, ...) and mask uint8, both at plan["spacing"], and the shape of the image as it was read. Raises
    DataError naming the file."""
    image = read_case(record["image_path"], plan, base)
    array, shape = prepare_image(image, plan, str(record["image_path"])), tuple(image.array.shape[1:])
    wanted = array.shape[1:]
    if not plan.get("overlap"):
        ids = load_ids(record, plan, image, base)
        return array, resize_ids(ids if ids.ndim == len(wanted) else ids[..., None], wanted), shape
    channels = np.zeros((len(plan["classes"]), *wanted), np.uint8)
    for place, mask in iterate_masks(record, plan, image, base):
        whole = mask.reshape(*mask.shape, *(1,) * (len(wanted) - mask.ndim))
        channels[place] = whole if whole.shape == wanted else resize(whole[None], wanted)[0] >= 0.5
    return array, channels, shape


def prepare_image(image: Image, plan: Mapping[str, Any], name: str = "image") -> np.ndarray:
    """float32 (channels, H, W[, D]): intensities as plan.json says (per channel), resampled to its spacing."""
    array, dims = image.array, int(plan["dims"])
    if image.dims == 3 and dims == 2:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    spacing = image.spacing
    if image.dims == 2 and dims == 3:  # a single slice: its thickness is unknown, and it is not resampled that way
        array = array[..., None]
        spacing = (*spacing[:2], float(plan["spacing"][2])) if spacing and plan.get("spacing") else None
    elif dims == 3:
        spacing = true_spacing(array.shape[1:], spacing, plan.get("extent"))
    limits = None if image.channels else normalised_range(image, plan.get("bits"))
    array = match_channels(scale_each(array, plan["intensity"], image.channels, name, limits), int(plan["channels"]))
    size = wanted_shape(array.shape[1:], spacing, plan)
    array = resize(array, size)
    if not np.isfinite(array).all():
        raise DataError(f"{name}: holds values that are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def wanted_shape(shape: Sequence[int], spacing: Sequence[float] | None, plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Voxels an axis as the plan wants them; the shape itself where it, or the file, knows no spacing."""
    wanted, side, limit = plan.get("spacing"), plan.get("side"), plan.get("longest")
    if side or (limit and not spacing and max(shape) > limit):
        return tuple(max(1, round(n * float(side or limit) / max(shape))) for n in shape)
    if plan.get("pixels"):
        spacing = [1.0] * len(shape)
    if not spacing or not wanted:
        return tuple(int(n) for n in shape)
    return tuple(max(1, round(n * s / w)) for n, s, w in zip(shape, spacing, wanted, strict=True))


def _write(file: Path, image: np.ndarray, mask: np.ndarray, shape: tuple[int, ...], plan: Mapping[str, Any]) -> None:
    """Each part beside its place and then moved; the points come last and say that the case is complete."""
    parts = {"image": image, "mask": mask, "shape": np.array(shape), "points": sample_points(mask, plan)}
    for name, array in parts.items():
        temporary = Path(f"{file}.{name}.tmp")
        with temporary.open("wb") as stream:
            np.save(stream, array)
        os.replace(temporary, f"{file}.{name}.npy")


def sample_points(mask: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """(n, 1 + dims) int32 foreground voxels to centre patches on; see the top of this file."""
    dims, rng, rows = int(plan["dims"]), np.random.default_rng(0), []
    for place, box in enumerate(class_boxes(mask, plan)):
        if box is not None:
            one = mask[place][box] > 0 if plan.get("overlap") else mask[box] == place + 1
            corner = np.array([part.start for part in box])
            rows += [(place, voxels + corner) for voxels in _groups(one, plan.get("points") == "lesions")]
    many = {place: max(1, sum(1 for other, _ in rows if other == place)) for place, _ in rows}
    parts = []
    for place, voxels in rows:
        chosen = rng.choice(len(voxels), max(1, POINTS // many[place]), replace=True)
        parts.append(np.concatenate([np.full((len(chosen), 1), place), voxels[chosen]], axis=1))
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros((0, 1 + dims), np.int32)


def class_boxes(mask: np.ndarray, plan: Mapping[str, Any]) -> list[tuple[slice, ...] | None]:
    """Return the bounding box of each class of a mask as the cache has it, None if the class is not in it."""
    from scipy import ndimage

    if not plan.get("overlap"):
        return [*ndimage.find_objects(mask, len(plan["classes"]))]
    return [next(iter(ndimage.find_objects(layer, 1))) for layer in mask]


def _groups(one: np.ndarray, lesions: bool) -> list[np.ndarray]:
    """Voxel coordinates (n, dims) of the whole foreground, or of each connected component."""
    if not one.any():
        return []
    if not lesions:
        return [np.argwhere(one)]
    from scipy import ndimage

    labelled, count = ndimage.label(one, np.ones((3,) * one.ndim))
    boxes = ndimage.find_objects(labelled)
    return [
        np.argwhere(labelled[box] == number + 1) + np.array([part.start for part in box])
        for number, box in enumerate(boxes[:count])
    ]
