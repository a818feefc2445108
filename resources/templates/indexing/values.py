"""The classes of masks: the numbers found in them, their names, and cases whose image or mask cannot serve."""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from folder_layouts import Case
from labelling import chosen, mapping
from Utils.formats import DataError, probe_image, read_numbered_labels, write_labels

MAX_VALUES = 256


# --- what the masks hold -----------------------------------------------------------------------------------------


def find_classes(
    cases: list[Case], args: argparse.Namespace, names: dict[int, str]
) -> tuple[list[Case], dict[str, int]]:
    """Cases whose mask fits their image, with the classes that occur in each, and the number of every class.

    `--map` merges classes: the masks are then written anew below Datapath/masks. Classes that --classes does not name
    are background.
    """
    if any(isinstance(case.mask, dict) for case in cases):
        return _by_file(cases, args)
    seen = look(cases, open_masks=not args.no_open)
    cases = [case for case in cases if case.mask is None or str(case.mask) in seen]
    counts = Counter(value for found in seen.values() for value in found)
    named = _named(counts, names, opened=not args.no_open)
    classes = {name: value for value, name in sorted(named.items())}
    if args.map:
        classes = _merge(cases, classes, args, seen)
    wanted = chosen(list(classes), args.classes)
    classes = {name: classes[name] for name in wanted}
    for case in cases:
        found = seen.get(str(case.mask), set())
        case.values = [name for name, value in classes.items() if value in found]
    return cases, classes


def look(cases: list[Case], *, open_masks: bool) -> dict[str, set[int]]:
    """The values in each mask, by its path; masks that do not open or do not fit their image are not in it."""
    whole = [case for case in cases if isinstance(case.mask, str)]
    if not open_masks:
        return {str(case.mask): set() for case in whole}
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = list(pool.map(_values, whole))
    bad = [fault for fault, _ in results if fault]
    if bad:
        print(f"dropped, mask does not fit or does not open: {len(bad)} (e.g. {'; '.join(bad[:2])})")
    seen = {str(case.mask): found for case, (fault, found) in zip(whole, results, strict=True) if not fault}
    if whole and not seen:
        raise SystemExit(f"No mask fits its image: {bad[0]}.")
    many = max((len(found) for found in seen.values()), default=0)
    if many > MAX_VALUES:
        raise SystemExit(f"A mask holds {many} different values; these files are images, not masks of labels.")
    return seen


def _values(case: Case) -> tuple[str, set[int]]:
    try:
        array = read_numbered_labels(str(case.mask)).array
        fault = _unlike(case, str(case.mask), array.shape)
        return fault, set() if fault else {int(value) for value in np.unique(array)} - {0}
    except DataError as error:
        return str(error), set()


def _unlike(case: Case, mask: str, shape: tuple[int, ...]) -> str:
    """What is wrong where a mask's shape is not that of its image."""
    grid = probe_image(case.image).shape
    fits = tuple(grid) == tuple(shape) or (len(grid) == len(shape) + 1 and grid[-1] == 1)
    return "" if fits else f"{mask} is {'x'.join(map(str, shape))}, its image {'x'.join(map(str, grid))}"


def _named(counts: Counter[int], names: dict[int, str], *, opened: bool) -> dict[int, str]:
    """A name for every value: given ones, else class_1, ...; what does not agree is said."""
    if not opened and not names:
        raise SystemExit("--no-open needs --values: without opening the masks their values are unknown.")
    if opened:
        print(
            "values in the masks: " + (", ".join(f"{v} in {n}" for v, n in sorted(counts.items())[:60]) or "none but 0")
        )
        if not counts:
            raise SystemExit("All masks are empty: no value but 0. Are these the right masks?")
    if not names:
        alone = len(counts) == 1
        named = {value: "finding" if alone else f"class_{value}" for value in sorted(counts)}
        shown = ",".join(f"{value}={name}" for value, name in named.items())
        print(f"no names given: {shown[:200]}; give them with --values")
        return named
    if len(names) == len(counts) == 1 and set(names) != set(counts):
        value, name = next(iter(counts)), next(iter(names.values()))
        print(f"the one value in the masks is {value}: it is {name}")
        return {value: name}
    twice = [name for name, n in Counter(names.values()).items() if n > 1]
    if twice:
        raise SystemExit(f"--values names {twice[0]!r} twice; names must differ.")
    if strange := sorted(value for value in counts if value not in names):
        told = ", ".join(f"{value} in {counts[value]} masks" for value in strange[:10])
        print(f"values without a name count as background: {told}; name them with --values")
    if opened and (idle := [f"{value} {name}" for value, name in sorted(names.items()) if value not in counts]):
        print(f"named values in no mask, left out: {', '.join(idle)}")
    return {value: name for value, name in names.items() if not opened or value in counts}


def _merge(
    cases: list[Case], classes: dict[str, int], args: argparse.Namespace, seen: dict[str, set[int]]
) -> dict[str, int]:
    """Merge classes by --map into new masks below Datapath/masks, numbered in the order of the options."""
    new_name = mapping(Counter(classes), args.map, args.rest)
    order = list(
        dict.fromkeys([item.partition("=")[0].strip() for item in args.map] + ([args.rest] if args.rest else []))
    )
    merged = {name: at for at, name in enumerate(order, 1) if name in new_name.values()}
    table = {value: merged[new_name[name]] for name, value in classes.items() if new_name[name]}
    place = Path("Datapath/masks")
    place.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(cases):
        if case.mask is None:
            continue
        array = read_numbered_labels(str(case.mask)).array
        wide = np.zeros(array.shape, np.uint16)
        for value, to in table.items():
            wide[array == value] = to
        file = write_labels(wide, case.image, place / f"{number:05d}")
        seen[file.as_posix()] = {table[value] for value in seen[str(case.mask)] if value in table}
        case.mask = file.as_posix()
    print(f"merged masks written to {place}: " + ", ".join(f"{name} {value}" for name, value in merged.items()))
    return merged


def _by_file(cases: list[Case], args: argparse.Namespace) -> tuple[list[Case], dict[str, int]]:
    """Binary masks by class: a class counts where its file marks anything."""
    names = list(dict.fromkeys(name for case in cases for name in (case.mask if isinstance(case.mask, dict) else ())))
    if args.map:
        raise SystemExit("--map does not merge masks that lie in a file each; choose with --classes.")
    names = chosen(names, args.classes)
    kept, bad = [], []
    with ThreadPoolExecutor(max_workers=4) as pool:
        for case, fault in zip(
            cases, pool.map(lambda one: _look_by_file(one, names, args.no_open), cases), strict=True
        ):
            (bad if fault else kept).append(fault or case)
    if bad:
        print(f"dropped, mask does not fit or does not open: {len(bad)} (e.g. {'; '.join(bad[:2])})")
    if not kept:
        raise SystemExit(f"No mask fits its image: {bad[0]}.")
    return kept, {name: at for at, name in enumerate(names, 1)}


def _look_by_file(case: Case, names: list[str], no_open: bool) -> str:
    if not isinstance(case.mask, dict):
        return ""
    case.mask = {name: case.mask[name] for name in names if name in case.mask}
    try:
        for name, file in case.mask.items():
            array = None if no_open else read_numbered_labels(file).array
            if array is not None and (fault := _unlike(case, file, array.shape)):
                return fault
            if array is None or array.any():
                case.values.append(name)
    except DataError as error:
        return str(error)
    return ""
