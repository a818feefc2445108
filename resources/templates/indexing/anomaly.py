"""Folders of anomaly sets: `train|valid|test / good|Ungood / img|anomaly_mask` (BMAD), and `train/good`, `test/<defect>`,
`ground_truth/<defect>` (MVTec AD and what is laid out like it)."""

from __future__ import annotations

from pathlib import Path

from folder_layouts import HALF_WORDS, Case, image_files, natural, stem

NORMAL = ("good", "normal", "healthy", "ok")
ABNORMAL = ("ungood", "abnormal", "bad", "anomaly", "defect", "ng")
TRUTHS = ("ground_truth", "groundtruth")
MARKS = ("anomaly_mask", "label", "mask", "masks", "ground_truth")
PICTURES = ("img", "image", "images")
ENDS = ("", "_mask", "-mask", "_gt", "_label")
ANOMALY = "anomaly"


def anomaly_cases(folder: Path) -> tuple[list[Case], str]:
    """The cases with their halves, and the kind of record: `masks` where abnormal images have some, else `states`.

    Of a set with masks, abnormal images without one are left out: what is wrong with them is marked nowhere.

    Raises:
        SystemExit: no folder of normal images below a half of the set.
    """
    cases = [case for half in halves(folder) for state in folders(half) for case in _of_state(folder, half, state)]
    if not any(not case.values for case in cases):
        raise SystemExit(
            f"{folder} holds no normal images as anomaly sets have them: train/good, test/good (or normal, healthy) beside "
            "test/<defect> or Ungood. Use --class-folders, --images with --masks, or --table."
        )
    marked = any(case.mask for case in cases)
    bare = [case for case in cases if case.values and not case.mask]
    if marked and bare:
        print(f"abnormal images without a mask are left out: {len(bare)} (e.g. {bare[0].image})")
        cases = [case for case in cases if case.mask or not case.values]
    normal = sum(not case.values for case in cases)
    print(f"anomaly set: {normal} normal and {len(cases) - normal} abnormal images{', with masks' if marked else ''}")
    return cases, "masks" if marked else "states"


def halves(folder: Path) -> list[Path]:
    """Folders called after a half of the set, looked for down to two levels of wrapping folders; else the folder itself."""
    for level in (folder, *folders(folder), *(inner for one in folders(folder) for inner in folders(one))):
        found = [one for one in folders(level) if one.name.lower() in HALF_WORDS]
        if found:
            return found
    return [folder]


def folders(place: Path) -> list[Path]:
    return sorted((one for one in place.iterdir() if one.is_dir() and not one.name.startswith(".")), key=_order)


def _order(place: Path) -> list[tuple[int, int, str]]:
    return natural(place.name)


def _of_state(folder: Path, half: Path, state: Path) -> list[Case]:
    if state.name.lower() in (*TRUTHS, *MARKS):
        return []
    normal = state.name.lower() in NORMAL
    pictures = next((state / name for name in PICTURES if (state / name).is_dir()), state)
    places = [state / name for name in MARKS] + [half.parent / name / state.name for name in TRUTHS]
    masks = [place for place in places if place.is_dir()]
    taken = {place.name.lower() for place in masks}
    half_name = HALF_WORDS.get(half.name.lower(), "")
    cases = []
    for file in image_files(pictures):
        if any(part.lower() in taken for part in file.relative_to(pictures).parts[:-1]):
            continue
        mask = None if normal else _mask_of(file, masks)
        case = Case(file.as_posix(), [] if normal else [ANOMALY], split="test" if half_name == "test" else "train")
        case.mask = {ANOMALY: mask.as_posix()} if mask else None
        cases.append(case)
    return cases


def _mask_of(image: Path, places: list[Path]) -> Path | None:
    """The mask that is called like an image, in any picture format."""
    names = {stem(image.name) + end for end in ENDS}
    found = (file for place in places for file in sorted(place.iterdir()) if stem(file.name) in names)
    return next(found, None)
