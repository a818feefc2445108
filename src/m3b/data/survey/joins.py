"""Which columns name which files, folders, parts and tags: measured on both sides, under the strictest rule that serves."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from m3b.data.survey.ambiguous import folders_apart
from m3b.data.survey.ends import Texts, columns, of_groups
from m3b.data.survey.gathering import Gathering
from m3b.data.survey.keys import ABOVE, PATH_RULES
from m3b.data.survey.near_names import near_names
from m3b.data.survey.relations import Join, Rule
from m3b.data.survey.tables import Loaded

LOOSER = 1.05
"""A looser rule is taken where it matches so many times as many values."""
MOST_ROWS = 2
"""Different paths of a column for each folder by which they are joined, on average."""
_MIN_LEFT, _MIN_RIGHT = 0.02, 0.1
_EXAMPLES = 3
_NAMING = re.compile(r"id$|id[^a-z]|^id|no$|nr$|num|index|pat|case|subj|image|file|name|scan|study|exam|^\d+$", re.I)
"""Columns that are called as if they named files, cases or persons; or have no name."""
_MOST = 400


def joins_of(found: Gathering, tables: Sequence[Loaded]) -> list[Join]:
    """Every join between columns and groups, and between columns of different tables, best first."""
    most = found.tree.limits.keys
    left = columns(tables, most)
    right = of_groups(found, most) if left else []
    joins: list[Join] = []
    for one in left:
        if found.tree.late:
            found.tree.notes.add("time", "joins")
            break
        joins += [join for other in right if (join := measure(one, other)) is not None]
    joins = _telling(joins)
    ids = [one for one in left if one.identifies]
    for at, one in enumerate(ids):
        for other in ids[at + 1 :]:
            if one.end.owner != other.end.owner and not found.tree.late:
                join = measure(one, other)
                if join is not None and max(join.left_share, join.right_share) >= 0.1:
                    joins.append(join)
    joins.sort(key=_rank)
    return joins[:_MOST]


def _rank(join: Join) -> tuple[object, ...]:
    return (
        join.right.kind == "column", -round(join.left_share * 0.3 + join.right_share * 0.7 - join.chance, 4),
        -join.right_matched, join.left.owner, join.left.name, join.right.owner, join.right.kind, join.right.name,
    )  # fmt: skip


def measure(left: Texts, right: Texts) -> Join | None:
    """The join of two ends under the strictest rule that matches about as much as any; None where too little does."""
    values = left.end.kind == "column" and right.end.kind == "column"
    allowed: tuple[Rule, ...] = ("exact", "number") if values else right.rules
    best: tuple[Rule, int] | None = None
    for rule in allowed:
        mine, theirs = left.by_key("prefixed" if rule == "prefixed" else rule), right.by_key(rule)
        if not mine or not theirs:
            continue
        shared = mine.keys() & theirs.keys()
        common = len(shared) if rule not in ABOVE or _tells(shared, mine) else 0
        if common and (best is None or common > LOOSER * best[1]):
            best = (rule, common)
    if best is None or best[1] < min(2, len(left.counts), len(right.counts)):
        return None
    return _join(left, right, best[0])


def _tells(shared: Collection[str], mine: Mapping[str, Sequence[str]]) -> bool:
    """Whether a folder of a column's paths tells its rows apart, and not what many have in common (a class, a part of a split)."""
    rows = sum(len(mine[one]) for one in shared)
    return rows <= MOST_ROWS * len(shared)


def _join(left: Texts, right: Texts, rule: Rule) -> Join | None:
    mine, theirs = left.by_key(rule), right.by_key(rule)
    common = mine.keys() & theirs.keys()
    here = sum(len(mine[key]) for key in common)
    there = sum(len(theirs[key]) for key in common)
    if here < _MIN_LEFT * len(left.counts) and there < _MIN_RIGHT * len(right.counts):
        return None
    alone_here = [text for key, texts in mine.items() if key not in common for text in texts]
    alone_there = [text for key, texts in theirs.items() if key not in common for text in texts]
    near = _near(left, right, {text for key in common for text in (*mine[key], *theirs[key])})
    return Join(
        left=left.end,
        right=right.end,
        rule=rule,
        left_values=len(left.counts),
        left_matched=here,
        right_values=len(right.counts),
        right_matched=there,
        most_left=max(sum(left.counts[text] for text in mine[key]) for key in common),
        most_right=max(sum(right.counts[text] for text in theirs[key]) for key in common),
        files=sum(right.files.get(text, 0) for key in common for text in theirs[key]),
        folders=folders_apart(right, mine, theirs, common),
        unmatched_left=_few(alone_here),
        unmatched_right=_few(alone_there),
        near=len(near),
        near_names=near[0] if near else (),
        chance=_chance(left, right, rule),
    )


def _near(left: Texts, right: Texts, matched: set[str]) -> list[tuple[str, str]]:
    """Names of files that a table seems to mean and writes otherwise, where it names others of the group."""
    if right.end.kind != "path" or left.running:
        return []
    there = [text for text in right.counts if text not in matched]
    return near_names([text for text in left.counts if text not in matched], there) if there else []


def _few(texts: list[str]) -> tuple[str, ...]:
    return tuple(text[:200] for text in sorted(texts)[:_EXAMPLES])


def _chance(left: Texts, right: Texts, rule: Rule) -> float:
    """How much of the left side would be matched by numbers drawn at random from its range."""
    bare = (rule in ("exact", "unpadded") or rule in ABOVE) and all(key.isdigit() for key in right.by_key(rule))
    numbers = [int(key) for key in right.by_key("number")] if rule == "number" or bare else []
    mine = [int(key) for key in left.by_key("number")] if numbers else []
    if not numbers or not mine or len(numbers) < len(right.counts) // 2 or len(mine) < len(left.counts) // 2:
        return 0.0
    low, high = min(min(mine), min(numbers)), max(max(mine), max(numbers))
    inside = [number for number in set(mine) if min(numbers) <= number <= max(numbers)]
    drawn = len(set(numbers)) / (high - low + 1), len(inside) / (max(numbers) - min(numbers) + 1)
    return round(min(max(drawn), 1.0), 3)


def _telling(joins: list[Join]) -> list[Join]:
    """Without joins that numbers make by chance, where the same table joins the same group surely, or nothing says
    that the numbers are anybody's."""
    sure: dict[tuple[str, str], float] = {}
    for join in joins:
        if join.chance < 0.1 and join.right.kind in ("path", "level", "tag"):
            ends = join.left.owner, join.right.owner
            sure[ends] = max(sure.get(ends, 0.0), join.right_share)
    kept = []
    for join in joins:
        better = sure.get((join.left.owner, join.right.owner), -1.0) >= join.right_share
        if join.chance > 0.3 and (better or (join.left_share < 0.95 and not _NAMING.search(join.left.name))):
            continue
        kept.append(join)
    return kept


def names_in(names: Sequence[str], ends: Sequence[Texts]) -> tuple[Texts, Rule, int, int] | None:
    """The group whose files a list of names speaks of: (its paths, rule, names found, files named)."""
    named = Texts(ends[0].end, dict.fromkeys(names, 1), PATH_RULES) if ends else None
    best: tuple[Texts, Rule, int, int] | None = None
    for end in ends if named else ():
        assert named is not None
        for rule in PATH_RULES:
            mine, theirs = named.by_key(rule), end.by_key(rule)
            common = mine.keys() & theirs.keys()
            files = sum(len(theirs[key]) for key in common)
            here = sum(len(mine[key]) for key in common)
            enough = here >= max(2, 0.05 * min(len(names), len(end.counts))) or here == len(names)
            if enough and (best is None or here > LOOSER * best[2] or (here == best[2] and files < best[3])):
                best = (end, rule, here, files)
    return best
