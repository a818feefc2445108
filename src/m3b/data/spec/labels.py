"""The labels of a case, and what leaves a case without one."""

from __future__ import annotations

from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.model import FromTable, Labels
from m3b.data.spec.sources import Sources
from m3b.data.survey.keys import key as normal
from m3b.errors import DataError

YES = frozenset({"1", "1.0", "true", "yes", "y", "x", "+", "positive", "pos", "present", "t"})
NO = frozenset({"0", "0.0", "false", "no", "n", "-", "negative", "neg", "absent", "f", ""})


UNCERTAIN = frozenset({"-1", "-1.0", "u", "uncertain", "?"})
"""Texts of a yes/no column that say neither, as those of CheXpert and MIMIC-CXR do (Irvin et al., AAAI 2019)."""


class LeaveOut(Exception):
    """A case that the index cannot hold; the message is the reason, without the case's name."""


def labels_of(labels: Labels, sources: Sources, case: CaseDraft) -> tuple[str, ...]:
    """The classes of a case.

    Raises:
        LeaveOut: no label, different labels, an uncertain one, or one of no class.
        DataError: a one-hot column holds something else than yes and no.
    """
    if labels.one_hot:
        return _one_hot(labels, sources, case)
    named = _names(labels)
    texts: list[str] = []
    for source in labels.sources:
        found = sources.texts(source, case)
        if len(found) > 1 and not labels.separator:
            sources.conflicts[case.key] = found
            raise LeaveOut("the table has different labels for it")
        texts += found
    if not texts:
        raise LeaveOut("no label")
    parts = [part.strip() for text in texts for part in (text.split(labels.separator) if labels.separator else [text])]
    known = [named[folded] for part in parts if part and (folded := normal("exact", part)) in named]
    strange = [part for part in parts if part and normal("exact", part) not in named]
    if labels.separator and labels.none and not known:
        return (labels.none,)
    if strange and not (labels.separator and known):
        raise LeaveOut(f"its label {strange[0][:40]!r} is no class of this index")
    return tuple(dict.fromkeys(known))


def _names(labels: Labels) -> dict[str, str]:
    """Folded text of the source -> class."""
    named: dict[str, str] = {}
    for name, texts in labels.classes.items():
        for text in texts or (name,):
            folded = normal("exact", text)
            if named.get(folded, name) != name:
                raise DataError(f"labels.classes: {text!r} means both {named[folded]} and {name}.")
            named[folded] = name
    return named


def _one_hot(labels: Labels, sources: Sources, case: CaseDraft) -> tuple[str, ...]:
    columns = {source.column: source for source in labels.sources if isinstance(source, FromTable)}
    found: list[str] = []
    seen = False
    for name, texts in labels.classes.items():
        for column in () if name == labels.none else texts or (name,):
            if column not in columns:
                raise DataError(f"labels.classes: there is no source of column {column!r} for {name}.")
            cells = sources.texts(columns[column], case)
            if len(cells) > 1:
                sources.conflicts[case.key] = cells
                raise LeaveOut("the table has different labels for it")
            if not cells:
                continue
            cell = cells[0]
            seen = True
            if normal("exact", cell) in UNCERTAIN:
                raise LeaveOut(f"it is uncertain whether it has {name}")
            if normal("exact", cell) in YES:
                found.append(name)
            elif normal("exact", cell) not in NO:
                raise DataError(f"The column {column!r} holds {cell[:40]!r}; a yes/no column is needed.")
    if not seen and not any(sources.text(source, case) for source in columns.values()):
        raise LeaveOut("no label")  # blanks beside other columns that say something are a no
    if not found and labels.none:
        return (labels.none,)
    return tuple(dict.fromkeys(found))
