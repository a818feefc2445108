"""Cases with masks: two folders, folders of cases, or the dataset.json of the Decathlon and of nnU-Net."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folder_layouts import Case, half_of
from labelling import there
from pairkeys import Unit
from pairs import class_cases, named_cases, pair_cases, units
from valuenames import value_names


def mask_cases(args: argparse.Namespace) -> tuple[list[Case], dict[int, str]]:
    """The cases, and what is known of the values' names."""
    names = value_names(args.values)
    if args.dataset_json:
        cases, own = from_dataset_json(there(args.dataset_json), args)
        return cases, names or own
    keep_bare = args.missing_mask == "empty"
    folder = there(args.case_folders or args.images or _needed("--images"))
    images = _one_channel(units(folder, args.image, args.unit), args.channel)
    by_class, plain = _by_class(args.mask)
    if args.case_folders:
        if not by_class and not plain:
            _needed("--mask")
        masks = {name: units(folder, pattern, "file") for name, pattern in by_class.items()}
        listed = units(folder, plain, "file") if plain else []
    else:
        folders = dict(_named_folder(item) for item in args.masks)
        masks = {name: units(there(place), plain, args.unit) for name, place in folders.items() if name}
        listed = [one for name, place in folders.items() if not name for one in units(there(place), plain, args.unit)]
        for name, pattern in by_class.items():
            masks[name] = [one for place in folders.values() for one in units(there(place), pattern, args.unit)]
    taken = {one.path for one in [*listed, *(one for found in masks.values() for one in found)]}
    images = [one for one in images if one.path not in taken] or images
    if masks:
        return class_cases(images, masks, keep_bare=keep_bare), names
    if args.class_masks:
        return named_cases(images, listed, keep_bare=keep_bare), names
    return pair_cases(images, listed, keep_bare=keep_bare), names


def _needed(option: str) -> Path:
    raise SystemExit(f"Give {option} too. See --help.")


def _named_folder(item: str) -> tuple[str, Path]:
    name, mark, place = item.partition("=")
    return (name.strip(), Path(place)) if mark and not Path(item).exists() else ("", Path(item))


def _by_class(patterns: list[str]) -> tuple[dict[str, str], str]:
    """Patterns by class, and the one pattern of all masks."""
    split = [item.partition("=") for item in patterns]
    return {name.strip(): glob for name, mark, glob in split if mark}, "|".join(
        name for name, mark, _ in split if not mark
    )


def _one_channel(images: list[Unit], channel: int) -> list[Unit]:
    """nnU-Net writes the channels of one image as case_0000, case_0001, ...: one of them is kept."""
    ends = {one.name[-5:] for one in images if re.search(r"_\d{4}$", one.name)}
    heads: dict[str, int] = {}
    for one in images:
        if one.name[-5:] in ends:
            heads[one.inner.split(".")[0][:-5]] = heads.get(one.inner.split(".")[0][:-5], 0) + 1
    if "_0000" not in ends or max(heads.values(), default=0) < 2:
        return images
    kept = [one for one in images if one.name[-5:] not in ends or one.name.endswith(f"_{channel:04d}")]
    print(
        f"channels {', '.join(sorted(ends))}: only _{channel:04d} is used (--channel); {len(images) - len(kept)} files left out"
    )
    return kept


def from_dataset_json(file: Path, args: argparse.Namespace) -> tuple[list[Case], dict[int, str]]:
    """The pairs that it lists, or those of imagesTr and labelsTr; and the names of its labels."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"{file} is not valid JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise SystemExit(f"{file} is no dataset.json: it holds no object.")
    names = _label_names(raw.get("labels"))
    listed = raw.get("training")
    if isinstance(listed, list) and any(isinstance(item, dict) and item.get("label") for item in listed):
        return _listed(file.parent, [item for item in listed if isinstance(item, dict)]), names
    cases: list[Case] = []
    for half in ("Tr", "Ts"):
        images, labels = file.parent / f"images{half}", file.parent / f"labels{half}"
        if images.is_dir() and labels.is_dir():
            found = _one_channel(units(images, args.image, "file"), args.channel)
            cases += pair_cases(found, units(labels, "", "file"), keep_bare=False)
    if not cases:
        raise SystemExit(f"{file} lists no pairs of image and label, and there is no imagesTr beside labelsTr.")
    for case in cases:
        case.split = half_of("/".join(str(case.image).split("/")[2:]))
    return cases, names


def _label_names(labels: Any) -> dict[int, str]:
    """{"1": "liver"} of the Decathlon, {"liver": 1} of nnU-Net v2; regions (lists of values) have no value of their own."""
    if not isinstance(labels, Mapping):
        return {}
    if all(str(key).isdecimal() for key in labels):
        return {int(key): str(name) for key, name in labels.items() if int(key)}
    return {value: str(name) for name, value in labels.items() if isinstance(value, int) and value > 0}


def _listed(folder: Path, items: list[dict[str, Any]]) -> list[Case]:
    cases, absent = [], []
    for item in items:
        image, mask = item.get("image"), item.get("label")
        image = image[0] if isinstance(image, list) and image else image
        if not image or not mask:
            continue
        places = [_inside(folder, str(name)) for name in (image, mask)]
        if places[0] is None or places[1] is None:
            absent.append(str(image))
        else:
            cases.append(Case(places[0].as_posix(), [], mask=places[1].as_posix()))
    print(f"listed pairs: {len(items)}; with both files: {len(cases)}"
          + (f"; without: {len(absent)} (e.g. {absent[0]})" if absent else ""))  # fmt: skip
    if not cases:
        raise SystemExit("None of the listed pairs has both files.")
    return cases


def _inside(folder: Path, name: str) -> Path | None:
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    place = folder.joinpath(*parts)
    if ".." in parts:
        return None
    if place.exists():
        return place
    bare = place.with_name(re.sub(r"(\.nii(\.gz)?|\.\w+)$", "", place.name))
    tries = [bare.with_name(bare.name + end) for end in ("_0000.nii.gz", ".nii.gz", ".nii", "_0000.nii")]
    return next((path for path in tries if path.exists()), None)
