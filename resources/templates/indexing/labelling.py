"""Labels: renamed, merged, named, left out where they are rare, and put into order."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

from folder_layouts import Case, natural

ABSENCE = (
    "normal", "negative", "healthy", "clear", "control", "none", "no", "absent", "benign", "other", "rest", "0", "cn",
)  # fmt: skip
"""Words for not having the finding: such a label is numbered first, so that the last one is the positive."""


def there(path: Path) -> Path:
    if not path.exists():
        raise SystemExit(f"There is no {path}. Paths count from the working directory, such as data/NAME/table.csv.")
    return path


def pairs(text: str) -> dict[str, str]:
    """`0=a,1=b` as a mapping."""
    split = (pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    return {key.strip(): value.strip() for key, value in split}


def relabel(cases: list[Case], args: argparse.Namespace) -> list[Case]:
    """Apply --map, --rest and --none; cases whose labels are all left out are dropped, and counted."""
    values = Counter(value for case in cases for value in case.values)
    print("label values with an image: " + ", ".join(f"{v or '(empty)'} {n}" for v, n in values.most_common(30)))
    new_name = mapping(values, args.map, args.rest)
    kept, bare, unmapped = [], 0, 0
    for case in cases:
        known = [value for value in case.values if value]
        mapped = list(dict.fromkeys(name for value in known if (name := new_name[value])))
        unlabelled = case.values == [""]
        if not known and args.none:
            mapped = [args.none]
        elif unlabelled or (known and not mapped):
            bare, unmapped = bare + unlabelled, unmapped + (not unlabelled)
            continue
        case.values = mapped
        kept.append(case)
    for count, why in ((bare, "no label"), (unmapped, "label not mapped")):
        if count:
            print(f"dropped, {why}: {count}")
    without = sum(not case.values for case in kept)
    if without and not any(len(case.values) > 1 for case in kept):
        print(f"no label applies to {without} cases and no case has two: --none NAME makes them a class of their own")
    return kept


def mapping(values: Counter[str], maps: list[str], rest: str) -> dict[str, str]:
    """From every label value to its new name; empty for those that are left out."""
    if not maps and not rest:
        return {value: value for value in values}
    names = dict.fromkeys(values, rest)
    for item in maps:
        name, _, patterns = item.partition("=")
        fitting = 0
        for pattern in (patterns or name).split("|"):
            glob = re.compile(re.escape(pattern.strip()).replace(r"\*", ".*"), re.IGNORECASE | re.DOTALL)
            hits = [value for value in values if value and glob.fullmatch(value)]
            names.update(dict.fromkeys(hits, name.strip()))
            fitting += len(hits)
            if not hits:
                print(f"--map {name}: no case with an image has the label {pattern.strip()!r}")
        if not fitting:
            shown = ", ".join(value for value in values if value)
            raise SystemExit(f"--map {item!r}: no label value fits. Values: {shown[:400]}.")
    return names


def drop_rare(cases: list[Case], least: int) -> list[Case]:
    """Without the labels that fewer than `least` patients have, and the cases that had nothing else."""
    patients: dict[str, set[str]] = {}
    for case in cases:
        for value in case.values:
            patients.setdefault(value, set()).add(case.patient)
    rare = {value: len(found) for value, found in patients.items() if len(found) < least}
    if not rare:
        return cases
    kept = [case for case in cases if not case.values or not set(case.values) <= set(rare)]
    for case in kept:
        case.values = [value for value in case.values if value not in rare]
    print(f"dropped, fewer than {least} patients: {', '.join(f'{v} {n}' for v, n in sorted(rare.items()))}")
    return kept


def label_order(names: set[str], positive: str, maps: list[str] | None = None) -> list[str]:
    """Labels of absence first, then the order of --map where it names them all, else natural; the positive label last."""
    if positive and positive not in names:
        raise SystemExit(f"--positive {positive!r} is none of the labels: {', '.join(sorted(names))}.")
    absent = {
        name for name in names if re.split(r"[ _-]", name.lower())[0] in ABSENCE or name.lower().startswith("non")
    }
    given = list(dict.fromkeys(item.partition("=")[0].strip() for item in maps or []))
    if names <= set(given):
        return sorted(names, key=lambda name: (name == positive, name not in absent, given.index(name)))
    return sorted(names, key=lambda name: (name == positive, name not in absent, natural(name)))


def chosen(names: list[str], classes: str) -> list[str]:
    """Those of --classes, all without it."""
    if not classes:
        return names
    wanted = [name.strip().lower() for name in classes.split("|") if name.strip()]
    if strange := [name for name in wanted if name not in [one.lower() for one in names]]:
        raise SystemExit(f"--classes: there is no class {', '.join(strange)}. Classes: {', '.join(names)}.")
    return [name for name in names if name.lower() in wanted]
