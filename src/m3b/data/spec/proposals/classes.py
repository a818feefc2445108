"""From the values of a column or folder level to the classes that a request asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from m3b.data.spec.proposals.language import REST, UNCLEAR, listed, named, negative, ranked, telling, words


@dataclass(frozen=True)
class Classes:
    """Classes and what of the data means each.

    Args:
        mapping: class -> values, in the order of a model's outputs.
        hits: values that the request names.
        why: what was decided, in a few words; empty where every value is a class of its own.
        doubt: why this may not be what is meant; a person should say.
    """

    mapping: dict[str, tuple[str, ...]]
    hits: int
    why: str = ""
    doubt: str = ""


def classes_for(values: Mapping[str, int], request: str, wanted: tuple[str, ...] = ()) -> Classes:
    """The classes of these values (value -> cases).

    Classes that the request lists are matched with the values one by one. One finding that it sets against the rest
    gives two classes. Otherwise every value is a class.
    """
    clear = [value for value in values if not set(words(value)) & UNCLEAR and value.strip()]
    if wanted and (chosen := _wanted(clear, wanted)):
        return chosen
    hits = named(clear, request)
    numbered = all(value.strip().replace(".", "", 1).isdigit() for value in clear)
    if numbered or len(clear) <= 2:
        return Classes({value: (value,) for value in ranked(clear)}, len(hits))
    positive = [value for value in hits if not negative(value)]
    if set(words(request)) & REST and len(positive) == 1:
        return _against_rest(clear, positive[0])
    items = listed(request)
    if len(items) > 1 and (found := _by_items(clear, items, hits)) is not None:
        return found
    if len(positive) == 1 and len(hits) == 1 and _one_finding(request):
        return _against_rest(clear, positive[0])
    return Classes({value: (value,) for value in ranked(clear)}, len(hits))


def _by_items(clear: list[str], items: list[str], hits: list[str]) -> Classes | None:
    """Each thing that a request lists with the values that mean it; None where fewer than two have any.

    Values that the request names elsewhere (`hits`) are classes too, so that none is lost to how a sentence is built.
    """
    found: dict[str, list[str]] = {}
    for item in items:
        exact = [value for value in clear if words(value) == words(item)]
        found[item] = exact or [value for value in clear if _means(value, item)]
    open_items = [item for item in items if not found[item]]
    taken = {value for some in found.values() for value in some}
    found |= {value: [value] for value in hits if value not in taken}
    taken |= set(hits)
    free = [value for value in clear if value not in taken]
    if len(items) - len(open_items) < 2:
        return None
    doubt = ""
    if len(open_items) == 1 and len(free) == 1:
        found[open_items[0]] = free
        doubt = f"{free[0]!r} is taken for {open_items[0]!r}: nothing else is left"
        free = []
    elif open_items:
        doubt = f"no label is called like {', '.join(map(repr, open_items))}; there are {', '.join(map(repr, free))}"
    merged = [item for item, some in found.items() if len(some) > 1]
    if merged:
        doubt = f"{merged[0]!r} may mean {', '.join(map(repr, found[merged[0]]))}"
    if len({value for some in found.values() for value in some}) < sum(map(len, found.values())):
        doubt = "one label fits several of the classes that are asked for"
    names = {(some[0] if len(some) == 1 else item): tuple(some) for item, some in found.items() if some}
    order = ranked(names)
    why = f"not asked for: {', '.join(free)}" if free else ""
    return Classes({name: names[name] for name in order}, len(names), why, doubt)


def _means(value: str, item: str) -> bool:
    """Whether a value says what is listed: all the words of one stand in the other, or both say that nothing is there."""
    mine, asked = telling(value) or frozenset(words(value)), telling(item)
    if negative(value) and negative(item):
        return True
    if negative(value) != negative(item):
        return False
    return bool(mine and asked) and (mine <= asked or asked <= mine or _glued(value) == _glued(item))


def _glued(text: str) -> str:
    return "".join(words(text))


def _wanted(clear: list[str], wanted: tuple[str, ...]) -> Classes | None:
    """The classes that were chosen before, where each is a value."""
    by = {" ".join(words(value)): value for value in clear}
    found = {name: by[" ".join(words(name))] for name in wanted if " ".join(words(name)) in by}
    if len(found) < len(wanted) or len(found) < 2:
        return None
    return Classes({name: (value,) for name, value in found.items()}, len(found))


def _one_finding(request: str) -> bool:
    """Whether a request asks for one finding alone ("detect pneumonia"), which is then set against all else."""
    low = words(request)
    return bool(low) and low[0] in ("detect", "find", "recognise", "recognize", "spot", "diagnose") and "and" not in low


def _against_rest(clear: list[str], main: str) -> Classes:
    mine = telling(main)
    alike = [value for value in clear if value == main or (mine and mine <= telling(value))]
    others = [value for value in clear if value not in alike]
    if not others:
        return Classes({value: (value,) for value in ranked(clear)}, 1)
    rest = others[0] if len(others) == 1 else "other"
    return Classes({rest: tuple(others), main: tuple(alike)}, 1, f"{main} against all others")
