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
class FittedCases:
    """Cases that speak of a model's classes.

    Args:
        notes: what was left out or renamed, in sentences.
        mask_values: of masks whose numbers differ: (value in the file, the model's number) a class; empty where they agree.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    mask_values: tuple[tuple[int, int], ...] = ()


def fit_to_model_classes(records: Sequence[Record], values: Mapping[str, int], index: Index) -> FittedCases:
    """The records of another set with the class names of a model's own index, those of no such class left out.

    Args:
        values: class -> number in the other set.
        index: of the model.

    Raises:
        DataError: the set cannot measure this model; the message says why.
    """
    _check_same_kind(records, index)
    model_names = {_normalize_name(name): name for name in index.classes}
    name_map = {
        external_name: model_names[_normalize_name(external_name)]
        for external_name in values
        if _normalize_name(external_name) in model_names
    }
    is_exclusive = not (index.masked or index.boxed or index.multi_label) and len(index.classes) > 1
    _check_classes_present(index, values, name_map, is_exclusive=is_exclusive)
    notes = []
    if unknown_classes := sorted(set(values) - set(name_map)):
        consequence = "cases of them are left out" if is_exclusive else "what is marked as such is left out"
        notes.append(f"It has classes that the model does not know ({', '.join(unknown_classes[:8])}); {consequence}.")
    remaining, dropped_counts = [], Counter[str]()
    for record in records:
        renamed_record = _rename_classes(record, name_map)
        if is_exclusive and len(renamed_record.labels) != 1:
            dropped_counts["of another class" if not renamed_record.labels else "with several labels"] += 1
        else:
            remaining.append(renamed_record)
    notes += [f"{count:,} cases {reason} are left out." for reason, count in dropped_counts.items()]
    if not remaining:
        raise DataError("None of its cases has a class that the model knows.")
    return FittedCases(tuple(remaining), tuple(notes), _pair_mask_values(values, name_map, index))


def _normalize_name(name: str) -> str:
    return " ".join(name.replace("_", " ").replace("-", " ").casefold().split())


def _check_same_kind(records: Sequence[Record], index: Index) -> None:
    """Raises DataError where targets or channels are of another kind than those that the model was made for."""
    record_kind = kinds.of(index.task)
    external_index = Index(tuple(records), (), ("x",), index.task, {"x": 1})
    for name, targets_word in (("masked", "masks"), ("boxed", "boxes"), ("stated", "states of whole images")):
        if getattr(external_index, name) != getattr(index, name):
            found_phrase, expected_phrase = ("has", "does not") if getattr(external_index, name) else ("has no", "does")
            raise DataError(f"It {found_phrase} {targets_word}, and what the model was measured on {expected_phrase}.")
    if index.masked and external_index.overlapping != index.overlapping:
        expected_form = "a mask file for each class" if index.overlapping else "one mask file for all classes"
        raise DataError(f"Its masks come otherwise than the model's, which has {expected_form}.")
    if set(external_index.channels) != set(index.channels):
        channel_texts = [
            ", ".join(channels) or "one image a case" for channels in (external_index.channels, index.channels)
        ]
        raise DataError(
            f"Its cases have other channels ({channel_texts[0]}) than the model takes ({channel_texts[1]})."
        )
    if inconsistency := record_kind.mixed(records):
        raise DataError(f"Its cases do not fit together: {inconsistency}.")


def _check_classes_present(
    index: Index, values: Mapping[str, int], name_map: Mapping[str, str], *, is_exclusive: bool
) -> None:
    """Raises DataError where the set says nothing of classes that the model's figure rests on."""
    if index.stated or (index.task == "report" and not values):
        return
    absent = [name for name in index.classes if name not in name_map.values()]
    if not absent or (is_exclusive and len(name_map) > 1):
        return
    external_classes = ", ".join(values) or "none"
    raise DataError(
        f"It does not speak of {', '.join(absent)}: its classes are {external_classes}; the model's are {', '.join(index.classes)}. "
        "Give a reading of it whose classes have the model's names."
    )


def _rename_classes(record: Record, name_map: Mapping[str, str]) -> Record:
    labels = tuple(name_map[item] for item in record.labels if item in name_map)
    boxes = record.boxes
    if boxes is not None:
        boxes = tuple(replace(item, label=name_map[item.label]) for item in boxes if item.label in name_map)
    mask = record.mask
    if isinstance(mask, Mapping):
        mask = {name_map[name]: path for name, path in mask.items() if name in name_map}
    return replace(record, labels=labels, boxes=boxes, mask=mask)


def _pair_mask_values(
    values: Mapping[str, int], name_map: Mapping[str, str], index: Index
) -> tuple[tuple[int, int], ...]:
    if not index.masked or index.overlapping:
        return ()
    pairs = tuple((values[source], index.values[target]) for source, target in name_map.items())
    source_values = {value for value, _ in pairs}
    unmapped_values = (
        set(index.values.values()) - source_values
    )  # the file may use the model's number for something else
    is_same = all(value == target for value, target in pairs)
    return () if is_same and not unmapped_values else pairs
