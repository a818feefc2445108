"""Which mask belongs to which image: by equal names, by suffixes, by numbers, or by the folder of the case."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from folder_layouts import Case, _looks_like_slices, half_of, image_files, stem
from pairkeys import KEYS, Key, Unit, bare


def units(folder: Path, pattern: str, unit: str) -> list[Unit]:
    """What lies below a folder, `pattern` matching name or inner path; folders of slices are one unit each."""
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder.")
    everything = list(image_files(folder))
    files = [file for file in everything if not pattern or _fits(file, folder, pattern)]
    if not files and pattern and everything:
        shown = ", ".join(file.relative_to(folder).as_posix() for file in everything[:3])
        raise SystemExit(f"No file below {folder} fits {pattern!r} (a name, or a path). Files are such as {shown}.")
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
    whole = file.as_posix().lower()
    return any(
        fnmatch(file.name.lower(), p) or fnmatch(inner, p) or ("/" in p and fnmatch(whole, f"*/{p.removeprefix('./')}"))
        for p in pattern.lower().split("|")
    )


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
        raise SystemExit(f"No mask belongs to an image by its name. {_why_none(images, masks)}")
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
        everything = [one for listed in masks.values() for one in listed]
        raise SystemExit(f"No mask belongs to an image by its name. {_why_none(images, everything)}")
    return [_case(one, by_image.get(one)) for one in images if keep_bare or one in by_image]


def named_cases(images: list[Unit], masks: list[Unit], *, keep_bare: bool) -> list[Case]:
    """A case an image, its masks named after their class: `CASE/liver.nii.gz` or `CASE_liver.png`."""
    known = {}
    for one in images:
        for key in (one.name, bare(one.name), one.place):
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


def _why_none(images: list[Unit], masks: list[Unit]) -> str:
    """What was compared, and what to do: files on each side, keys that several share, names without a counterpart."""
    told = f"{len(images)} images, such as {_names(images)}; {len(masks)} masks, such as {_names(masks)}. "
    for name, key in KEYS:
        shared = {key(one) for one in images} & {key(one) for one in masks} - {"", "/"}
        if shared:
            several = [sum(key(one) == min(shared) for one in side) for side in (images, masks)]
            told += (
                f"{min(shared)!r} is {name} of {several[0]} images and {several[1]} masks: it must be of one each. "
                "Choose with --image and --mask; several masks of one image are not united here: write "
                "Datapath/manifest.json with masks.combine = union, or --mask NAME=GLOB for one class a file. "
            )
            break
    return told + "--image and --mask take patterns of names or paths, such as '*_mask.png' or 'masks/*.png'."


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
