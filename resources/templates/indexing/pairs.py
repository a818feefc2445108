"""Which mask belongs to which image: by equal names, by suffixes, by numbers, or by the folder of the case."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from layouts import MASKS, Case, _looks_like_slices, half_of, image_files, stem

MASK_WORDS = (
    "masks?", "seg", "segm", "segmentations?", "labels?", "lbl", "gt", "msk", "groundtruth", "ground_truth", "lesions?",
    "annotations?", "rois?", "seg-vert", "gold_standard", "manual",
)  # fmt: skip
IMAGE_WORDS = ("images?", "img", "ct", "mri?", "scan", "volume", "vol", "flair", "t1", "t2", "t1w", "t2w", "ct_scan")
Key = Callable[["Unit"], str]


@dataclass(frozen=True)
class Unit:
    """An image or a mask: a file, or a folder of slices.

    Args:
        inner: its path below the folder that was named.
        name: without ending.
    """

    path: Path
    inner: str
    name: str

    @property
    def place(self) -> str:
        """The folders above, without those that say image or mask and those of train and test."""
        above = self.inner.split("/")[:-1]
        return "/".join(part.lower() for part in above if not _says_nothing(part))


def _says_nothing(part: str) -> bool:
    words = re.split(r"[^a-z]+", part.lower())
    known = (*MASKS, "images", "image", "imgs", "img", "rawdata", "raw", "derivatives", "anat", "data", "scans", "ct")
    return all(word in known for word in words if word)


def units(folder: Path, pattern: str, unit: str) -> list[Unit]:
    """What lies below a folder, `pattern` matching name or inner path; folders of slices are one unit each."""
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder.")
    everything = list(image_files(folder))
    files = [file for file in everything if not pattern or _fits(file, folder, pattern)]
    if not files and pattern and everything:
        shown = ", ".join(file.name for file in everything[:3])
        raise SystemExit(f"No file below {folder} is called {pattern!r}. Names are such as {shown}.")
    whole = unit == "folder" or (unit == "auto" and _volumes(folder, files))
    places = list(dict.fromkeys(file.parent for file in files)) if whole else files
    return [
        Unit(place, place.relative_to(folder).as_posix(), place.name if whole else stem(place.name)) for place in places
    ]


def _volumes(folder: Path, files: list[Path]) -> bool:
    if any(file.suffix.lower() in (".dcm", ".dicom", ".ima") for file in files[:1]):
        return len({file.parent for file in files}) > 1
    return _looks_like_slices(folder, files)


def _fits(file: Path, folder: Path, pattern: str) -> bool:
    inner = file.relative_to(folder).as_posix().lower()
    return any(fnmatch(file.name.lower(), p) or fnmatch(inner, p) for p in pattern.lower().split("|"))


# --- keys --------------------------------------------------------------------------------------------------------


def _bare(name: str) -> str:
    """Without words for image or mask at either end; 'img0001' and 'label0001' are both '0001'."""
    low = name.lower()
    words = "|".join((*MASK_WORDS, *IMAGE_WORDS))
    while True:
        cut = re.sub(rf"[ ._-](?:{words})$|^(?:{words})(?=[ ._-]|\d)[ ._-]?|_0000$", "", low)
        if cut == low or not cut:
            return low
        low = cut


KEYS: tuple[tuple[str, Key], ...] = (
    ("the same path", lambda one: f"{one.place}/{one.name}".lower()),
    ("the same name", lambda one: one.name.lower()),
    ("the same name but for a suffix", lambda one: f"{one.place}/{_bare(one.name)}"),
    ("the same name but for a suffix, in any folder", lambda one: _bare(one.name)),
    ("the folder of the case", lambda one: one.place),
    ("the same numbers", lambda one: " ".join(re.findall(r"\d+", _bare(one.name)))),
)
"""Ways to tell that two files belong together, the surest first."""


def _keyed(found: Iterable[Unit], key: Key) -> dict[str, Unit]:
    """Units by key; those that share one are of no use, and an empty key is none."""
    groups: dict[str, list[Unit]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return {name: group[0] for name, group in groups.items() if len(group) == 1 and name.strip("/ ")}


def matched(images: list[Unit], masks: list[Unit], *, whose: str = "") -> dict[Unit, Unit]:
    """Image -> mask, by the key that joins most of them."""
    same = {one.path for one in images} & {one.path for one in masks}
    masks = [one for one in masks if one.path not in same] if len(same) < len(masks) else masks
    best: dict[Unit, Unit] = {}
    how = ""
    for name, key in KEYS:
        left, right = _keyed(images, key), _keyed(masks, key)
        found = {left[k]: right[k] for k in left if k in right and left[k].path != right[k].path}
        if len(found) > len(best):
            best, how = found, name
    if best:
        print(f"masks{whose}: {len(best)} of {len(masks)} belong to an image by {how}")
    return best


# --- cases -------------------------------------------------------------------------------------------------------


def pair_cases(images: list[Unit], masks: list[Unit], *, keep_bare: bool) -> list[Case]:
    """A case an image, with one mask of numbers; `keep_bare`: images without a mask too, with nothing marked."""
    found = matched(images, masks)
    _counts(images, set(found), keep_bare)
    unused = [one for one in masks if one not in set(found.values()) and one not in set(images)]
    if found and unused:
        print(f"masks without an image: {len(unused)} (e.g. {unused[0].inner})")
    if not found:
        shown = f"{_names(images)} and masks such as {_names(masks)}"
        raise SystemExit(
            f"No mask belongs to an image by its name. Images are such as {shown}; --image, --mask filter."
        )
    return [
        _case(one, found[one].path.as_posix() if one in found else None) for one in images if keep_bare or one in found
    ]


def class_cases(images: list[Unit], masks: dict[str, list[Unit]], *, keep_bare: bool) -> list[Case]:
    """A case an image, with one binary mask a class, from a list of masks by class."""
    by_image: dict[Unit, dict[str, str]] = defaultdict(dict)
    for name, listed in masks.items():
        for image, mask in matched(images, listed, whose=f" of {name}").items():
            by_image[image][name] = mask.path.as_posix()
    _counts(images, set(by_image), keep_bare)
    if not by_image:
        raise SystemExit(f"No mask belongs to an image by its name. Images are such as {_names(images)}.")
    return [_case(one, by_image.get(one)) for one in images if keep_bare or one in by_image]


def named_cases(images: list[Unit], masks: list[Unit], *, keep_bare: bool) -> list[Case]:
    """A case an image, its masks named after their class: `CASE/liver.nii.gz` or `CASE_liver.png`."""
    known = {}
    for one in images:
        for key in (one.name, _bare(one.name), one.place):
            known.setdefault(key.lower().strip("/"), one)
    own = {one.path for one in images}
    grouped: dict[str, list[Unit]] = defaultdict(list)
    for mask in masks:
        if mask.path in own:
            continue
        image, name = known.get(mask.place), mask.name
        if image is None or image.name.lower() in mask.name.lower():
            image, name = _by_prefix(mask.name, known)
        if image is not None and name:
            grouped[name].append(Unit(mask.path, image.inner, image.name))
    return class_cases(images, dict(sorted(grouped.items())), keep_bare=keep_bare)


def _by_prefix(name: str, known: dict[str, Unit]) -> tuple[Unit | None, str]:
    low = name.lower()
    heads = [key for key in known if key and low.startswith(key) and len(low) > len(key)]
    if not heads:
        return None, ""
    key = max(heads, key=len)
    return known[key], re.sub(r"^[ ._-]+", "", name[len(key) :])


def _case(one: Unit, mask: str | dict[str, str] | None) -> Case:
    path = one.path.as_posix()
    return Case(path, [], split=half_of("/".join(path.split("/")[2:])), mask=mask)


def _counts(images: list[Unit], having: set[Unit], keep_bare: bool) -> None:
    bare = [one for one in images if one not in having]
    done = "kept, nothing marked" if keep_bare else "left out"
    print(f"images: {len(images)}; with a mask: {len(having)}; without a mask, {done}: {len(bare)}"
          + (f" (e.g. {_names(bare)})" if bare else ""))  # fmt: skip


def _names(found: list[Unit]) -> str:
    return ", ".join(one.inner for one in found[:3]) or "(none)"
