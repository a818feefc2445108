"""Images and their masks, and images of the same case: which groups lie on each other, file by file, and on what grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from statistics import median
from typing import Literal

from m3b.data.survey.divisions import Division
from m3b.data.survey.facts import Value
from m3b.data.survey.gathering import Gathered, Gathering
from m3b.data.survey.grids import grids
from m3b.data.survey.pairing_keys import FOLDERS, NAMES, beyond, match
from m3b.data.survey.relations import Pairing, Tested

MAX_PAIRS = 80
MAX_FILES = 30_000
_LEAST = 0.3
"""Of the smaller group, the share that has to be matched for a pairing to be stated."""
_MAX_CLASSES = 40

Role = Literal["mask", "image", "annotation", "table"]


def pairings_of(found: Gathering, splits: Sequence[Division] = ()) -> list[Pairing]:
    """Every pairing of an image group with masks, files of marks, tables of its own, or other images."""
    made: list[Pairing] = _within_containers(found)
    for left, right, role in _candidates(found):
        if found.tree.late or len(made) >= MAX_PAIRS:
            found.tree.notes.add("time" if found.tree.late else "pairings", left.id)
            break
        if (one := pair(found, left, right, role, splits)) is not None:
            made.append(one)
    return sorted(made, key=lambda one: (one.role != "mask", one.left, one.right))


def _candidates(found: Gathering) -> Iterator[tuple[Gathered, Gathered, Role]]:
    images = [group for group in found.groups if group.is_images and group.template]
    masks = [group for group in found.groups if group.is_masks and group.template]
    small = [group for group in found.groups if group.fact.kind in ("table", "xml", "json", "text", "list") and
             group.merged.count > 12]  # fmt: skip
    for image in images:
        for mask in masks:
            yield image, mask, "mask"
    for image in images:
        for other in small:
            yield image, other, "table"
    for one, other in combinations(images, 2):
        yield one, other, "image"
    for one, other in combinations(masks, 2):
        yield one, other, "mask"


def pair(
    found: Gathering, left: Gathered, right: Gathered, role: Role, splits: Sequence[Division] = ()
) -> Pairing | None:
    """The best pairing of two groups; None where too few files belong together."""
    mine, theirs = left.units[:MAX_FILES], right.units[:MAX_FILES]
    best: tuple[tuple[float, ...], tuple[str, str], dict[str, list[str]]] | None = None
    if min(len(mine), len(theirs)) == 1 and mine[0].rpartition("/")[0] != theirs[0].rpartition("/")[0]:
        return None  # one file belongs to anything
    for rank, (folder, name) in enumerate(_recipes(left, right)):
        pairs = match(mine, theirs, (folder, name), (folder, name))
        if not pairs:
            continue
        matched = {path for some in pairs.values() for path in some}
        shares = len(pairs) / len(mine), len(matched) / len(theirs)
        shared_by = sum(len(some) for some in pairs.values()) / len(matched)
        most = max(len(some) for some in pairs.values())
        score = (round(sum(shares), 3) - (0.5 if shared_by > 1.01 else 0) - (0.002 if most > 1 else 0), -rank)
        if best is None or score > best[0]:
            best = (score, (folder, name), pairs)
        if min(shares) == 1 and most == 1 and shared_by == 1:
            break
    if best is None:
        return None
    made = _pairing(found, left, right, role, best[1], best[2])
    return made and made.model_copy(update={"tested": _tested(left, best[2], splits)})


def _tested(left: Gathered, pairs: Collection[str], splits: Sequence[Division]) -> tuple[Tested, ...]:
    """How many images of each split's test part are paired."""
    made = []
    for split in splits if not left.by_folder else ():
        files = [path for path, side in split.sides.items() if side == "test"] if split.group == left.id else []
        if files:
            made.append(Tested(split=split.fact.id, files=len(files), matched=sum(path in pairs for path in files)))
    return tuple(made)


def _recipes(left: Gathered, right: Gathered) -> Iterator[tuple[str, str]]:
    for name in NAMES:
        for folder in FOLDERS:
            if not name and not folder:
                continue
            if not name and folder == "folders.last" and not _one_a_folder(left):
                continue
            if not name and not _one_a_folder(left):
                continue
            yield folder, name


def _one_a_folder(group: Gathered) -> bool:
    return len({path.rpartition("/")[0] for path in group.units[:MAX_FILES]}) == min(len(group.units), MAX_FILES)


def _pairing(
    found: Gathering, left: Gathered, right: Gathered, role: Role, recipe: tuple[str, str], pairs: dict[str, list[str]]
) -> Pairing | None:
    matched = {path for some in pairs.values() for path in some}
    small = min(len(left.units), len(right.units), MAX_FILES)
    if len(pairs) < _LEAST * small or sum(map(len, pairs.values())) > 1.5 * len(matched):
        return None
    found_for = Counter(path for some in pairs.values() for path in some)
    counts = [len(some) for some in pairs.values()]
    most = max(counts)
    classes = _classes(pairs) if most > 1 else Counter[str]()
    compared, same, fits = grids(found, left, right, pairs) if role in ("mask", "image") else (0, 0, 0)
    return Pairing(
        left=left.id,
        right=right.id,
        kind="one_to_one" if most == 1 else "per_class" if classes else "many_to_one",
        role=role,
        left_slots=tuple(slot for slot in recipe if slot),
        right_slots=tuple(slot for slot in recipe if slot),
        left_units="folders" if left.by_folder else "files",
        right_units="folders" if right.by_folder else "files",
        left_files=len(left.units),
        left_matched=len(pairs),
        shared=sum(any(found_for[path] > 1 for path in some) for some in pairs.values()),
        right_files=len(right.units),
        right_matched=len(matched),
        per_left=(min(counts), int(median(counts)), most),
        class_slot="rest" if classes else "",
        classes=tuple(Value(text=text, count=count) for text, count in sorted(classes.items())),
        compared=compared,
        same_grid=same,
        fits=round(fits / compared, 3) if compared else None,
        unmatched_left=_few(set(left.units[:MAX_FILES]) - pairs.keys()),
        unmatched_right=_few(set(right.units[:MAX_FILES]) - matched),
    )


def _few(paths: set[str]) -> tuple[str, ...]:
    return tuple(sorted(paths)[:3])


def _classes(pairs: dict[str, list[str]]) -> Counter[str]:
    """The words by which the right files of one left file differ, where they are few and each stands once a case."""
    counts = Counter[str]()
    for left, some in pairs.items():
        rests = [beyond(left, path) for path in some]
        if len(set(rests)) != len(rests):
            return Counter()
        counts.update(rests)
    words = all(any(ch.isalpha() for ch in text) and len(text) <= 40 for text in counts)
    repeated = len(pairs) < 3 or sum(counts.values()) >= 2 * len(counts)
    return counts if words and len(counts) <= _MAX_CLASSES and repeated else Counter()


def _within_containers(found: Gathering) -> list[Pairing]:
    """Image and mask as keys of the same files."""
    made = []
    for group in found.groups:
        members = group.container.members if group.container else ()
        images = [one for one in members if one.role == "image" and not one.split]
        masks = [one for one in members if one.role == "mask" and not one.split]
        for image in images:
            for mask in masks:
                same = image.content and mask.content and image.content.shapes == mask.content.shapes
                made.append(
                    Pairing(
                        left=group.id, right=group.id, kind="per_key", role="mask", left_key=image.key, right_key=mask.key,
                        left_files=group.merged.count, left_matched=min(image.files, mask.files) * group.merged.count
                        // max(group.container.looked if group.container else 1, 1),
                        right_files=group.merged.count, right_matched=min(image.files, mask.files) * group.merged.count
                        // max(group.container.looked if group.container else 1, 1),
                        compared=1, same_grid=int(bool(same)), fits=float(bool(same)),
                    )
                )  # fmt: skip
    return made
