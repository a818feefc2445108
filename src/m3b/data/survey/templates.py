"""The template of a group's paths: which text is fixed, which pieces vary, and the pattern that finds them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from m3b.data.patterns import shapes as digit_shapes
from m3b.data.survey.facts import PartKind
from m3b.data.survey.name_templates import NamedFiles
from m3b.data.survey.tokens import like_hashes, pieces, shape

MAX_VALUES = 60
MAX_WORDS = 20
"""Different words at one place of names, from more of which on they are free text."""
_PATTERNS: dict[str, str] = {
    "number": r"\d+", "side": r"[^\W\d_]+", "date": r"[\d\-_.]+", "uid": r"[\d.]+", "hash": r"[0-9A-Za-z-]+",
    "word": r"[^/]+?", "text": r"[^/]+?",
}  # fmt: skip

_WORDS = ("name.first", "name.last")
BODY = "name.body"
"""Of free names what stands between words that all of them begin or end with: `UM_1_17` of `UM_1_17_thickness`."""
_SIGNS = "_-. "


@dataclass(frozen=True)
class Slot:
    """A place in a template: fixed text, or a varying piece with its name, kind and the text before it."""

    text: str = ""
    name: str = ""
    kind: PartKind = "text"
    before: str = ""


@dataclass(frozen=True)
class Template:
    """The slots of all levels and of the name, and of free names the numbers behind words within them."""

    levels: tuple[tuple[Slot, ...], ...]
    name: tuple[Slot, ...]
    inner: tuple[tuple[str, str], ...]
    """(slot, regular expression with one group) of pieces inside a free name."""
    suffixes: tuple[str, ...]

    def shown(self) -> str:
        """Readable: `scans/p{number}/{word}.png`."""
        levels = ["".join(_shown(slot) for slot in level) for level in (*self.levels, self.name)]
        end = self.suffixes[0] if len(self.suffixes) == 1 else f"{{{','.join(self.suffixes)}}}" if self.suffixes else ""
        return "/".join(levels) + end

    def pattern(self) -> str:
        """A regular expression for whole paths, with a named group a slot."""
        looks = "".join(f"(?:(?=(?:[^/]*/)*{look}))?" for _, look in self.inner)
        levels = ["".join(_expression(slot) for slot in level) for level in (*self.levels, self.name)]
        ends = "|".join(re.escape(end) for end in self.suffixes)
        return looks + "/".join(levels) + (f"(?i:{ends})" if ends else "")

    def slots(self) -> list[Slot]:
        """The varying ones, in order."""
        found = [slot for level in (*self.levels, self.name) for slot in level if slot.name]
        kinds: dict[str, PartKind] = {**dict.fromkeys(_WORDS, "word"), BODY: "text"}
        return found + [Slot("", name, kinds.get(name, "number"), name.removeprefix("name.")) for name, _ in self.inner]


def _shown(slot: Slot) -> str:
    return f"{{{slot.kind}}}" if slot.name else slot.text


def _expression(slot: Slot) -> str:
    return f"(?P<{group_name(slot.name)}>{_PATTERNS[slot.kind]})" if slot.name else re.escape(slot.text)


def group_name(slot: str) -> str:
    """The name of a slot's group in the pattern."""
    return slot.replace(".", "_")


def template_of(files: Sequence[NamedFiles], most: int) -> Template:
    """The template of groups of one depth, from all their folders and at most so many of their names."""
    folders = {folder for one in files for folder, _ in one.members}
    depth = len(next(iter(folders)))
    levels = tuple(_level(sorted({one[level] for one in folders}), f"level{level}") for level in range(depth))
    stems = sorted({stem for one in files for stem in one.stems(max(most // len(files), 2))})
    suffixes = tuple(sorted({one.suffix for one in files if one.suffix}))
    name = _level(stems, "name")
    free = len(name) == 1 and name[0].kind == "text" and name[0].name != ""
    return Template(levels, name, tuple(_inner(stems)) if free else (), suffixes)


def _level(names: list[str], slot: str) -> tuple[Slot, ...]:
    """The slots of one level: fixed, cut into pieces where all names have one form, or one whole piece."""
    if len(names) == 1:
        return (Slot(names[0]),)
    if like_hashes(names):
        return (Slot("", slot, "hash"),)
    columns = _columns(names)
    if columns is None:
        words = all(all(kind in ("word", "gap", "number") for kind, _ in pieces(name)) for name in names[:MAX_VALUES])
        return (Slot("", slot, "word" if words and len(names) <= MAX_VALUES and slot != "name" else "text"),)
    varying = [index for index, (_, texts) in enumerate(columns) if len(texts) > 1]
    found: list[Slot] = []
    before = ""
    for index, (kind, texts) in enumerate(columns):
        if index not in varying:
            before += next(iter(texts))
            found.append(Slot(next(iter(texts))))
            continue
        name = slot if len(varying) == 1 and slot != "name" else f"{slot}.{varying.index(index)}"
        found.append(Slot("", name.replace("name.", "name"), kind, before))
        before = ""
    return tuple(found)


def _columns(names: list[str]) -> list[tuple[PartKind, set[str]]] | None:
    """The pieces of names of one form, each with its texts; None where the names have several forms."""
    first = pieces(names[0])
    kinds: list[PartKind] = [kind for kind, _ in first]  # type: ignore[misc]
    if len(set(digit_shapes(names))) == 1:  # the digits alone differ: every name is cut at the same places
        ends = list(accumulate(len(text) for _, text in first))
        cuts = [slice(end - len(text), end) for (_, text), end in zip(first, ends, strict=True)]
        return [(kind, {name[cut] for name in names}) for kind, cut in zip(kinds, cuts, strict=True)]
    if len({shape(name) for name in names}) > 1 and not _words_differ(names):
        return None
    columns = zip(*(pieces(name) for name in names), strict=True)
    return [(kind, {text for _, text in column}) for kind, column in zip(kinds, columns, strict=True)]


def _words_differ(names: list[str]) -> bool:
    """Whether names are built alike and differ, beside numbers, in few words between the same signs: `p1_benign_2`."""
    first, columns = pieces(names[0]), [set[str]() for _ in pieces(names[0])]
    if not any(kind == "number" for kind, _ in first):
        return False
    for name in names:
        here = pieces(name)
        if len(here) != len(first):
            return False
        for (kind, text), (its, other), column in zip(first, here, columns, strict=True):
            if kind != its or (kind == "gap" and text != other):
                return False
            column.add(other)
    return all(len(some) <= MAX_WORDS for (kind, _), some in zip(first, columns, strict=True) if kind == "word")


def _between(stems: list[str]) -> tuple[str, str] | None:
    """What all names begin and end with, in whole words with their signs; None where they have nothing in common."""
    first, last = min(stems), max(stems)
    head = first[
        : next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    ]
    head = head[: max(head.rfind(sign) for sign in _SIGNS) + 1]
    turned = sorted(stem[::-1] for stem in stems)
    tail = turned[0][: next((at for at, (a, b) in enumerate(zip(turned[0], turned[-1], strict=False)) if a != b), 0)]
    tail = tail[: max(tail.rfind(sign) for sign in _SIGNS) + 1][::-1]
    whole = all(len(stem) > len(head) + len(tail) for stem in stems)
    return (head, tail) if whole and (head or tail) else None


def _inner(stems: list[str]) -> list[tuple[str, str]]:
    """Of free names: the first and last word, and numbers that stand behind the same word in several names."""
    firsts, lasts, numbered = Counter[str](), Counter[str](), Counter[str]()
    for stem in stems:
        found = [(kind, text) for kind, text in pieces(stem) if kind != "gap"]
        words = [text for kind, text in found if kind == "word"]
        firsts[words[0].lower() if found and found[0][0] == "word" else ""] += 1
        lasts[words[-1].lower() if found and found[-1][0] == "word" else ""] += 1
        numbered.update({
            one[1].lower() for one, other in pairwise(found)
            if one[0] == "word" and other[0] == "number"
        })  # fmt: skip
    rows = []
    for slot, counts, look in (
        ("name.first", firsts, r"(?P<name_first>[^\W\d_]+)(?=[\W_\d])[^/]*$"),
        ("name.last", lasts, r"[^/]*[\W_\d](?P<name_last>[^\W\d_]+)(?:\.\w+)*$"),
    ):
        if 2 <= len([word for word in counts if word]) <= MAX_VALUES and counts[""] * 2 < len(stems):
            rows.append((slot, look))
    if (body := _between(stems)) is not None:
        rows.append((BODY, rf"{re.escape(body[0])}(?P<name_body>[^/]+?){re.escape(body[1])}(?:\.[A-Za-z]\w*)*$"))
    if (lead := sum(1 for stem in stems if stem[:1].isdigit())) > 0.3 * len(stems):
        rows.append(("name.lead", r"(?P<name_lead>\d+)[^/]*$"))
    least = max(0.1 * len(stems), 2)
    common = sorted(
        (word for word, count in numbered.items() if count >= least and word.isascii()),
        key=lambda word: (-numbered[word], word),
    )
    rows += [
        (f"name.{word}", rf"[^/]*(?i:{word})[\W_]?(?P<name_{word}>\d+)[^/]*$") for word in sorted(common[:6])
        if word not in ("first", "last", "lead", "body") and lead >= 0
    ]  # fmt: skip
    return rows
