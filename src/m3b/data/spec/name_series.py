"""Names that count up, such as set2_vid1 and set2_vid2, where a column calls each of them another patient's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

LONGEST = 20
"""Files of a series at most: more that share all but a number are a whole set, numbered through."""
FEWEST = 2
"""Series that have to be torn apart before it is said."""
_LAST = re.compile(r"\d+(?=\D*$)")


def torn(names: Sequence[str], groups: Sequence[str]) -> str:
    """What to say where names differ in their last number alone and yet stay together in no part; empty where there is nothing.

    Args:
        names: paths of the cases.
        groups: of each case, which of them stay together by what is known of patients.
    """
    series: dict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(names):
        path = PurePosixPath(name)
        last = _LAST.search(path.stem)
        if last is not None and re.search(r"\d", path.stem[: last.start()]):
            series[f"{path.parent}/{path.stem[: last.start()]}#{path.stem[last.end() :]}"].append(at)
    apart = [rows for rows in series.values() if 1 < len(rows) <= LONGEST and len({groups[at] for at in rows}) > 1]
    if len(apart) < FEWEST:
        return ""
    first, second = (PurePosixPath(names[at]).name for at in apart[0][:2])
    return (
        f"{len(apart)} series of names, such as {first} and {second}, are of several patients by that reading; where each is one "
        "person or one recording, `together` keeps it on one side"
    )
