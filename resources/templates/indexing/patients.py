"""Who is who: patients from a pattern, or from the first number in the names."""

from __future__ import annotations

import re
from math import ceil

from folder_layouts import Case, stem

ENOUGH = 5
"""A number that stands for fewer groups than this (or than half of the cases) is no patient's."""


def set_patients(cases: list[Case], regex: str, *, guess: bool) -> None:
    """Every case gets a patient; unknown ones are called `unknown-<n>`, each by itself.

    Args:
        guess: without `regex` and where no case has a patient yet, take the names up to their first number.
    """
    if regex:
        for case in cases:
            found = re.search(regex, path_of(case))
            case.patient = ((found.group(1) if found.groups() else found.group(0)) or "") if found else ""
    elif guess and not any(case.patient for case in cases):
        _by_number(cases)
    unknown = 0
    for number, case in enumerate(cases):
        if not case.patient:
            unknown += 1
            case.patient = f"unknown-{number:06d}"
    if unknown:
        print(f"patient unknown: {unknown} cases, called unknown-<n>; cases of one person may be on both sides")


def path_of(case: Case) -> str:
    return case.image if isinstance(case.image, str) else case.image[0]


def _by_number(cases: list[Case]) -> None:
    """The patient is what stands before and in the first number of a path that tells enough cases apart.

    `train_11_a_2` gives `train_11`, `sub-verse018_split-201` gives `sub-verse018`, `p7/flair.nii.gz` gives `p7`.
    """
    named = [case for case in cases if "#" not in path_of(case)]
    heads = [_heads(path_of(case)) for case in named]
    for at in range(max(map(len, heads), default=0)):
        names = [
            (
                f"{case.split} {found[at]}".strip() if found[at].isdecimal() else found[at]
            )  # 001 of train is not that of test
            if at < len(found)
            else path_of(case)
            for found, case in zip(heads, named, strict=True)
        ]
        different = len(set(names))
        if different >= min(ENOUGH, ceil(len(named) / 2)) and (different > 1 or len(named) == 1):
            for case, name in zip(named, names, strict=True):
                case.patient = name
            print(f"patient: names up to a number, such as {names[0]!r} ({different} different ones)")
            return


def _is_hash(part: str) -> bool:
    """Whether a name is random: hexadecimal digits alone, or letters and digits that take turns often."""
    bare = re.sub(r"[-_]", "", part).lower()
    mixed = any(ch.isdigit() for ch in bare) and any(ch.isalpha() for ch in bare)
    turns = len(re.findall(r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=[a-z])", bare))
    return mixed and (
        (len(bare) >= 12 and re.fullmatch(r"[0-9a-f]+", bare) is not None) or (len(bare) >= 16 and turns >= 5)
    )


def _heads(path: str) -> list[str]:
    """Every beginning of a part of the path that ends with a number, from the top; the data folder's name is left out."""
    parts = path.split("/")[2:] or [path]
    heads = []
    for part in (*parts[:-1], stem(parts[-1])):
        if _is_hash(part):  # digits in it say nothing; a folder of that name may be a patient, a file is one image
            heads += [part] if part in parts[:-1] else []
            continue
        heads += [part[: found.end()] for found in re.finditer(r"[^\W\d_]*\d+[^\W_]*", part)]
    return heads
