"""Whose a file is, of several that are called like it: of those that lie nearest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from m3b.data.survey.sides import side_of


def nearest(left: Sequence[str], right: Sequence[str]) -> dict[str, list[str]]:
    """The right files of each left one, where all of them have one key."""
    found: dict[str, list[str]] = defaultdict(list)
    places = {path: _place(path) for path in left}
    for path in right:
        own = _place(path)
        shared = {one: len(own & place) for one, place in places.items()}
        most = max(shared.values())
        for one in left:
            if shared[one] == most:
                found[one].append(path)
    return found


def _place(path: str) -> frozenset[str]:
    """The folders of a path, and the sides of a split that they are called after."""
    folders = path.split("/")[:-1]
    return frozenset((*(f"{at} {name}" for at, name in enumerate(folders)), *filter(None, map(side_of, folders))))
