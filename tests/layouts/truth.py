"""What a right index of a generated folder holds, and the differences of an index from it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MASK_TOLERANCE = 0.01
"""Relative difference of mask areas that is allowed for masks stored as pixels."""
BOX_TOLERANCE = 1.0
"""Pixels by which the edges of a box may differ."""
VALUE_TOLERANCE = 1e-4
TEXT_SHARE = 0.95
"""Share of a report's words that the index must have."""
MAX_EXAMPLE = 160

Box = tuple[int, tuple[float, float, float, float]]
"""Position of its class, then left, top, right and bottom edge in pixels."""


@dataclass(frozen=True)
class TruthCase:
    """One case.

    Args:
        files: paths relative to the folder; items of an archive or array as `FILE#ITEM` or `FILE#NUMBER`.
        classes: positions of its classes: one of a diagnosis or grade, any number of a multi-label task.
        value: of a regression, or the time of a survival.
        event: of a survival.
        areas: of a mask: position of the class -> share of the image.
        area_tolerance: relative difference that is allowed, by class.
        patient: None if the folder does not say.
        side: train, val or test; None if the folder does not say.
    """

    id: str
    files: tuple[str, ...]
    classes: tuple[int, ...] = ()
    value: float | None = None
    event: bool | None = None
    areas: Mapping[int, float] = field(default_factory=dict)
    area_tolerance: Mapping[int, float] = field(default_factory=dict)
    boxes: tuple[Box, ...] = ()
    report: str = ""
    patient: str | None = None
    side: str | None = None


@dataclass(frozen=True)
class Truth:
    """What a right reading of a folder gives.

    Args:
        task: diagnosis, multi_label, grading, regression, survival, segmentation, detection or report.
        outcomes: what may come out: `proposed`, `ask`, `refuse`.
        reason: why the folder is not solvable; empty if it is.
        class_forms: of each class, the words that mean it, in lower case.
        exclusions: file -> why it is no case.
        side_rule: `own`: the test cases are those of the folder; `free`: any; `own_or_patients`: the folder's own sides share
            patients, so that they may be replaced by sides that do not, or training cases of tested patients left out.
    """

    task: str
    outcomes: tuple[str, ...]
    reason: str
    cases: tuple[TruthCase, ...]
    class_forms: tuple[frozenset[str], ...] = ()
    exclusions: Mapping[str, str] = field(default_factory=dict)
    side_rule: str = "free"


@dataclass(frozen=True)
class IndexRecord:
    """One case of an index, in terms that no reader defines.

    Args:
        files: as in `TruthCase`; a folder stands for its files.
        areas: of a mask: name of the class -> share of the image.
        boxes: name of the class and edges.
        side: train, val or test.
        patient: None if nobody knows the person.
    """

    files: tuple[str, ...]
    side: str
    patient: str | None = None
    labels: tuple[str, ...] = ()
    value: float | None = None
    event: bool | None = None
    areas: Mapping[str, float] | None = None
    boxes: tuple[tuple[str, tuple[float, ...]], ...] | None = None
    report: str | None = None


@dataclass(frozen=True)
class Difference:
    """A kind of difference, how many cases have it, and one of them."""

    code: str
    count: int
    example: str

    def __str__(self) -> str:
        return f"{self.code} x {self.count}: {self.example}"


def normalize_reference(path: str) -> str:
    """Return `FILE#NUMBER` for an item of an array, `FILE#INNER` for a file in an archive."""
    file, mark, item = path.partition("#")
    if not mark:
        return file.rstrip("/")
    if number := re.search(r"\[(\d+)\]$", item):
        return f"{file}#{number[1]}"
    return f"{file}#{item}"


def compare(records: Sequence[IndexRecord], truth: Truth, class_order: Sequence[str] = ()) -> list[Difference]:
    """Return how an index differs from the truth; empty if it does not.

    Args:
        class_order: the classes of the index by number, which must be ascending for grades.
    """
    details: dict[str, list[str]] = defaultdict(list)
    pairs = _match_cases(records, truth, details)
    if pairs:
        names = _match_classes(pairs, truth, details)
        for record, case in pairs:
            for code, example in _target_differences(record, case, truth.task, names):
                details[code].append(f"{case.id}: {example}")
        if truth.task == "grading":
            _check_order(names, class_order, details)
        _compare_patients(pairs, details)
        _compare_sides(pairs, truth, details)
    return [Difference(code, len(examples), examples[0][:MAX_EXAMPLE]) for code, examples in details.items()]


def _match_cases(
    records: Iterable[IndexRecord], truth: Truth, details: dict[str, list[str]]
) -> list[tuple[IndexRecord, TruthCase]]:
    """Pair each record with the case of its files."""
    by_file: dict[str, TruthCase] = {}
    by_folder: dict[str, set[str]] = defaultdict(set)
    cases = {case.id: case for case in truth.cases}
    for case in truth.cases:
        for file in case.files:
            by_file[normalize_reference(file)] = case
            by_folder[file.rpartition("/")[0]].add(case.id)
    containers = Counter(case.files[0].partition("#")[0] for case in truth.cases if case.files)

    def find_case(path: str) -> TruthCase | None:
        reference = normalize_reference(path)
        if reference in by_file:
            return by_file[reference]
        container = reference.partition("#")[0]
        if containers.get(container) == 1 and container in by_file:
            return by_file[container]
        case_ids = by_folder.get(reference, set())
        return cases[next(iter(case_ids))] if len(case_ids) == 1 else None

    pairs, matched_ids = [], set()
    for record in records:
        matches = {match.id if (match := find_case(path)) else "" for path in record.files}
        if matches == {""}:
            reason = next((truth.exclusions[path] for path in record.files if path in truth.exclusions), "")
            details["extra_case"].append(f"{record.files[0]} {reason}".strip())
        elif len(matches) > 1:
            details["mixed_case"].append(f"{record.files[0]} and {len(record.files) - 1} more files")
        else:
            case = cases[matches.pop()]
            if case.id in matched_ids:
                details["double_case"].append(record.files[0])
                continue
            if len(case.files) > 2 and len(record.files) > 1 and len(record.files) != len(case.files):
                details["incomplete_case"].append(f"{record.files[0]}: {len(record.files)} of {len(case.files)} files")
            matched_ids.add(case.id)
            pairs.append((record, case))
    missing = [case for case in truth.cases if case.id not in matched_ids]
    if truth.side_rule == "own_or_patients":
        tested = {case.patient for record, case in pairs if record.side == "test"}
        missing = [case for case in missing if case.side == "test" or case.patient not in tested]
    if missing:
        details["missing_case"] += [case.files[0] for case in missing]
    return pairs


def _match_classes(
    pairs: Sequence[tuple[IndexRecord, TruthCase]], truth: Truth, details: dict[str, list[str]]
) -> dict[str, int]:
    """Return the true class of each class name of the index: by its words, else by the cases it is given to."""
    together: dict[str, Counter[int]] = defaultdict(Counter)
    for record, case in pairs:
        if truth.task in ("diagnosis", "multi_label", "grading"):
            pair_votes = [(label, position) for label in record.labels for position in case.classes]
        elif truth.task == "segmentation":
            pair_votes = _vote_by_area(record.areas or {}, case.areas)
        else:
            pair_votes = [
                (label, position)
                for label, box in record.boxes or ()
                for position, true_box in case.boxes
                if _is_close(box, true_box)
            ]
        for label, position in pair_votes:
            together[label][position] += 1
    frequency = Counter(position for _, case in pairs for position in _classes_of(case, truth.task))
    names = {}
    for label, votes in together.items():
        # of classes that often occur together, the one that the name is given to most exclusively
        position = max(votes, key=lambda number: (votes[number], -frequency[number]))
        positions = {
            number for number, forms in enumerate(truth.class_forms) if label.lower().replace("_", " ") in forms
        }
        if len(positions) == 1 and position not in positions:
            details["class_named_wrongly"].append(f"{label!r} is given to {sorted(truth.class_forms[position])[:3]}")
        names[label] = position
    if len(set(names.values())) < len(names):
        details["classes_merged_or_split"].append(str(names))
    return names


def _classes_of(case: TruthCase, task: str) -> Iterable[int]:
    if task == "segmentation":
        return tuple(case.areas)
    return {position for position, _ in case.boxes} if task == "detection" else case.classes


def _vote_by_area(areas: Mapping[str, float], true_areas: Mapping[int, float]) -> list[tuple[str, int]]:
    return [
        (label, position)
        for label, area in areas.items()
        for position, true_area in true_areas.items()
        if true_area and abs(area - true_area) <= 0.1 * true_area
    ]


def _is_close(box: Sequence[float], true_box: Sequence[float]) -> bool:
    return len(box) == 4 and all(
        abs(edge - true_edge) <= BOX_TOLERANCE for edge, true_edge in zip(box, true_box, strict=True)
    )


def _target_differences(
    record: IndexRecord, case: TruthCase, task: str, names: Mapping[str, int]
) -> Iterable[tuple[str, str]]:
    if task in ("diagnosis", "multi_label", "grading"):
        # of several findings, a name that no true finding goes with says that there is none
        labels = [label for label in record.labels if task != "multi_label" or label in names]
        if sorted(names.get(label, -1) for label in labels) != sorted(case.classes):
            yield "wrong_label", f"{record.labels} for {case.classes}"
    elif task in ("regression", "survival"):
        if (
            record.value is None
            or case.value is None
            or abs(record.value - case.value) > VALUE_TOLERANCE * max(1, abs(case.value))
        ):
            yield "wrong_value", f"{record.value} for {case.value}"
        if task == "survival" and record.event != case.event:
            yield "wrong_event", f"{record.event} for {case.event}"
    elif task == "report":
        words, true_words = Counter((record.report or "").split()), Counter(case.report.split())
        if sum((words & true_words).values()) < TEXT_SHARE * max(sum(true_words.values()), sum(words.values())):
            yield "wrong_report", (record.report or "no report")[:60]
    elif task == "segmentation":
        yield from _mask_differences(record, case, names)
    else:
        yield from _box_differences(record, case, names)


def _mask_differences(record: IndexRecord, case: TruthCase, names: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    if record.areas is None:
        yield "no_mask", record.files[0]
        return
    areas: dict[int, float] = defaultdict(float)
    for label, area in record.areas.items():
        areas[names.get(label, -1)] += area
    for position in {*areas, *case.areas}:
        area, true_area = areas.get(position, 0.0), case.areas.get(position, 0.0)
        if abs(area - true_area) > case.area_tolerance.get(position, MASK_TOLERANCE) * max(true_area, 1e-6):
            yield "wrong_mask_area", f"class {position}: {area:.4f} for {true_area:.4f} of the image"
            return


def _box_differences(record: IndexRecord, case: TruthCase, names: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    if record.boxes is None:
        yield "no_boxes", record.files[0]
        return
    remaining = list(case.boxes)
    for label, box in record.boxes:
        match = next((true for true in remaining if true[0] == names.get(label) and _is_close(box, true[1])), None)
        if match is None:
            yield "wrong_box", f"{label} {tuple(round(edge, 1) for edge in box)}"
            return
        remaining.remove(match)
    if remaining:
        yield "missing_box", f"{len(remaining)} of {len(case.boxes)}"


def _check_order(names: Mapping[str, int], class_order: Sequence[str], details: dict[str, list[str]]) -> None:
    positions = [names[name] for name in class_order if name in names]
    if positions != sorted(positions):
        details["grades_out_of_order"].append(str(list(class_order)))


def _compare_patients(pairs: Sequence[tuple[IndexRecord, TruthCase]], details: dict[str, list[str]]) -> None:
    """Compare who shares a patient with whom; a case of an unknown person stands alone."""
    by_index: dict[str, set[str]] = defaultdict(set)
    by_truth: dict[str, set[str]] = defaultdict(set)
    for record, case in pairs:
        by_index[record.patient if record.patient is not None else f"case {case.id}"].add(case.id)
        by_truth[case.patient if case.patient is not None else f"case {case.id}"].add(case.id)
    groups, true_groups = set(map(frozenset, by_index.values())), set(map(frozenset, by_truth.values()))
    for group in sorted(true_groups - groups, key=sorted):
        code = "patients_split_up" if not any(group < larger for larger in groups) else "patients_merged"
        details[code].append(", ".join(sorted(group)[:4]))


def _compare_sides(pairs: Sequence[tuple[IndexRecord, TruthCase]], truth: Truth, details: dict[str, list[str]]) -> None:
    if truth.side_rule == "free":
        return
    if truth.side_rule == "own_or_patients":
        tested = {case.patient for record, case in pairs if record.side == "test"}
        if not tested & {case.patient for record, case in pairs if record.side != "test"}:
            return
    for record, case in pairs:
        if (record.side == "test") != (case.side == "test"):
            details["wrong_side"].append(f"{case.id}: {record.side} for {case.side}")
