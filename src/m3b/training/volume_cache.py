"""A cache of whole images and masks of any size, decoded and preprocessed once into memory-mapped files.

    volumes = build_volumes(records, plan)      # records with image_path and mask_path (None: empty mask)
    volumes.image(i)    (C, H, W[, D]) float16 or float32, read-only map, intensities normalised, at plan["spacing"]
    volumes.mask(i)     (H, W[, D]) uint8: 0, or 1 + index in plan["classes"]; with plan["overlap"] (K, H, W[, D]) 0/1;
                        IGNORE in voxels that nobody labelled (`ignored_voxels`)
    volumes.points(i)   (n, 1 + dims) int32: rows (class index, voxel), at most MAX_POINTS per class, to centre patches on;
                        plan["points"] = "lesions": equally many of every connected component
    volumes.shape(i)    (H, W[, D]) of the image as it was read, before any resampling
    volumes.readable    (N,) bool; unreadable cases are printed, and more than 5 % of them raise CacheError

Keys of the plan: dims, channels, channel_names, spacing (or null), longest (limit of a side if no spacing is known, or null), side
(2D: every picture gets this longer side, instead of a spacing; or absent), pixels (true: spacing counts pixels, whatever the files
say), intensity, classes, labels ({name: value in the file}, or null for one mask file per class), overlap, points. The file name of a
case is a hash of these, its paths and its files' sizes and times, so that an interrupted build continues and a longer index reuses it.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from m3b.dataset.formats import DataError, Image, normalised_range
from m3b.training.cache import CacheError
from m3b.training.channels import read_case
from m3b.training.ignored_voxels import mark_ignored
from m3b.training.mask_grid import iterate_masks, load_ignored, load_label_ids
from m3b.training.normalization import scale_channels
from m3b.training.preprocess import match_channels
from m3b.training.resampling import resize, resize_ids, resize_mask, take_nearest
from m3b.training.voxel_spacing import true_spacing

PLAN_KEYS = (
    *("dims", "channels", "channel_names", "spacing", "extent", "longest", "side", "pixels", "intensity", "bits"),
    *("classes", "labels", "overlap", "points"),
)
"""Keys of the plan that determine a cached case."""
CACHE_VERSION = 6
"""Version of the files of a case; part of their names."""
MAX_POINTS = 2000
MAX_OPEN_MAPS = 192
"""Maps that stay open: each needs a file descriptor, and many systems allow 1,024 per process. Opening one takes 0.1 ms."""
_MAX_FLOAT32_BYTES = 2 * 1024**3  # bytes of float32 above which half precision is stored


class Volumes:
    """The opened cache; see the top of this file."""

    def __init__(self, files: Sequence[Path], readable: np.ndarray) -> None:
        self.files, self.readable = list(files), readable

    def __len__(self) -> int:
        return len(self.files)

    def image(self, item: int) -> np.ndarray:
        return _open_map(f"{self.files[item]}.image.npy")

    def mask(self, item: int) -> np.ndarray:
        return _open_map(f"{self.files[item]}.mask.npy")

    def shape(self, item: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.load(f"{self.files[item]}.shape.npy"))

    def points(self, item: int) -> np.ndarray:
        return _open_map(f"{self.files[item]}.points.npy")

    def classes(self, item: int) -> dict[int, tuple[int, int]]:
        """Return class index -> first row of its points and the row after its last one."""
        points, rows, first = self.points(item), {}, 0
        while first < len(points):
            k = int(points[first, 0])
            rows[k] = (first, bisect_right(points, k, lo=first, key=lambda row: int(row[0])))
            first = rows[k][1]
        return rows

    def presence(self, classes: int) -> np.ndarray:
        """Return (N, classes) whether each case has each class; unreadable cases have none."""
        presence = np.zeros((len(self), classes), np.float32)
        for item in np.flatnonzero(self.readable):
            presence[item, list(self.classes(int(item)))] = 1
        return presence


@lru_cache(maxsize=MAX_OPEN_MAPS)
def _open_map(file: str) -> np.ndarray:
    array: np.ndarray = np.load(file, mmap_mode="r" if os.path.getsize(file) > 4096 else None)
    return array


def build_volumes(
    records: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    folder: str | Path = "Logout/cache",
    base: str = ".",
    max_unreadable: float = 0.05,
) -> Volumes:
    """Return the cache of these records, and build missing parts. Raises CacheError."""
    cache_folder = Path(folder)
    cache_folder.mkdir(parents=True, exist_ok=True)
    files = [cache_folder / case_key(record, plan, base) for record in records]
    reasons: dict[int, str] = {}
    is_half = [len(records) > 4096]

    def fill(item: int) -> None:
        try:
            image, mask, shape = prepare_case(records[item], plan, base)
            is_half[0] = is_half[0] or image.nbytes * len(records) > _MAX_FLOAT32_BYTES
            _write_case(files[item], image.astype(np.float16) if is_half[0] else image, mask, shape, plan)
        except DataError as error:
            reasons[item] = str(error)

    missing = [item for item, file in enumerate(files) if not Path(f"{file}.points.npy").exists()]
    if missing:
        fill(missing[0])
        with ThreadPoolExecutor(max(1, int(plan.get("workers") or os.cpu_count() or 1))) as pool:
            list(pool.map(fill, missing[1:]))
    failed = [reasons[item] for item in sorted(reasons)]
    if len(failed) > max_unreadable * len(records) and len(failed) * 20 > len(records):
        raise CacheError(f"{len(failed)} of {len(records)} cases cannot be used; correct the index. First: {failed[0]}")
    for reason in failed:
        print(f"excluded: {reason}", flush=True)
    return Volumes(files, np.array([item not in reasons for item in range(len(records))]))


def case_key(record: Mapping[str, Any], plan: Mapping[str, Any], base: str = ".") -> str:
    """Return a hash of the plan's preprocessing, the record's paths, and the files' sizes and times."""
    settings = json.dumps({"form": CACHE_VERSION, **{key: plan.get(key) for key in PLAN_KEYS}}, sort_keys=True)
    paths = [record["image_path"], record.get("mask_path"), record.get("ignore_path")]
    digest = hashlib.sha256((settings + json.dumps(paths)).encode())
    for path in _flatten_paths(paths):
        file = Path(base) / path.split("#")[0]
        if file.exists():
            state = file.stat()
            digest.update(f"{state.st_size}:{state.st_mtime_ns}".encode())
    return digest.hexdigest()[:20]


def _flatten_paths(paths: Any) -> list[str]:
    if paths is None or isinstance(paths, str):
        return [paths] if paths else []
    items = paths.values() if isinstance(paths, Mapping) else paths
    return [path for item in items for path in _flatten_paths(item)]


# --- one case -----------------------------------------------------------------------------------------------------


def prepare_case(
    record: Mapping[str, Any], plan: Mapping[str, Any], base: str = "."
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return image float32 (C, ...) and mask uint8, both at plan["spacing"], and the shape of the image as it was read.

    Raises DataError with the file.
    """
    image = read_case(record["image_path"], plan, base)
    array, shape = prepare_image(image, plan, str(record["image_path"])), tuple(image.array.shape[1:])
    target = array.shape[1:]
    if not plan.get("overlap"):
        ids = load_label_ids(record, plan, image, base)
        return array, resize_ids(ids if ids.ndim == len(target) else ids[..., None], target), shape
    channels = np.zeros((len(plan["classes"]), *target), np.uint8)
    extra_axes = (1,) * (len(target) - len(shape))
    ignored = load_ignored(record, image, base)
    ignored = None if ignored is None else ignored.reshape(*shape, *extra_axes)
    for k, mask in iterate_masks(record, plan, image, base):
        channels[k] = resize_mask(mask.reshape(*shape, *extra_axes), target, ignored)
    return array, mark_ignored(channels, None if ignored is None else take_nearest(ignored, target)), shape


def prepare_image(image: Image, plan: Mapping[str, Any], name: str = "image") -> np.ndarray:
    """Return float32 (channels, H, W[, D]): intensities normalised by the plan (per channel), resampled to its spacing."""
    array, dims = image.array, int(plan["dims"])
    if image.dims == 3 and dims == 2:
        raise DataError(f"{name}: a volume of {array.shape[-1]} slices, but the model takes 2D images")
    spacing: Sequence[float] | None = image.spacing
    if image.dims == 2 and dims == 3:  # a single slice: its thickness is unknown, and it is not resampled along it
        array = array[..., None]
        spacing = (*spacing[:2], float(plan["spacing"][2])) if spacing and plan.get("spacing") else None
    elif dims == 3:
        spacing = true_spacing(array.shape[1:], spacing, plan.get("extent"))
    limits = None if image.channels else normalised_range(image, plan.get("bits"))
    array = match_channels(
        scale_channels(array, plan["intensity"], image.channels, name, limits), int(plan["channels"])
    )
    size = target_shape(array.shape[1:], spacing, plan)
    array = resize(array, size)
    if not np.isfinite(array).all():
        raise DataError(f"{name}: holds values that are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def target_shape(shape: Sequence[int], spacing: Sequence[float] | None, plan: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the voxels along each axis on the plan's grid; the shape itself if the plan or the file has no spacing."""
    target_spacing, side, limit = plan.get("spacing"), plan.get("side"), plan.get("longest")
    longest = side or (limit if not spacing and limit and max(shape) > limit else None)
    if longest:
        return tuple(max(1, round(n * float(longest) / max(shape))) for n in shape)
    if plan.get("pixels"):
        spacing = [1.0] * len(shape)
    if not spacing or not target_spacing:
        return tuple(int(n) for n in shape)
    return tuple(max(1, round(n * s / w)) for n, s, w in zip(shape, spacing, target_spacing, strict=True))


def _write_case(
    file: Path, image: np.ndarray, mask: np.ndarray, shape: tuple[int, ...], plan: Mapping[str, Any]
) -> None:
    """Write each part to a temporary file and move it; the points come last and mark the case as complete."""
    parts = {"image": image, "mask": mask, "shape": np.array(shape), "points": sample_points(mask, plan)}
    for name, array in parts.items():
        temporary = Path(f"{file}.{name}.tmp")
        with temporary.open("wb") as stream:
            np.save(stream, array)
        os.replace(temporary, f"{file}.{name}.npy")


def sample_points(mask: np.ndarray, plan: Mapping[str, Any]) -> np.ndarray:
    """Return (n, 1 + dims) int32 foreground voxels to centre patches on; see the top of this file."""
    dims, rng, rows = int(plan["dims"]), np.random.default_rng(0), []
    for k, box in enumerate(class_boxes(mask, plan)):
        if box is not None:
            foreground = mask[k][box] == 1 if plan.get("overlap") else mask[box] == k + 1
            corner = np.array([part.start for part in box])
            rows += [(k, voxels + corner) for voxels in _foreground_groups(foreground, plan.get("points") == "lesions")]
    group_counts = Counter(k for k, _ in rows)
    parts = []
    for k, voxels in rows:
        sample = rng.choice(len(voxels), max(1, MAX_POINTS // group_counts[k]), replace=True)
        parts.append(np.concatenate([np.full((len(sample), 1), k), voxels[sample]], axis=1))
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros((0, 1 + dims), np.int32)


def class_boxes(mask: np.ndarray, plan: Mapping[str, Any]) -> list[tuple[slice, ...] | None]:
    """Return the bounding box of each class of a cached mask, None if it does not contain the class."""
    from scipy import ndimage

    if not plan.get("overlap"):
        return [*ndimage.find_objects(mask, len(plan["classes"]))]
    return [next(iter(ndimage.find_objects(layer, 1))) for layer in mask]


def _foreground_groups(foreground: np.ndarray, lesions: bool) -> list[np.ndarray]:
    """Return the voxel coordinates (n, dims) of the whole foreground, or of each connected component."""
    if not foreground.any():
        return []
    if not lesions:
        return [np.argwhere(foreground)]
    from scipy import ndimage

    labelled, count = ndimage.label(foreground, np.ones((3,) * foreground.ndim))
    boxes = ndimage.find_objects(labelled)
    return [
        np.argwhere(labelled[box] == number + 1) + np.array([part.start for part in box])
        for number, box in enumerate(boxes[:count])
    ]
