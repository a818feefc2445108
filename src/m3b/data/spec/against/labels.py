"""Labels of an index against those of the archive."""

from __future__ import annotations

from m3b.data.spec.against.reading import HeldReading, HeldTargets, MadeIndex, meanings
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.labels import LeaveOut, labels_of
from m3b.data.spec.model import Labels
from m3b.data.spec.sources import Sources
from m3b.errors import DataError

MIN_CASES = 4
"""Cases a text, on average, from which on a place can be where labels come from: identifiers would agree with any."""
LABELS = "labels"


def hold_labels(reading: HeldReading, made: MadeIndex) -> HeldTargets:
    """Cases that both have a label for, and those of which the labels differ."""
    labels = reading.spec.labels
    if labels is None or reading.spec.patient in labels.sources:
        return HeldTargets(LABELS)
    pairs = []
    for case, record in reading.shared(made):
        text = text_of(labels, reading.sources, case)
        if text is not None:
            pairs.append((case.name, "|".join(sorted(record.labels)), text))
    texts = {text for _, _, text in pairs}
    if len(pairs) < MIN_CASES * len(texts):
        return HeldTargets(LABELS)
    meant = meanings([(text, own) for _, own, text in pairs], sorted({own for _, own, _ in pairs}), sorted(texts))
    differing = [(name, f"{own!r} in the index, {text!r} there") for name, own, text in pairs if meant[text] != own]
    return HeldTargets(LABELS, len(pairs), tuple(differing))


def text_of(labels: Labels, sources: Sources, case: CaseDraft) -> str | None:
    """What the archive says of a case, as one text; None where it says nothing or contradicts itself."""
    try:
        if labels.one_hot or labels.separator:
            return "|".join(sorted(labels_of(labels, sources, case)))
    except (LeaveOut, DataError):
        return None
    return sources.text(labels.sources[0], case)
