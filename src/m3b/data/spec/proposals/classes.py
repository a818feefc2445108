"""From the values of a column or folder level to the classes that a request asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from m3b.data.spec.proposals.ask import Ask
from m3b.data.spec.proposals.language import listed, named, negative, ranked, synonyms, telling, words
from m3b.data.spec.proposals.matching import Said, abbreviates, assigned, means, short
from m3b.data.spec.proposals.vocabulary import REST, UNCLEAR, WITHOUT


@dataclass(frozen=True)
class Classes:
    """Classes and what of the data means each.

    Args:
        mapping: class -> values, in the order of a model's outputs.
        hits: classes that the request names.
        why: what was decided, in a few words; empty where every value is a class of its own.
        doubt: why this may not be what is meant; a person should say.
        none: of labels of which a case may have several: the class of cases that have no other.
    """

    mapping: dict[str, tuple[str, ...]]
    hits: int
    why: str = ""
    doubt: str = ""
    none: str = ""


YES = frozenset(["1", "1.0", "true", "yes", "y", "positive", "pos", "present"])
NO = frozenset(["0", "0.0", "false", "no", "n", "negative", "neg", "absent"])


def classes_for(
    values: Mapping[str, int], request: str, wanted: tuple[str, ...] = (), said: Said | None = None, place: str = ""
) -> Classes:
    """The classes of these values (value -> cases).

    Classes that the request lists are matched with the values one by one. One finding that it sets against the rest
    gives two classes. Otherwise every value is a class.

    Args:
        wanted: classes that were chosen before.
        place: how the column or folder level is called.
    """
    said = said or Said({}, {})
    clear = [value for value in values if not set(words(value)) & UNCLEAR and value.strip()]
    flags = {value.casefold(): value for value in clear}
    if len(flags) == 2 and set(flags) <= YES | NO and not set(flags) <= NO and not set(flags) <= YES:
        return _yes_no(flags, request, wanted, said, place)
    if all(_is_number(value) for value in clear):
        return _numbered(clear, request, wanted, said)
    return _named(clear, request, wanted, said)


def _is_number(value: str) -> bool:
    return value.strip().replace(".", "", 1).isdigit()


def _yes_no(flags: Mapping[str, str], request: str, wanted: tuple[str, ...], said: Said, place: str) -> Classes:
    """A column that says whether something is there: classes are called after it where the request names it."""
    no, yes = (next(value for low, value in flags.items() if low in some) for some in (NO, YES))
    if no in said.names and yes in said.names:
        return _numbered([no, yes], request, wanted, said)
    items = list(wanted) if len(wanted) > 1 else listed(request)
    doubt = ""
    if len(items) > 2 or (len(items) == 2 and not any(negative(item) for item in items)):
        doubt = f"yes and no are two classes; the request lists {_some(items)}"
    own = place.rsplit(".", 1)[-1]
    asked = [item for item in items if not negative(item)]
    reached = _reach(" ".join(asked) if len(items) > 1 and asked else request)
    if not doubt and telling(own) and telling(own) <= reached:
        name = " ".join(re.split(r"[\W_]+", own)).strip()
        return Classes({f"no {name}": (no,), name: (yes,)}, 2)
    return Classes({no: (no,), yes: (yes,)}, len(named([no, yes], request)), "", doubt)


def _reach(request: str) -> frozenset[str]:
    return telling(request) | {one for word in telling(request) for one in synonyms(word)}


def _numbered(clear: list[str], request: str, wanted: tuple[str, ...], said: Said) -> Classes:
    """Classes that are numbers: by their names, where notes or a document give all of them."""
    order = ranked(clear)
    if clear and all(value in said.names for value in clear):
        names = [said.names[value] for value in order]
        if len(set(names)) == len(names):
            made = _named(names, request, wanted, Said({}, {}), ordered=True)
            back = dict(zip(names, order, strict=True))
            mapping = {name: tuple(back[one] for one in some) for name, some in made.mapping.items()}
            return Classes(mapping, made.hits, made.why or "names of the numbers as the notes give them", made.doubt)
    items = listed(request)
    asked = len(wanted) or (len(items) if len(items) > 2 else 0)
    doubt = ""
    if asked and asked != len(clear):
        doubt = f"{asked} classes are asked for, the numbers are {', '.join(order)}"
    hits = len(order) if _says_range(request, order) else 0
    return Classes({value: (value,) for value in order}, hits, "", doubt)


def by_order(found: Classes, ask: Ask) -> Classes:
    """Numbers under the names that a request lists as many of, in its order, which a person has to confirm: nothing else says it.

    Of a yes and a no that are told apart by words as before, nothing is asked.
    """
    items = list(ask.classes) or listed(ask.request)
    numbers = ranked([value for some in found.mapping.values() for value in some])
    bare = all(name in some for name, some in found.mapping.items())
    if found.hits or not bare or len(items) < 2 or len(items) != len(numbers):
        return found
    if len(items) == 2 and sum(map(negative, items)) == 1 and numbers == ["0", "1"]:
        return found
    named = ", ".join(f"{number} is {item}" for number, item in zip(numbers, items, strict=True))
    doubt = f"whether {named}: nothing but the order of the request says so; tell it in the request or in a README (`1 = ...`)"
    return Classes({item: (number,) for number, item in zip(numbers, items, strict=True)}, 0, "", doubt)


_RANGE = re.compile(
    r"(?<![\w.])(?=(\d+)\b[^.;\d]{0,40}?(?:\bto\b|\bbis\b|-|\u2013)\s*(?:[^\W\d_]{1,12}[-_ ]?)?(\d+)(?![\w.]))"
)
"""Ranges may overlap: `COVID-19 on CT from CT-0 to CT-3`."""


def _says_range(request: str, order: Sequence[str]) -> bool:
    """Whether a request speaks of the numbers from the lowest to the highest: `grade 0 to 4`, `from 0 (none) to 4 (severe)`."""
    ends = {(float(order[0]), float(order[-1]))} if order else set()
    return bool(ends & {(float(low), float(high)) for low, high in _RANGE.findall(request)})


def _named(clear: list[str], request: str, wanted: tuple[str, ...], said: Said, *, ordered: bool = False) -> Classes:
    if wanted and (chosen := _wanted(clear, wanted)):
        return chosen
    hits = named(clear, request)
    positive = [value for value in hits if not negative(value)]
    if set(words(request)) & REST and len(positive) == 1 and len(clear) > 2:
        return _against_rest(clear, positive[0])
    items = list(wanted) if len(wanted) > 1 else listed(request)
    if len(items) > 1:
        return _by_items(clear, items, hits, said, request, ordered=ordered, chosen=bool(wanted))
    if len(positive) == 1 and len(hits) == 1 and _one_finding(request) and len(clear) > 2:
        return _against_rest(clear, positive[0])
    doubt = ""
    if _one_finding(request) and items and not _any_meant(clear, items[0], said):
        doubt = f"no label is called like {items[0]!r}; there are {_some(clear)}"
    return Classes({value: (value,) for value in (clear if ordered else ranked(clear))}, len(hits), "", doubt)


def _any_meant(clear: list[str], item: str, said: Said) -> bool:
    """Whether a label can mean what is looked for: by its words, its initials, or by standing beside its absence."""
    if any(means(value, item, said) or abbreviates(value, item) for value in clear):
        return True
    return len(clear) == 2 and sum(set(words(value)) <= {"positive", "negative", "abnormal", "normal", "healthy",
        "control", "ill", "sick", "diseased", "well"} for value in clear) > 0  # fmt: skip


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - 6} more" if len(values) > 6 else ""
    return ", ".join(map(repr, list(values)[:6])) + more


def _by_items(
    clear: list[str], items: list[str], hits: list[str], said: Said, request: str, *, ordered: bool, chosen: bool
) -> Classes:
    """Each thing that a request lists with the values that mean it.

    Values that the request names elsewhere (`hits`) are classes too, so that none is lost to how a sentence is built.
    """
    found = assigned(clear, items, said)
    open_items = [item for item in items if not found[item]]
    taken = {value for some in found.values() for value in some}
    if not chosen:
        found |= {value: [value] for value in hits if value not in taken}
        taken |= set(hits)
    free = [value for value in clear if value not in taken]
    healthy = [value for value in free if negative(value)]
    if len(healthy) == 1 and taken and _looks_for(request) and not any(map(negative, (*items, *taken))):
        found[healthy[0]], free = healthy, [value for value in free if value not in healthy]
    if len(items) - len(open_items) < 2 and not taken:
        doubt = f"no label is called like {_some(items)}; there are {_some(clear)}"
        return Classes({value: (value,) for value in (clear if ordered else ranked(clear))}, 0, "", doubt)
    doubt = ""
    if len(open_items) == 1 and len(free) == 1 and short(free[0]):
        found[open_items[0]], free = free, []  # an abbreviation, and everything else is matched
    elif open_items and not (len(taken) >= 2 and not _telling_item(open_items)):
        doubt = f"no label is called like {_some(open_items)}; there are {_some(free or clear)}"
    merged = [item for item, some in found.items() if len(some) > 1]
    if merged:
        doubt = f"{merged[0]!r} may mean {_some(found[merged[0]])}"
    if len({value for some in found.values() for value in some}) < sum(map(len, found.values())):
        doubt = "one label fits several of the classes that are asked for"
    if doubt and len(taken) < 2:
        return Classes({value: (value,) for value in (clear if ordered else ranked(clear))}, len(taken), "", doubt)
    names = {(some[0] if len(some) == 1 else item): tuple(some) for item, some in found.items() if some}
    order = [name for value in clear for name, some in names.items() if some[0] == value] if ordered else ranked(names)
    of_one = {value: name for value in free for name, some in names.items() if _before_without(value) == words(some[0])}
    for value, name in of_one.items():
        names[name] = (*names[name], value)
    free = [value for value in free if value not in of_one]
    told = [f"{value} is {name}" for value, name in of_one.items()]
    told += [f"not asked for: {', '.join(free)}"] if free else []
    why = ", ".join(told)
    return Classes({name: names[name] for name in dict.fromkeys(order)}, len(names), why, doubt)


def _before_without(value: str) -> tuple[str, ...]:
    """The words of a label before what it says is absent: `benign` of `BENIGN_WITHOUT_CALLBACK`; none where it says no such thing."""
    said = words(value)
    at = next((at for at, word in enumerate(said) if word in WITHOUT), 0)
    return said[:at]


def _telling_item(items: list[str]) -> bool:
    """Whether any of these can be the name of a class, rather than how a sentence goes on."""
    return any(negative(item) or telling(item) for item in items)


def _wanted(clear: list[str], wanted: tuple[str, ...]) -> Classes | None:
    """The classes that were chosen before, where each is a value."""
    by = {" ".join(words(value)): value for value in clear}
    found = {name: by[" ".join(words(name))] for name in wanted if " ".join(words(name)) in by}
    if len(found) < len(wanted) or len(found) < 2:
        return None
    return Classes({name: (value,) for name, value in found.items()}, len(found))


def _one_finding(request: str) -> bool:
    """Whether a request asks for one finding alone ("detect pneumonia"), which is then set against all else."""
    return _looks_for(request) and "and" not in words(request)


def _looks_for(request: str) -> bool:
    """Whether a request wants findings found, of which an image may have none, rather than told from each other."""
    low = words(request)
    asks = {"detect", "find", "recognise", "recognize", "spot", "diagnose"}
    return bool(low) and (low[0] in asks or bool({f"{one}s" for one in asks} & set(request.casefold().split())))


def _against_rest(clear: list[str], main: str) -> Classes:
    mine = telling(main)
    alike = [value for value in clear if value == main or (mine and mine <= telling(value))]
    others = [value for value in clear if value not in alike]
    if not others:
        return Classes({value: (value,) for value in ranked(clear)}, 1)
    rest = others[0] if len(others) == 1 else "other"
    return Classes({rest: tuple(others), main: tuple(alike)}, 1, f"{main} against all others")
