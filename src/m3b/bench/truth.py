"""Hidden cases in m3b's own terms: index records with the truth, and how the agent's names match the true ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from m3b.data import kinds
from m3b.data.cards import slug
from m3b.data.index import TEST, TRAIN, BoxLabel, Index, Record, Report, read_records
from m3b.errors import DataError

from .datasets import DatasetSpec, RawCase
from .hidden import AGENT_FOLDER, HIDDEN_FOLDER, CarveOut

MIN_PURITY = 0.9
"""A name of the agent's that goes with one true class in fewer of its cases than this means something else."""


def build_exam_index(carve_out: CarveOut, spec: DatasetSpec, *, use_folders: bool = False) -> Index:
    """An index with the true cases: the agent's as training part, the hidden ones as test part.

    Paths count from `hidden.folder`.

    Args:
        use_folders: name the folder of a volume's slices instead of the slices, as the agent's own index does.
    """
    agent_cases = spec.read(carve_out.agent_folder).cases
    train = tuple(_to_record(case, spec.task, use_folders, AGENT_FOLDER) for case in agent_cases)
    test = tuple(_to_record(case, spec.task, use_folders, HIDDEN_FOLDER) for case in carve_out.cases)
    truth = {} if test and test[0].boxes is not None else get_class_values(spec, spec.task)
    names = tuple(truth) or tuple(dict.fromkeys((*spec.values.values(), *spec.classes)))
    return Index(train, test, names, spec.task, truth)


def _to_record(case: RawCase, task: str, use_folders: bool, subfolder: str) -> Record:
    record_kind = kinds.of(task)
    case = replace(case, images=tuple(f"{subfolder}/{path}" for path in case.images),
                   mask=f"{subfolder}/{case.mask}" if case.mask else "")  # fmt: skip
    image: str | tuple[str, ...] = case.images[0] if len(case.images) == 1 else case.images
    parents = {str(Path(path).parent) for path in case.images}
    if use_folders and not record_kind.separate_images and len(case.images) > 1 and len(parents) == 1:
        image = parents.pop()
    if "report" in record_kind.targets:
        return Record(image, case.labels, case.patient, report=Report(case.findings, case.impression))
    if "labels" in record_kind.targets:
        return Record(image, case.labels, case.patient)
    if case.mask:
        return Record(image, (), case.patient, mask=case.mask)
    boxes = tuple(BoxLabel(box.label, (box.x1, box.y1, box.x2, box.y2)) for box in case.boxes)
    return Record(image, (), case.patient, boxes=boxes)


def get_class_values(spec: DatasetSpec, task: str) -> dict[str, int]:
    """The true classes as `label_dict.json` has them."""
    if spec.values and "masks" in kinds.of(task).targets:
        return {name: value for value, name in spec.values.items()}
    return {name: number for number, name in enumerate(spec.classes)}


def match_class_names(
    true_names: Sequence[str],
    model_values: Mapping[str, int],
    true_values: Mapping[str, int],
    learnt_names: Mapping[str, str],
) -> dict[str, str]:
    """Their name -> our name, as far as it can be told: as learnt from their index, by spelling, by mask value."""
    matches = {name: learnt_names[name] for name in model_values if learnt_names.get(name) in true_names}
    name_by_slug = {slug(name): name for name in true_names}
    for name in model_values:
        if name not in matches and name_by_slug.get(slug(name)) not in (None, *matches.values()):
            matches[name] = name_by_slug[slug(name)]
    by_value = {value: name for name, value in true_values.items()}
    has_mask_values = min(true_values.values(), default=0) >= 1
    for name, value in model_values.items():
        if name not in matches and has_mask_values and by_value.get(value) not in (None, *matches.values()):
            matches[name] = by_value[value]
    return matches


def learn_names(work_folder: Path, carve_out: CarveOut, spec: DatasetSpec) -> dict[str, str]:
    """Which true class each of the agent's labels stands for, by the cases that it put there. Diagnosis only.

    Args:
        work_folder: holds the agent's index files.
    """
    try:
        rows = [*read_records(work_folder / TRAIN), *read_records(work_folder / TEST)]
        truth = {
            path: case.labels[0]
            for case in spec.read(carve_out.agent_folder).cases
            for path in case.images
            if case.labels
        }
    except DataError:
        return {}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    label_by_path = {_strip_data_prefix(path): label for path, label in truth.items()}
    for path, label in truth.items():
        label_by_path.setdefault(str(Path(_strip_data_prefix(path)).parent), label)
    for row in rows:
        true_label = label_by_path.get(_strip_data_prefix(row.files[0]))
        if true_label and len(row.labels) == 1:
            votes[row.labels[0]][true_label] += 1
    names: dict[str, str] = {}
    for name, count in votes.items():
        best, best_count = count.most_common(1)[0]
        if best_count >= MIN_PURITY * count.total() and best not in names.values():
            names[name] = best
    return names


def _strip_data_prefix(path: str) -> str:
    """A path without the `data/<set>/` before it."""
    parts = path.split("#")[0].replace("\\", "/").split("/")
    return "/".join(parts[2:] if parts[0] == "data" and len(parts) > 2 else parts)


def has_folder_images(work_folder: Path) -> bool:
    """Whether the agent's index names volumes by their folders."""
    try:
        rows = read_records(work_folder / TRAIN)
    except DataError:
        return False
    return any(isinstance(row.image, str) and "." not in Path(row.image).name for row in rows[:50])
