"""The exam: the hidden cases as an index of m3b, and the grading of predictions on them, in the reader process."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from m3b.bench.carve_out import AGENT_FOLDER, HIDDEN_FOLDER, CarveOut
from m3b.bench.datasets import DatasetSpec, RawCase, get_dataset
from m3b.bench.datasets.definitions import AcceptableRange
from m3b.data import kinds
from m3b.data.cards import slug
from m3b.data.index import TEST, TRAIN, BoxLabel, Index, Record, Report, read_index, read_records
from m3b.dataset.reading import geometry, read_mask, write_mask
from m3b.errors import DataError, ModelError
from m3b.isolation.reader import WorkerJob
from m3b.metrics import judge
from m3b.models import Prediction
from m3b.tasks import Row, get_family, score_all

MERGED_FOLDER = "union"
DETECTION, SEGMENTATION = "detection", "segmentation"


def merge_index(index: Index, name: str, base: Path) -> Index:
    """Return the index with all masks merged into the class `name`; the merged files are kept in `base`/union."""
    train, test = (tuple(_merge_record(record, base) for record in part) for part in (index.train, index.test))
    return Index(train, test, (name,), index.task, {name: 1})


def _merge_record(record: Record, base: Path) -> Record:
    if not isinstance(record.mask, str):
        return record
    mask_path = base / MERGED_FOLDER / record.mask
    merged_files = list(mask_path.parent.glob(f"{mask_path.name}.union*"))
    if not merged_files:
        mask_path.parent.mkdir(parents=True, exist_ok=True)
        merged_mask = (read_mask(record.mask, str(base)).array > 0).astype(np.uint8)
        merged_files = [Path(write_mask(merged_mask, record.reference, f"{mask_path}.union", str(base)))]
    return replace(record, mask=str(merged_files[0].relative_to(base)))


def merge_answer(answer: Prediction, name: str, record: Record, base: Path, scratch: Path) -> Prediction:
    """Return the answer with all its masks merged into the class `name`."""
    files = [answer.mask] if answer.mask is not None else list(answer.masks.values())
    merged_mask: NDArray[np.bool_] | None = None
    for file in files:
        array = np.asarray(read_mask(str(file)).array > 0)
        merged_mask = array if merged_mask is None else merged_mask | array
    if merged_mask is None:
        return answer
    return replace(
        answer, mask=None, masks={name: write_mask_file(merged_mask.astype(np.uint8), record, base, scratch)}
    )


def translate_answer(
    answer: Prediction, index: Index, model_values: Mapping[str, int], names: Mapping[str, str], record: Record, base: Path,
    scratch: Path,
) -> Prediction:  # fmt: skip
    """Return the answer with the true class names instead of the model's.

    Args:
        model_values: class of the model -> its number.
        names: class of the model -> true class.

    Raises:
        ModelError: a true class matches no class of the model.
    """
    task_family = get_family(index.task)
    if not task_family.answers.requires_classes:
        return answer
    missing_classes = [name for name in index.classes if name not in names.values()]
    if missing_classes and ("labels" in task_family.records.targets or len(missing_classes) == len(index.classes)):
        raise ModelError(f"none of its classes {list(model_values)} can be matched with {', '.join(missing_classes)}")
    if answer.probabilities:
        probabilities = {true_name: answer.probabilities[name] for name, true_name in names.items()}
        total = sum(probabilities.values())
        if len(probabilities) < len(answer.probabilities):
            probabilities = {
                name: value / total if total > 0 else 1 / len(probabilities) for name, value in probabilities.items()
            }
        predicted = tuple(names[name] for name in answer.prediction if name in names)
        answer = replace(answer, probabilities=probabilities, prediction=predicted)
    if answer.boxes is not None:
        boxes = tuple(replace(box, label=names[box.label]) for box in answer.boxes if box.label in names)
        answer = replace(answer, boxes=boxes)
    if answer.mask is not None and index.task == DETECTION:
        answer = _split_mask(answer, answer.mask, model_values, record, base, scratch)
    if answer.masks:
        answer = replace(answer, masks=_translate_masks(answer, index, names, record, base, scratch))
    return _renumber_mask(answer, index, model_values, names, record, base, scratch)


def _split_mask(
    answer: Prediction, file: Path, model_values: Mapping[str, int], record: Record, base: Path, scratch: Path
) -> Prediction:
    """Return the answer of a segmentation model with one mask for each of its classes, as detection is measured."""
    array = read_mask(str(file)).array
    masks = {name: write_mask_file(array == number, record, base, scratch) for name, number in model_values.items()}
    return replace(answer, mask=None, masks=masks)


def _translate_masks(
    answer: Prediction, index: Index, names: Mapping[str, str], record: Record, base: Path, scratch: Path
) -> dict[str, Path]:
    """Return one mask for each true class; for a class that the model does not know, an empty mask."""
    mask_files = {names[name]: file for name, file in answer.masks.items() if name in names}
    for name in index.classes:
        if name not in mask_files:
            mask_files[name] = write_mask_file(
                np.zeros(_image_shape(record, base), dtype=np.uint8), record, base, scratch
            )
    return {name: mask_files[name] for name in index.classes}


def _renumber_mask(
    answer: Prediction, index: Index, model_values: Mapping[str, int], names: Mapping[str, str], record: Record, base: Path,
    scratch: Path,
) -> Prediction:  # fmt: skip
    """Return the answer with the true class numbers in its mask, if the model's are different."""
    if answer.mask is None:
        return answer
    value_map = {number: index.values[names[name]] for name, number in model_values.items() if name in names}
    if all(old == new for old, new in value_map.items()):
        return answer
    array = read_mask(str(answer.mask)).array
    renumbered = np.zeros_like(array)
    for old, new in value_map.items():
        renumbered[array == old] = new
    return replace(answer, mask=write_mask_file(renumbered, record, base, scratch))


def _image_shape(record: Record, base: Path) -> tuple[int, ...]:
    return tuple(geometry(record.reference, str(base)).shape)


def write_mask_file(array: object, record: Record, base: Path, scratch: Path) -> Path:
    """Write a mask on the grid of the image to a new file in `scratch`; return its path."""
    return Path(write_mask(array, record.reference, str(scratch / f"mask-{uuid.uuid4().hex}"), str(base)))


SHUFFLE_COUNT, MASK_SHUFFLE_COUNT = 20, 2


def compute_shuffled_metric(
    index: Index, answers: Sequence[Prediction], base: Path, scratch: Path, metric: str
) -> dict[str, Any]:
    """Return the primary metric with shuffled images: mean `value` (None if undefined) and number `shuffles`."""
    random = np.random.default_rng(0)
    has_masks = any(answer.mask is not None or answer.masks for answer in answers)
    repeats = MASK_SHUFFLE_COUNT if has_masks else SHUFFLE_COUNT
    task_family, values = get_family(index.task), []
    patients = [record.patient for record in index.test]
    for _ in range(repeats):
        order = derange(patients, random)
        rows = [
            task_family.measure(record, _transfer_answer(answers[other_case], record, base, scratch), index, base)
            for record, other_case in zip(index.test, order, strict=True)
        ]
        try:
            values.append(score_all(task_family, rows, index, primary=metric).primary.value)
        except ValueError:
            break
    finite_values = [value for value in values if np.isfinite(value)]
    return {"value": float(np.mean(finite_values)) if finite_values else None, "shuffles": len(finite_values)}


def _transfer_answer(answer: Prediction, record: Record, base: Path, scratch: Path) -> Prediction:
    """Return the answer to another case, its masks cropped or padded around the centre to the grid of this image."""
    if answer.mask is not None:
        return replace(answer, mask=_fit_mask_to_image(answer.mask, record, base, scratch))
    if answer.masks:
        return replace(
            answer, masks={k: _fit_mask_to_image(file, record, base, scratch) for k, file in answer.masks.items()}
        )
    return answer


def _fit_mask_to_image(file: Path, record: Record, base: Path, scratch: Path) -> Path:
    array, shape = read_mask(str(file)).array, _image_shape(record, base)
    fitted = np.zeros(shape, dtype=array.dtype)
    target_slices, source_slices = [], []
    for size, source_size in zip(shape, array.shape, strict=True):
        common_size = min(size, source_size)
        target_slices.append(slice((size - common_size) // 2, (size - common_size) // 2 + common_size))
        source_slices.append(slice((source_size - common_size) // 2, (source_size - common_size) // 2 + common_size))
    fitted[tuple(target_slices)] = array[tuple(source_slices)]
    return write_mask_file(fitted, record, base, scratch)


def derange(patients: Sequence[str], random: np.random.Generator) -> list[int]:
    """Return for every case the index of a case of another patient, as far as possible."""
    order = [int(index) for index in random.permutation(len(patients))]
    for position in range(len(order)):
        if patients[position] != patients[order[position]]:
            continue
        for candidate in random.permutation(len(order)):
            if patients[position] != patients[order[candidate]] and patients[candidate] != patients[order[position]]:
                order[position], order[candidate] = order[candidate], order[position]
                break
    return order


MIN_PURITY = 0.9
"""Minimum share of cases of an agent's label that must have the same true class for both to be matched."""


def can_measure(model_task: str, index: Index) -> bool:
    """Return whether models for `model_task` give what the cases of the index are measured by.

    If detection is measured by masks, a segmentation model gives them too: "find and outline" may mean either.
    """
    has_masks = any(record.mask is not None for record in index.test)
    return model_task == index.task or (index.task == DETECTION and model_task == SEGMENTATION and has_masks)


def build_exam_index(carve_out: CarveOut, spec: DatasetSpec, *, use_folders: bool = False) -> Index:
    """Return an index with the true labels: the agent's cases as training split, the hidden cases as test split.

    Paths are relative to the folder of the carve-out.

    Args:
        use_folders: name the folder of a volume's slices instead of the slices, as the index of the agent does.
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
    """Return the true classes with their numbers, as in `label_dict.json`."""
    if spec.values and "masks" in kinds.of(task).targets:
        return {name: value for value, name in spec.values.items()}
    return {name: number for number, name in enumerate(spec.classes)}


def match_class_names(
    true_names: Sequence[str],
    model_values: Mapping[str, int],
    true_values: Mapping[str, int],
    learnt_names: Mapping[str, str],
) -> dict[str, str]:
    """Return class of the model -> true class, if known: learnt from the index of the run, by name, by mask value."""
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


def learn_names(work_folder: Path, truth: Mapping[str, str]) -> dict[str, str]:
    """Return label of the agent -> true class, by the true classes of the cases with that label. For diagnosis only.

    Args:
        work_folder: contains the index files of the agent.
        truth: path of an image -> its true class.
    """
    try:
        rows = [*read_records(work_folder / TRAIN), *read_records(work_folder / TEST)]
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
        true_label, best_count = count.most_common(1)[0]
        if best_count >= MIN_PURITY * count.total() and true_label not in names.values():
            names[name] = true_label
    return names


def _strip_data_prefix(path: str) -> str:
    """Return a path without the leading `data/<set>/` and without archive item."""
    parts = path.split("#")[0].replace("\\", "/").split("/")
    return "/".join(parts[2:] if parts[0] == "data" and len(parts) > 2 else parts)


def has_folder_images(work_folder: Path) -> bool:
    """Return whether the agent's index names volumes by their folders."""
    try:
        rows = read_records(work_folder / TRAIN)
    except DataError:
        return False
    return any(isinstance(row.image, str) and "." not in Path(row.image).name for row in rows[:50])


READER_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class ExamRequest:
    """The carve-out in `folder`, and in `work_folder` the index files of the run of the model, if there are any."""

    folder: Path
    dataset: str
    work_folder: Path | None


@dataclass(frozen=True)
class Exam:
    """The index of the hidden cases, and the true class for each label in the index of the run."""

    index: Index
    learnt_names: dict[str, str]


@dataclass(frozen=True)
class FieldExamRequest:
    """The reference index of a field set in `folder`, and in `work_folder` the index files of the run of the model."""

    folder: Path
    task: str
    work_folder: Path | None


@dataclass(frozen=True)
class GradingRules:
    """By what answers are graded.

    Args:
        acceptable: range of the metric; None without one.
        merged_class: the single class that is scored, if all findings count as one; else empty.
    """

    task: str
    metric: str
    acceptable: AcceptableRange | None = None
    merged_class: str = ""


@dataclass(frozen=True)
class GradeRequest:
    """The answers to the test cases of an exam, with the classes of the model and their numbers.

    Args:
        folder: the paths of the exam are relative to it.
        scratch: a writable folder for masks with the true class names.
        baseline: the image-blind baseline, if it is known already.
    """

    folder: Path
    rules: GradingRules
    exam: Exam
    answers: list[Prediction]
    model_values: dict[str, int]
    scratch: Path
    baseline: Any
    seed: int


@dataclass(frozen=True)
class GradedAnswers:
    """The result of grading: fields of `m3b.bench.scoring.Score`, and the image-blind baseline."""

    ok: bool
    reason: str
    primary: dict[str, Any]
    metrics: dict[str, Any]
    control: dict[str, Any]
    is_constant: bool
    baseline: Any
    has_verdict: bool
    names: dict[str, str] = field(default_factory=dict)


EXAMINE_JOB = WorkerJob("m3b.bench.exam:build_exam", ExamRequest, Exam, READER_TIMEOUT_S)
FIELD_EXAM_JOB = WorkerJob("m3b.bench.exam:build_field_exam", FieldExamRequest, Exam, READER_TIMEOUT_S)
GRADE_JOB = WorkerJob("m3b.bench.exam:grade_exam", GradeRequest, GradedAnswers, READER_TIMEOUT_S)


def build_exam(request: ExamRequest) -> Exam:
    """Build the exam of a carve-out. Runs in the reader process. Raises DataError."""
    spec, carve_out, work_folder = get_dataset(request.dataset), CarveOut.load(request.folder), request.work_folder
    index = build_exam_index(carve_out, spec, use_folders=work_folder is not None and has_folder_images(work_folder))
    if merges_findings(spec, index):
        index = merge_index(index, spec.merged_class, carve_out.folder)
    if work_folder is None or "labels" not in get_family(spec.task).records.targets:
        return Exam(index, {})
    cases = spec.read(carve_out.agent_folder).cases
    return Exam(
        index, learn_names(work_folder, {path: case.labels[0] for case in cases for path in case.images if case.labels})
    )


def build_field_exam(request: FieldExamRequest) -> Exam:
    """Build the exam of a field set: the test part of its reference index. Runs in the reader process. Raises DataError."""
    index = read_index(request.folder, request.task)
    if request.work_folder is None or "labels" not in get_family(request.task).records.targets:
        return Exam(index, {})
    truth = {path: record.labels[0] for record in index.train if len(record.labels) == 1 for path in record.images}
    return Exam(index, learn_names(request.work_folder, truth))


def merges_findings(rules: GradingRules | DatasetSpec, index: Index) -> bool:
    """Return whether all findings are scored as one class, by merged masks."""
    return bool(rules.merged_class) and not index.boxed


def grade_exam(request: GradeRequest) -> GradedAnswers:
    """Grade the answers. Runs in the reader process. Raises ModelError, DataError."""
    rules, index = request.rules, request.exam.index
    base_folder, task_family = request.folder, get_family(rules.task)
    answers, names = _translate_answers(request)
    rows = [
        task_family.measure(record, answer, index, base_folder)
        for record, answer in zip(index.test, answers, strict=True)
    ]
    metric = "map_50" if index.boxed else rules.metric
    baseline = request.baseline
    if baseline is None:
        baseline = task_family.predict_baseline(index.train, index.test, index, base_folder)
    try:
        scores = score_all(task_family, rows, index, primary=metric, baseline=baseline, seed=request.seed)
        control = compute_shuffled_metric(index, answers, base_folder, request.scratch, metric)
    except ValueError as error:
        raise DataError(str(error)) from error
    verdict, figures = judge(scores, None if index.boxed else rules.acceptable), scores.to_dict()
    return GradedAnswers(
        verdict.ok,
        verdict.reason,
        figures["primary"],
        figures["metrics"],
        control,
        has_constant_answers(rows),
        baseline,
        not verdict.is_open,
        names,
    )


def _translate_answers(request: GradeRequest) -> tuple[list[Prediction], dict[str, str]]:
    """Return the answers with the true class names, and class of the model -> true class.

    Raises:
        ModelError: the classes of the model cannot be matched with the true ones.
    """
    index, base_folder, scratch, model_values = (
        request.exam.index,
        request.folder,
        request.scratch,
        request.model_values,
    )
    pairs = list(zip(request.answers, index.test, strict=True))
    if merges_findings(request.rules, index):
        name = request.rules.merged_class
        merged_answers = [merge_answer(answer, name, row, base_folder, scratch) for answer, row in pairs]
        return merged_answers, dict.fromkeys(model_values, name)
    names = match_class_names(list(index.classes), model_values, index.values, request.exam.learnt_names)
    return [
        translate_answer(answer, index, model_values, names, row, base_folder, scratch) for answer, row in pairs
    ], names


def has_constant_answers(rows: Sequence[Row]) -> bool:
    """Return whether every case has the same answer, or every mask is empty."""
    if len(rows) < 2:
        return False
    if "probabilities" in rows[0]:
        first_probabilities = rows[0]["probabilities"]
        return all(
            abs(row["probabilities"][name] - value) < 1e-6
            for row in rows
            for name, value in first_probabilities.items()
        )
    if "prediction" in rows[0]:
        return len({row["prediction"] for row in rows}) == 1
    if "figures" in rows[0]:
        return not any(figure[4] for row in rows for figure in row["figures"].values())
    return len({str(row.get("predicted")) for row in rows}) == 1
