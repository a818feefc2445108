"""Report texts of an index against those of the archive: the words of a case, however they are tidied or divided."""

from __future__ import annotations

import re

from m3b.data.spec.against.reading import HeldReading, HeldTargets, MadeIndex

TEXTS = "texts"
SAME = 0.9
"""Share of an index's runs of three words that must stand in the archive's text of the case."""


def hold_texts(reading: HeldReading, made: MadeIndex) -> HeldTargets:
    """Cases whose report says something that the archive's does not."""
    report = reading.spec.report
    if report is None:
        return HeldTargets(TEXTS)
    compared, differing = 0, []
    for case, record in reading.shared(made):
        if record.report is None:
            continue
        parts = [one for one in (report.findings, report.impression) if one is not None]
        theirs = " ".join(text for one in parts for text in reading.sources.texts(one, case))
        if not theirs.strip():
            continue
        compared += 1
        if share_of(record.report.text, theirs) < SAME:
            differing.append((case.name, f"a text of {len(record.report.text.split())} words that is not there"))
    return HeldTargets(TEXTS, compared, tuple(differing))


def share_of(own: str, theirs: str) -> float:
    """The share of one text's runs of three words that stand in another; of shorter ones, whether it does as a whole."""
    mine, others = _words(own), _words(theirs)
    length = min(3, len(mine))
    if length == 0:
        return 0.0
    known = {tuple(others[at : at + length]) for at in range(len(others) - length + 1)}
    runs = [tuple(mine[at : at + length]) for at in range(len(mine) - length + 1)]
    return sum(run in known for run in runs) / len(runs)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
