"""Names that stand for files of several folders: `000.png` of a table beside `train/000.png` and `test/000.png`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from m3b.data.survey.ends import Texts
from m3b.data.survey.relations import FolderHits

MOST_FOLDERS = 60


def folders_apart(
    right: Texts, mine: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]], common: Collection[str]
) -> tuple[FolderHits, ...]:
    """The folders by which the files of one name differ, with what is found in each; none where every name finds one file.

    Args:
        mine, theirs: the texts of each key, of names and of paths.
        common: the keys of both.
    """
    if right.end.kind != "path":
        return ()
    levels = Counter(
        level for made in common if len(theirs[made]) > 1 for level in [_differ(theirs[made])] if level >= 0
    )
    if not levels:
        return ()
    level = min(levels, key=lambda one: (-levels[one], one))
    files = Counter(_top(path, level) for path in right.counts)
    if not 1 < len(files) <= MOST_FOLDERS:
        return ()
    matched: Counter[str] = Counter()
    named: dict[str, set[str]] = defaultdict(set)
    for made in common:
        for path in theirs[made]:
            matched[_top(path, level)] += 1
            named[_top(path, level)].add(made)
    return tuple(
        FolderHits(
            folder=name, files=files[name], matched=matched[name], named=sum(len(mine[made]) for made in named[name])
        )
        for name in sorted(files)
    )


def _differ(paths: Sequence[str]) -> int:
    """The first folder level at which paths differ; -1 where they lie in one folder."""
    split = [path.split("/")[:-1] for path in paths]
    return next((level for level in range(min(map(len, split))) if len({one[level] for one in split}) > 1), -1)


def _top(path: str, level: int) -> str:
    return "/".join(path.split("/")[: level + 1])
