"""A split while it is made: its fact, and the side of every path; and the key of each path at the end of a join."""

from __future__ import annotations

from dataclasses import dataclass, field

from m3b.data.survey.gathering import Gathered
from m3b.data.survey.keys import key
from m3b.data.survey.relations import FoundSplit, Join


@dataclass
class Division:
    """A split with the side of every path or row that it speaks of."""

    fact: FoundSplit
    group: str = ""
    sides: dict[str, str] = field(default_factory=dict)
    """By path of the group."""


def keys_by_path(group: Gathered, join: Join) -> dict[str, str]:
    """The key of each of a group's paths at the right end of a join."""
    end, found = join.right, {}
    if end.kind == "path":
        return {path: key(join.rule, path) for path in group.looked}
    if end.kind == "level":
        return {path: key(join.rule, path.split("/")[int(end.name)]) for path in group.looked}
    if end.kind == "part":
        before = next((part.before.split("/")[-1] for part in group.fact.parts if part.slot == end.name), "")
        for path, text in zip(group.looked, group.values[end.name], strict=True):
            if text is not None:
                found[path] = key(join.rule, before + text if join.rule == "prefixed" else text)
        return found
    for header in group.headers.found if group.headers else ():
        if text := header.tags.get(end.name):
            found[header.path] = key(join.rule, text)
    return found
