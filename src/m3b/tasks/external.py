"""Cases of another data set brought to the classes of a model: by name, whatever their numbers are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from m3b.data import kinds
from m3b.data.index import Index
from m3b.data.records import Record
from m3b.errors import DataError


@dataclass(frozen=True)
class Fitted:
    """Cases that speak of a model's classes.

    Args:
        notes: what was left out or renamed, in sentences.
        numbers: of masks whose numbers differ: (value in the file, the model's number) a class; empty where they agree.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ()


def fitted(records: Sequence[Record], values: Mapping[str, int], index: Index) -> Fitted:
    """The records of another set with the class names of a model's own index, those of no such class left out.

    Args:
        values: class -> number in the other set.
        index: of the model.

    Raises:
        DataError: the set cannot measure this model; the message says why.
    """
    _same_kind(records, index)
    mine = {_folded(name): name for name in index.classes}
    named = {theirs: mine[_folded(theirs)] for theirs in values if _folded(theirs) in mine}
    exclusive = not (index.masked or index.boxed or index.multi_label) and len(index.classes) > 1
    _enough(index, values, named, exclusive=exclusive)
    notes = []
    if other := sorted(set(values) - set(named)):
        what = "cases of them are left out" if exclusive else "what is marked as such is left out"
        notes.append(f"It has classes that the model does not know ({', '.join(other[:8])}); {what}.")
    kept, dropped = [], Counter[str]()
    for record in records:
        found = _renamed(record, named)
        if exclusive and len(found.labels) != 1:
            dropped["of another class" if not found.labels else "with several labels"] += 1
        else:
            kept.append(found)
    notes += [f"{count:,} cases {why} are left out." for why, count in dropped.items()]
    if not kept:
        raise DataError("None of its cases has a class that the model knows.")
    return Fitted(tuple(kept), tuple(notes), _numbers(values, named, index))


def _folded(name: str) -> str:
    return " ".join(name.replace("_", " ").replace("-", " ").casefold().split())


def _same_kind(records: Sequence[Record], index: Index) -> None:
    """Raises DataError where targets or channels are of another kind than those that the model was made for."""
    of_task = kinds.of(index.task)
    theirs = Index(tuple(records), (), ("x",), index.task, {"x": 1})
    for name, what in (("masked", "masks"), ("boxed", "boxes"), ("stated", "states of whole images")):
        if getattr(theirs, name) != getattr(index, name):
            have, want = ("has", "does not") if getattr(theirs, name) else ("has no", "does")
            raise DataError(f"It {have} {what}, and what the model was measured on {want}.")
    if index.masked and theirs.overlapping != index.overlapping:
        mine = "a mask file for each class" if index.overlapping else "one mask file for all classes"
        raise DataError(f"Its masks come otherwise than the model's, which has {mine}.")
    if set(theirs.channels) != set(index.channels):
        told = [", ".join(one) or "one image a case" for one in (theirs.channels, index.channels)]
        raise DataError(f"Its cases have other channels ({told[0]}) than the model takes ({told[1]}).")
    if mixed := of_task.mixed(records):
        raise DataError(f"Its cases do not fit together: {mixed}.")


def _enough(index: Index, values: Mapping[str, int], named: Mapping[str, str], *, exclusive: bool) -> None:
    """Raises DataError where the set says nothing of classes that the model's figure rests on."""
    if index.stated or (index.task == "report" and not values):
        return
    absent = [name for name in index.classes if name not in named.values()]
    if not absent or (exclusive and len(named) > 1):
        return
    theirs = ", ".join(values) or "none"
    raise DataError(
        f"It does not speak of {', '.join(absent)}: its classes are {theirs}; the model's are {', '.join(index.classes)}. "
        "Give a reading of it whose classes have the model's names."
    )


def _renamed(record: Record, named: Mapping[str, str]) -> Record:
    labels = tuple(named[one] for one in record.labels if one in named)
    boxes = record.boxes
    if boxes is not None:
        boxes = tuple(replace(one, label=named[one.label]) for one in boxes if one.label in named)
    mask = record.mask
    if isinstance(mask, Mapping):
        mask = {named[name]: path for name, path in mask.items() if name in named}
    return replace(record, labels=labels, boxes=boxes, mask=mask)


def _numbers(values: Mapping[str, int], named: Mapping[str, str], index: Index) -> tuple[tuple[int, int], ...]:
    if not index.masked or index.overlapping:
        return ()
    pairs = tuple((values[theirs], index.values[own]) for theirs, own in named.items())
    known = {value for value, _ in pairs}
    strangers = set(index.values.values()) - known  # the file may use the model's number for something else
    same = all(value == own for value, own in pairs)
    return () if same and not strangers else pairs
