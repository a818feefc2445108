"""The cases of a spec: which files, or items of containers, belong to one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from m3b.data.reading import shared
from m3b.data.spec.accounting import Accounting
from m3b.data.spec.folder import DataFolder, Item
from m3b.data.spec.model import Images
from m3b.data.spec.patterns import PatternError, checked, filled
from m3b.data.spec.slices import by_place
from m3b.data.survey.keys import key as normal
from m3b.data.survey.pairing_keys import beyond, match
from m3b.data.survey.relations import Rule


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
