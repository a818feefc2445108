"""The cases of a spec: which files, or items of containers, belong to one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from m3b.data.reading import shared
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.model import Files, Images
from m3b.data.spec.patterns import PatternError, checked, compiled, filled
from m3b.data.spec.slices import by_place
from m3b.data.survey.keys import key as normal
from m3b.data.survey.pairing_keys import beyond, match
from m3b.data.survey.relations import Rule

Lookup = Callable[[str, dict[str, str]], dict[str, str]]
"""Adds slots that need a look into the file (DICOM tags) to those of its path."""


@dataclass(frozen=True)
class Item:
    """A file, or one array or item of a container, with its slots.

    Args:
        path: below the data folder.
        reference: what an index names, relative to the data folder: the path, `path#key[3]`, or `path#frames=1`.
    """

    path: str
    reference: str
    slots: dict[str, str]


@dataclass
class CaseDraft:
    """One case while its index record is put together."""

    key: str
    items: list[Item]
    channels: dict[str, Item] = field(default_factory=dict)
    folder: str | None = None
    """The folder that is its image, for series and stacks of slices."""

    @property
    def name(self) -> str:
        """The path by which its name is brought together with others'."""
        return self.items[0].path if self.folder is None else self.folder

    @property
    def slots(self) -> dict[str, str]:
        """Those of its first file."""
        return self.items[0].slots

    @property
    def files(self) -> list[str]:
        """Every file of its images."""
        return [item.path for item in (*self.items, *self.channels.values())]


class DataFolder:
    """The files of a data folder, matched against patterns once each.

    Args:
        root: the data folder.
        files: paths of its regular files, in natural order.
        lookup: adds slots that the path alone does not hold.
    """

    def __init__(self, root: Path, files: Sequence[str], lookup: Lookup) -> None:
        self.root, self.files, self.lookup = root, files, lookup
        self._matched: dict[tuple[str, tuple[str, ...], str], list[Item]] = {}

    def items(self, files: Files, keys: Sequence[str] = ()) -> list[Item]:
        """The items of these files, in natural order.

        Args:
            keys: whose slots are needed.

        Raises:
            PatternError: a pattern cannot be used, or a container has no such member.
        """
        known = (files.pattern, files.exclude, files.member)
        if known not in self._matched:
            self._matched[known] = self._find(files)
        wanted = "".join(keys)
        return [Item(i.path, i.reference, self.lookup(wanted, i.slots)) for i in self._matched[known]]

    def _find(self, files: Files) -> list[Item]:
        pattern, exclude = compiled(files.pattern), [compiled(one) for one in files.exclude]
        found: list[Item] = []
        for path in self.files:
            slots = pattern.match(path)
            if slots is None or any(one.match(path) is not None for one in exclude):
                continue
            found += self._members(path, slots, files.member) if files.member else [Item(path, path, slots)]
        return found

    def _members(self, path: str, slots: dict[str, str], member: str) -> list[Item]:
        """The arrays of a container whose key matches, or the items along their first axis."""
        each = member.endswith("[#]")
        pattern = compiled(member.removesuffix("[#]"))
        arrays = shared().arrays.open_arrays(self.root / path)
        found = []
        for key in arrays:
            inner = pattern.regex.fullmatch(key)
            if inner is None:
                continue
            here = {**slots, **{name: value or "" for name, value in inner.groupdict().items()}, "member": key}
            if not each:
                found.append(Item(path, f"{path}#{key}", here))
                continue
            length = shared().arrays.array_shape(self.root / path, key)[0]
            found += [Item(path, f"{path}#{key}[{at}]", {**here, "index": str(at)}) for at in range(length)]
        if not found:
            raise PatternError(f"{path} has no array {member!r}; it has {', '.join(map(repr, list(arrays)[:12]))}.")
        return found


def build_cases(
    folder: DataFolder, images: Images, accounting: Accounting, needed: Sequence[str] = ()
) -> list[CaseDraft]:
    """The cases of a spec in natural order; files that cannot be part of one are left out with the reason.

    Args:
        needed: keys of other parts of the spec, whose slots cases must have.

    Raises:
        PatternError: no file matches, or a key names a slot that is not there.
    """
    items = folder.items(images.files, (images.case, *needed))
    if not items:
        raise PatternError(f"No file matches images.files.pattern {images.files.pattern!r}.")
    checked(images.case, tuple(items[0].slots), "images.case")
    grouped: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        own = item.reference if images.case == "{path}" else filled(images.case, item.slots)
        grouped[item.slots["folder"] if images.unit == "folder" else own].append(item)
    natural = shared().natural_key
    clip = f"#frames={images.frames}" if images.frames else ""
    cases = []
    for name, some in sorted(grouped.items(), key=lambda pair: natural(pair[0])):
        if images.several == "one" and images.unit == "file" and len(some) > 1:
            accounting.leave((item.path for item in some[1:]), "a second image of a case of one image")
            some = some[:1]
        own_folder = name if images.unit == "folder" else None
        some = [replace(item, reference=f"{item.reference}{clip}") for item in some]
        some = sorted(some, key=lambda item: natural(item.reference))
        if images.several == "slices" and "{tag." in images.case:
            some = [some[at] for at in by_place(folder.lookup, [item.slots for item in some])]
        cases.append(CaseDraft(name, some, folder=own_folder))
    for channel in images.channels:
        found = folder.items(channel.files, (channel.case,))
        if channel.by:
            of_case = by_names(cases, found, channel.by)
        else:
            of_case = by_keys(cases, found, channel.case or "{path}", channel.case or "{path}", channel.rule)
        for case in cases:
            if len(of_case.get(case.key, ())) == 1:
                case.channels[channel.name] = of_case[case.key][0]
    if images.channels:
        cases = _whole(cases, [channel.name for channel in images.channels], accounting)
    return cases


def by_keys(
    cases: Sequence[CaseDraft], items: Sequence[Item], image: str, own: str, rule: Rule
) -> dict[str, list[Item]]:
    """The items of every case (by its key), where two filled-in keys agree under a rule."""
    grouped: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        grouped[normal(rule, filled(own, item.slots))].append(item)
    keys = {case.key: normal(rule, filled(image, case.slots)) for case in cases}
    return {name: grouped[key] for name, key in keys.items() if key in grouped}


def by_names(cases: Sequence[CaseDraft], items: Sequence[Item], recipe: Sequence[str]) -> dict[str, list[Item]]:
    """The items of every case (by its key), as the survey brings names together; `rest` is what tells each from its image."""
    units = {item.path: item for item in items}
    named = {case.name: case.key for case in cases}
    pairs = match(list(named), list(units), recipe, recipe)
    return {named[left]: [_told_apart(units[path], left) for path in right] for left, right in pairs.items()}


def _told_apart(item: Item, image: str) -> Item:
    return Item(item.path, item.reference, {**item.slots, "rest": beyond(image, item.path)})


def _whole(cases: list[CaseDraft], names: list[str], accounting: Accounting) -> list[CaseDraft]:
    """Cases that have every channel."""
    kept = []
    for case in cases:
        missing = [name for name in names if name not in case.channels]
        if missing:
            accounting.leave(case.files, f"the case has no {missing[0]}")
        else:
            kept.append(case)
    return kept
