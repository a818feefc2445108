"""The files of a tree in fine groups: one form of folder path, one form of name, one suffix.

What varies inside one of these groups is machine-made (numbers, hashes, dates, sides) or free text; words that differ
make groups of their own, which `grouping` puts together again where they hold the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from m3b.data.patterns import MAX_SHAPES
from m3b.data.patterns import shapes as digit_shapes
from m3b.data.survey.facts import FileKind
from m3b.data.survey.kinds import cut, kind_of_content, kind_of_name
from m3b.data.survey.tokens import is_hash, like_hashes, pieces, shape
from m3b.data.survey.walk import Tree, WalkedFolder

FREE = "{text}"
MAX_NAMES = 12
"""More forms of names than this in one kind of folder are taken for free text."""
_TAIL_SHARE = 0.1


@dataclass(slots=True)
class NamedFiles:
    """A fine group. `levels` and `name` are shapes; `members` has each folder's parts with the names of its files.
    `modality`: of DICOM files that names do not tell from others (`modalities`)."""

    levels: tuple[str, ...]
    name: str
    suffix: str
    kind: FileKind
    members: list[tuple[tuple[str, ...], list[str]]] = field(default_factory=list)
    count: int = 0
    modality: tuple[str, ...] = ()

    def add(self, folder: tuple[str, ...], names: list[str]) -> None:
        """More files of this group."""
        self.members.append((folder, names))
        self.count += len(names)

    def paths(self) -> Iterator[str]:
        """Every path, in the order of folders and names."""
        for folder, names in self.members:
            head = "/".join(folder)
            yield from (f"{head}/{name}" for name in names) if head else names

    def spread(self, most: int) -> list[str]:
        """At most so many paths, spread evenly."""
        chosen = spread(self.count, most)
        if len(chosen) == self.count:
            return list(self.paths())
        found, seen, at = [], 0, 0
        for folder, names in self.members:
            while at < len(chosen) and chosen[at] < seen + len(names):
                found.append("/".join((*folder, names[chosen[at] - seen])))
                at += 1
            seen += len(names)
        return found

    def stems(self, most: int) -> list[str]:
        """At most so many names without their suffix, spread evenly."""
        end = -len(self.suffix) or None
        step = max(-(-self.count // most), 1)
        return [
            name[:end] for _, names in self.members for name in (names[::step] if len(names) >= step else names[:1])
        ]


def spread(count: int, most: int) -> list[int]:
    """At most so many places of `count`, spread evenly."""
    return [(count * (2 * at + 1)) // (2 * most) for at in range(most)] if count > most else list(range(count))


def fine_groups(tree: Tree) -> list[NamedFiles]:
    """All files of a tree in fine groups, in an order of their own."""
    places = level_shapes(tree.folders)
    raw: dict[tuple[tuple[str, ...], str], dict[str, NamedFiles]] = defaultdict(dict)
    for folder, levels in zip(tree.folders, places, strict=True):
        for form, suffix, names in _names(folder):
            here = raw[levels, suffix]
            if form not in here:
                here[form] = NamedFiles(levels, form, suffix, kind_of_name(cut(names[0])[0], suffix))
            here[form].add(folder.parts, names)
    found = [one for key in sorted(raw) for one in _bounded(raw[key])]
    for one in found:
        if one.kind == "other":
            one.kind = kind_of_content(tree.root / next(one.paths()))
    return found


def level_shapes(folders: list[WalkedFolder]) -> list[tuple[str, ...]]:
    """For each folder the shapes of its path. Many siblings of different words are free text, or hashes."""
    inner: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for folder in folders:
        for depth in range(len(folder.parts)):
            inner[folder.parts[:depth]].add(folder.parts[depth])
    form: dict[tuple[str, ...], str] = {}
    for parent, names in inner.items():
        machine = like_hashes(sorted(names))
        shaped = {name: "{hash}" if machine else shape(name) for name in names}
        free = len(set(shaped.values())) > MAX_SHAPES
        for name in names:
            form[(*parent, name)] = FREE if free else shaped[name]
    return [tuple(form[folder.parts[: depth + 1]] for depth in range(len(folder.parts))) for folder in folders]


def _names(folder: WalkedFolder) -> Iterator[tuple[str, str, list[str]]]:
    """(shape, suffix, names) of one folder. Names are told apart by their digits first, for that is quick."""
    shapes = digit_shapes(folder.names)
    by_digits: dict[str, list[str]] = defaultdict(list)
    if len(set(shapes)) == 1:
        by_digits[shapes[0]] = folder.names
    else:
        for name, digits in zip(folder.names, shapes, strict=True):
            by_digits[digits].append(name)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for names in by_digits.values():
        stem, suffix = cut(names[0])
        key = shape(stem), suffix
        found[key] = found[key] + names if key in found else names
    for (form, suffix), names in sorted(found.items()):
        if len(by_digits) > 1:
            names = sorted(names)
        yield form, suffix, names


def _bounded(forms: dict[str, NamedFiles]) -> list[NamedFiles]:
    """Few forms stay; many are one group of free text, but for tails that several share (`..._mask`)."""
    total = sum(one.count for one in forms.values())
    stems = [cut(name)[0] for one in forms.values() for _, names in one.members[:50] for name in names[:50]]
    if any(form.count("{hash}") for form in forms) and len(forms) <= MAX_NAMES and like_hashes(stems):
        return [_merged("{hash}", list(forms.values()))]
    if len(forms) <= MAX_NAMES:
        return [forms[form] for form in sorted(forms)]
    tails = Counter[str]()
    for form, one in forms.items():
        if tail := _tail(form):
            tails[tail] += one.count
    kept = {tail for tail, count in tails.items() if count >= max(_TAIL_SHARE * total, 3)}
    by_tail: dict[str, list[NamedFiles]] = defaultdict(list)
    for form in sorted(forms):
        tail = _tail(form)
        by_tail[FREE + tail if tail in kept else FREE].append(forms[form])
    return [_merged(form, members) for form, members in sorted(by_tail.items())]


def _tail(form: str) -> str:
    """The last word of a form with the gap before it, numbers behind it included: `_mask`, `_mask_#`."""
    found = pieces(form.replace("{side}", "").replace("#", "0"))
    for index in range(len(found) - 1, 0, -1):
        kind, text = found[index]
        if kind == "word" and len(text) > 1:
            if found[index - 1][0] == "gap" and index > 1:
                return "".join("#" if one == "number" else piece for one, piece in found[index - 1 :])
            return ""
    return ""


def _merged(form: str, members: list[NamedFiles]) -> NamedFiles:
    """Several fine groups as one; the files of a folder in the order of their names."""
    first = members[0]
    by_folder: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one in members:
        for folder, names in one.members:
            by_folder[folder] += names
    merged = NamedFiles(first.levels, form, first.suffix, first.kind)
    for folder in sorted(by_folder):
        merged.add(folder, sorted(by_folder[folder]))
    return merged


__all__ = ["FREE", "NamedFiles", "fine_groups", "is_hash", "level_shapes"]
