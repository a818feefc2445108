"""A cache of whole images and masks of any size, decoded and preprocessed once.

    volumes = build_volumes(records, plan)      # records with image_path and mask_path (None: empty mask)
    volumes.image(i)    (C, H, W[, D]) float16 or float32, read-only, intensities normalised, at plan["spacing"]
    volumes.mask(i)     (H, W[, D]) uint8: 0, or 1 + index in plan["classes"]; with plan["overlap"] (K, H, W[, D]) 0/1;
                        IGNORE in voxels that nobody labelled (`ignored_voxels`)
    volumes.points(i)   (n, 1 + dims) int32: rows (class index, voxel), at most MAX_POINTS per class, to centre patches on;
                        plan["points"] = "lesions": equally many of every connected component
    volumes.shape(i)    (H, W[, D]) of the image as it was read, before any resampling
    volumes.readable    (N,) bool; unreadable cases are printed, and more than 5 % of them raise CacheError

Keys of the plan: dims, channels, channel_names, spacing (or null), longest (limit of a side if no spacing is known, or null), side
(2D: every picture gets this longer side, instead of a spacing; or absent), pixels (true: spacing counts pixels, whatever the files
say), intensity, classes, labels ({name: value in the file}, or null for one mask file per class), overlap, points. The file name of a
case is a hash of these, its paths and the content of its files, so that an interrupted build continues and a longer index reuses it.

plan["cache"] says how images and masks are kept (`case_storage`): "auto" (default) takes memory maps, or compressed arrays if maps
have no room, or reads and preprocesses the case at each access if nothing has room. Points and shapes are always stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from m3b.dataset.formats import DataError, Image, normalised_range
from m3b.training.cache import CacheError
from m3b.training.case_storage import (
    CacheRoom,
    CompressedArray,
    Storage,
    can_compress,
    choose_storage,
    compress,
    describe_storage,
    evict_unused,
    file_of,
    fingerprint_files,
    flatten_paths,
    mark_used,
    usable_memory,
)
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
CACHE_VERSION = 7
"""Version of the files of a case; part of their names."""
MAX_POINTS = 2000
MAX_OPEN_MAPS = 192
"""Maps that stay open: each needs a file descriptor, and many systems allow 1,024 per process. Opening one takes 0.1 ms."""
MAX_PREPARED_CASES = 2
"""Cases without room in the cache that stay in memory."""
PREPARING_FACTOR = 6
"""Peak memory of the preprocessing of a case, in sizes of its image in single precision."""
_MAX_FLOAT32_BYTES = 2 * 1024**3  # bytes of float32 above which half precision is stored


CaseArrays = tuple[np.ndarray, np.ndarray]
"""Image and mask of a case."""


class Volumes:
    """The opened cache; see the top of this file.

    Args:
        prepare: returns image and mask of a case that has no room in the cache.
    """

    def __init__(
        self, files: Sequence[Path], readable: np.ndarray, prepare: Callable[[int], CaseArrays] | None = None
    ) -> None:
        self.files, self.readable, self._prepare = list(files), readable, prepare
        self._prepared: dict[int, CaseArrays] = {}

    def __len__(self) -> int:
        return len(self.files)

    def image(self, item: int) -> np.ndarray:
        return self._open(item, "image")

    def mask(self, item: int) -> np.ndarray:
        return self._open(item, "mask")

    def _open(self, item: int, part: str) -> np.ndarray:
        array = _open_stored(f"{self.files[item]}.{part}")
        if array is not None:
            return array
        if self._prepare is None:
            raise FileNotFoundError(f"{self.files[item]}.{part}.npy")
        if item not in self._prepared:
            case = self._prepare(item)
            while len(self._prepared) >= MAX_PREPARED_CASES:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[item] = case
        return self._prepared[item][part == "mask"]

    def shape(self, item: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.load(f"{self.files[item]}.shape.npy"))

    def points(self, item: int) -> np.ndarray:
        return self._open(item, "points")

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
def _open_file(file: str) -> np.ndarray:
    if file.endswith(".b2nd"):
        compressed: Any = CompressedArray(file)  # read by slices, as a map
        return cast(np.ndarray, compressed)
    array: np.ndarray = np.load(file, mmap_mode="r" if os.path.getsize(file) > 4096 else None)
    return array


def _open_stored(stem: str) -> np.ndarray | None:
    """Return the stored array of a part of a case, None if the case is not stored."""
    for suffix in (".npy", ".b2nd"):
        try:
            return _open_file(stem + suffix)
        except FileNotFoundError:
            continue
    return None


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
    keys = case_keys(records, plan, base, cache_folder)
    builder = _Builder(records, plan, base, cache_folder, [cache_folder / key for key in keys])
    builder.build(set(keys))
    mark_used(cache_folder, keys)
    reasons = builder.reasons
    failed = [reasons[item] for item in sorted(reasons)]
    if len(failed) > max_unreadable * len(records) and len(failed) * 20 > len(records):
        raise CacheError(f"{len(failed)} of {len(records)} cases cannot be used; correct the index. First: {failed[0]}")
    for reason in failed:
        print(f"excluded: {reason}", flush=True)
    return Volumes(
        builder.files,
        np.array([item not in reasons for item in range(len(records))]),
        partial(_prepare_arrays, builder),
    )


class _Builder:
    """Fills the cache of some records.

    Attributes:
        reasons: item -> why it cannot be read.
    """

    def __init__(
        self,
        records: Sequence[Mapping[str, Any]],
        plan: Mapping[str, Any],
        base: str,
        folder: Path,
        files: Sequence[Path],
    ) -> None:
        self.records, self.plan, self.base, self.folder, self.files = records, plan, base, folder, list(files)
        self.reasons: dict[int, str] = {}
        self.room = CacheRoom(folder)
        self.storage: Storage = "map"
        self.is_half = len(records) > 4096

    def build(self, needed: set[str]) -> None:
        incomplete = [item for item, file in enumerate(self.files) if not Path(f"{file}.points.npy").exists()]
        direct = [item for item in range(len(self.files)) if item not in set(incomplete) and not self._is_stored(item)]
        pending = sorted({*incomplete, *direct})
        while pending:  # the first readable case says how much room is needed
            case = self._prepare(pending[0])
            if case is not None:
                break
            pending.pop(0)
        if not pending:
            return
        assert case is not None
        self._choose_storage(case, len(pending), needed)
        self._write(pending[0], *case)
        rest = pending[1:] if self.storage != "direct" else [item for item in pending[1:] if item in set(incomplete)]
        with ThreadPoolExecutor(_count_threads(self.plan, case[0])) as pool:
            list(pool.map(self._fill, rest))

    def _is_stored(self, item: int) -> bool:
        return any(Path(f"{self.files[item]}.mask{suffix}").exists() for suffix in (".npy", ".b2nd"))

    def _choose_storage(
        self, case: tuple[np.ndarray, np.ndarray, tuple[int, ...]], cases: int, needed: set[str]
    ) -> None:
        image, mask = self._typed(case[0]), case[1]
        size = cases * (image.nbytes + mask.nbytes)
        if size > self.room.free():
            evict_unused(self.folder, size, self.room, needed)
        is_tight = size > self.room.free() or self.plan.get("cache") == "compressed"
        compressed_size = cases * (len(compress(image)) + len(compress(mask))) if is_tight and can_compress() else size
        self.storage = choose_storage(self.plan, size, compressed_size, self.room)
        if is_tight or self.storage != "map":
            print(describe_storage(self.storage, cases, size, compressed_size, self.room), flush=True)

    def _typed(self, image: np.ndarray) -> np.ndarray:
        self.is_half = self.is_half or image.nbytes * len(self.records) > _MAX_FLOAT32_BYTES
        return image.astype(np.float16) if self.is_half else image

    def _prepare(self, item: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]] | None:
        try:
            return prepare_case(self.records[item], self.plan, self.base)
        except DataError as error:
            self.reasons[item] = str(error)
            return None

    def _fill(self, item: int) -> None:
        case = self._prepare(item)
        if case is not None:
            self._write(item, *case)

    def _write(self, item: int, image: np.ndarray, mask: np.ndarray, shape: tuple[int, ...]) -> None:
        """Write the parts of a case that have room; the points come last and mark the case as complete."""
        file, image = self.files[item], self._typed(image)
        parts: dict[str, np.ndarray | bytes] = {}
        if self.storage == "map":
            parts = {"image.npy": image, "mask.npy": mask}
        elif self.storage == "compressed":
            parts = {"image.b2nd": compress(image), "mask.b2nd": compress(mask)}
        size = sum(part.nbytes if isinstance(part, np.ndarray) else len(part) for part in parts.values())
        if self.room.reserve(size):
            for name, part in parts.items():
                _write_part(file, name, part)
        elif parts:
            print(f"cache: no room for {self.records[item]['image_path']}; it is read again in each step", flush=True)
        _write_part(file, "shape.npy", np.array(shape))
        _write_part(file, "points.npy", sample_points(mask, self.plan))


def _prepare_arrays(builder: _Builder, item: int) -> CaseArrays:
    """Return image and mask of a case that is not stored."""
    image, mask, _ = prepare_case(builder.records[item], builder.plan, builder.base)
    return image, mask


def _write_part(file: Path, name: str, part: np.ndarray | bytes) -> None:
    temporary = Path(f"{file}.{name}.tmp")
    with temporary.open("wb") as stream:
        if isinstance(part, bytes):
            stream.write(part)
        else:
            np.save(stream, part)
    os.replace(temporary, f"{file}.{name}")


def _count_threads(plan: Mapping[str, Any], image: np.ndarray) -> int:
    """Return how many cases are preprocessed at a time: as many as fit into the memory."""
    threads = max(1, int(plan.get("workers") or os.cpu_count() or 1))
    return max(1, min(threads, usable_memory() // (PREPARING_FACTOR * image.nbytes)))


def case_keys(
    records: Sequence[Mapping[str, Any]], plan: Mapping[str, Any], base: str = ".", folder: Path | None = None
) -> list[str]:
    """Return a hash a record: of the plan's preprocessing, the record's paths, and the content of the files.

    Args:
        folder: where the hashes of files are kept.
    """
    settings = json.dumps({"form": CACHE_VERSION, **{key: plan.get(key) for key in PLAN_KEYS}}, sort_keys=True)
    path_lists = [[record["image_path"], record.get("mask_path"), record.get("ignore_path")] for record in records]
    files = [[file_of(path, base) for path in flatten_paths(paths)] for paths in path_lists]
    fingerprints = fingerprint_files([file for case_files in files for file in case_files], folder)
    return [
        hashlib.sha256(
            json.dumps([settings, paths, [fingerprints[file] for file in case_files]]).encode("utf-8", "surrogatepass")
        ).hexdigest()[:20]
        for paths, case_files in zip(path_lists, files, strict=True)
    ]


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
