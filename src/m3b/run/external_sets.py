"""External test sets, measured with the delivered model after everything else.

The confined reader reads, audits and stages their cases; predict.py predicts them like the run's own test cases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.checks.index_lock import freeze_index
from m3b.agents.checks.model import describe_hidden_failure
from m3b.agents.checks.worker_jobs import AUDIT_JOB, AuditRequest
from m3b.data import kinds
from m3b.data.cards import card_for_folder
from m3b.data.index import Index, read_index, read_records, write_records
from m3b.data.kinds.diagnosis import UNKNOWN_LABELS
from m3b.data.records import Record, relocate_record
from m3b.dataset.audit import Audit
from m3b.errors import DataError, M3bError, ModelError
from m3b.events import NoteAdded, StepStarted
from m3b.isolation.untrusted import copy_file, remove_tree
from m3b.metrics import Scores
from m3b.run.decision import decide, make_decision_job
from m3b.run.external_sources import ExternalSource
from m3b.run.index_validation import MANIFEST_FILE
from m3b.run.manifests import describe_accounting
from m3b.run.model_validation import keep_failed_output
from m3b.run.result import ExternalResult
from m3b.tasks import Row, get_family, score_all
from m3b.tasks.score_details import add_lookup_control, add_subgroups, add_uncertainty_scores
from m3b.tasks.worker_jobs import COMPARE_JOB, RENUMBER_JOB, CompareRequest, RenumberRequest
from m3b.tools.dataset_jobs import MANIFEST_JOB
from m3b.training.box_masks import is_from_boxes
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from m3b.run.folder import RunFolder
    from m3b.run.services import RunServices
    from m3b.run.state import RunState


@dataclass(frozen=True)
class FittedCases:
    """Cases of an external set with the class names of the model.

    Args:
        notes: sentences on what was excluded or renamed.
        mask_values: (value in the file, number of the model) for each class, if the mask numbers differ; else empty.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    mask_values: tuple[tuple[int, int], ...] = ()


def fit_to_model_classes(records: Sequence[Record], values: Mapping[str, int], index: Index) -> FittedCases:
    """Return the records of another set with the model's class names; records without such a class are excluded.

    Args:
        values: class -> number in the other set.
        index: the index of the model.

    Raises:
        DataError: the model cannot be measured on this set; the message says why.
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
    """Raise DataError if targets or channels are of another kind than those of the model."""
    record_kind = kinds.of(index.task)
    external_index = Index(tuple(records), (), ("x",), index.task, {"x": 1})
    for name, targets_word in (("masked", "masks"), ("boxed", "boxes"), ("stated", "states of whole images")):
        if getattr(external_index, name) != getattr(index, name):
            found_phrase, expected_phrase = ("has", "does not") if getattr(external_index, name) else ("has no", "does")
            raise DataError(f"It {found_phrase} {targets_word}, and what the model was measured on {expected_phrase}.")
    if index.masked and external_index.overlapping != index.overlapping:
        expected_form = "a mask file for each class" if index.overlapping else "one mask file for all classes"
        raise DataError(f"Its masks have another form than the model's, which has {expected_form}.")
    is_boxed, is_model_boxed = (any(is_from_boxes(r.extra) for r in part) for part in (records, index.test))
    if is_boxed != is_model_boxed:
        raise DataError(
            f"Its masks are {'boxes' if is_boxed else 'outlines'}, and those that the model was measured on are not: "
            "`m3b score MODEL INDEX` measures the model on them."
        )
    if bool(external_index.channels) != bool(index.channels) or not set(external_index.channels) <= set(index.channels):
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
    """Raise DataError if the set lacks classes that the model's metric depends on."""
    if index.stated or (kinds.of(index.task).empty_vocabulary and not values):
        return
    absent = [name for name in index.classes if name not in name_map.values()]
    if not absent or (is_exclusive and len(name_map) > 1):
        return
    external_classes = ", ".join(values) or "none"
    raise DataError(
        f"It does not speak of {', '.join(absent)}: its classes are {external_classes}; the model's are {', '.join(index.classes)}. "
        "Give a manifest of it whose classes have the model's names."
    )


def _rename_classes(record: Record, name_map: Mapping[str, str]) -> Record:
    labels = tuple(name_map[item] for item in record.labels if item in name_map)
    boxes = record.boxes
    if boxes is not None:
        boxes = tuple(replace(item, label=name_map[item.label]) for item in boxes if item.label in name_map)
    mask = record.mask
    if isinstance(mask, Mapping):
        mask = {name_map[name]: path for name, path in mask.items() if name in name_map}
    extra = dict(record.extra)
    if UNKNOWN_LABELS in extra:
        extra[UNKNOWN_LABELS] = [name_map[name] for name in extra[UNKNOWN_LABELS] if name in name_map]
    return replace(record, labels=labels, boxes=boxes, mask=mask, extra=extra)


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


EXTERNAL_FOLDER = "external"
"""Folder below `locked/` that holds a folder for each set, with its cases and the measured predictions."""
SPLIT_ONLY_CODES = (
    "too_few_cases", "one_class", "one_value", "one_report", "two_grades", "few_patients", "patient_overlap", "one_patient",
    "class_absent_train", "class_absent_test", "class_rare_train", "class_rare_test", "class_nowhere", "small_test",
    "class_scarce_train", "class_scarce_test",
    "one_case_a_class", "duplicate_across", "near_duplicate_across", "altered_copy_across", "metric_not_borne", "no_healthy",
    "state_rare_test", "normal_only", "one_anomaly", "report_across", "numbers_of_request", "classes_off_request",
    "all_empty",
)  # fmt: skip
"""Codes of audit findings that matter only for training data, not for a set that is used for testing alone."""
MAX_AUDIT_S = 60.0


@dataclass(frozen=True)
class ExternalCases:
    """Records of an external set, notes, and what groups the cases.

    Paths of the records are relative to `locked/` while `locked/data` links to the set.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...]
    grouped_by: str


def read_external_cases(
    state: RunState, services: RunServices, source: ExternalSource, data_name: str, target: Path
) -> ExternalCases:
    """Return every case of the folder, audited, with the model's class names and numbers; keep the index in `target`.

    Raises:
        DataError: no manifest can be used, or the cases cannot be used.
    """
    scratch = services.folder.path / f".{EXTERNAL_FOLDER}-{source.name}"
    remove_tree(scratch)
    scratch.mkdir()
    try:
        facts = _execute_manifest(state, services, source, data_name, scratch)
        remove_tree(target)
        notes = [
            *describe_accounting(facts),
            *freeze_index(scratch, target, {data_name: source.folder}, state.get_artifact(Selection).task),
        ]
        cases = _fit_cases_to_model(state, services, target, data_name, scratch)
    finally:
        remove_tree(scratch)
    return ExternalCases(cases.records, (*notes, *cases.notes), str(facts.get("grouped_by", ""))[:200])


def _execute_manifest(
    state: RunState, services: RunServices, source: ExternalSource, data_name: str, scratch: Path
) -> dict[str, Any]:
    """Write index files to `scratch`, by the user's manifest, the best proposed one, or that of the run's own data."""
    problems: list[str] = []
    for manifest in _candidate_manifests(state, services, source, scratch, problems):
        job = {
            "do": "execute",
            "task": state.get_artifact(Selection).task,
            "name": data_name,
            "work": str(scratch),
            "manifest": manifest,
        }
        answer = _ask_reader(services, source, scratch, job)
        if "error" not in answer:
            return answer
        problems.append(str(answer["error"]))
    problem = problems[0] if problems else "no manifest is proposed."
    raise DataError(
        f"It cannot be read: {problem} Give a manifest of it; `m3b look DIR REQUEST -o manifest.json` writes one."
    )


def _candidate_manifests(
    state: RunState, services: RunServices, source: ExternalSource, scratch: Path, problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield manifests to try, with all cases for testing.

    If the best proposal may not be taken, the reason is appended to `problems`.
    """
    if source.manifest is not None:
        yield _without_split(source.manifest.model_dump(mode="json", exclude_defaults=True))
        return
    selection, data = state.get_artifact(Selection), state.get_artifact(DataIndex)
    classes = data.classes if get_family(selection.task).predicts_classes() else ()
    card = card_for_folder(source.folder)
    job = make_decision_job(services.request, card, None, tasks=[selection.task], classes=classes)
    decision = decide(lambda job: _ask_reader(services, source, scratch, job), job)
    if decision.kind != "proposed":
        problems.append(decision.text)
    else:
        yield _without_split(decision.proposals[0].manifest)
    manifest_file = services.folder.get_path(MANIFEST_FILE)
    if manifest_file.is_file():  # another hospital may export in the same way as the first one
        yield _without_split(json.loads(manifest_file.read_text(encoding="utf-8")))


def _without_split(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest without the split of the data set, since all of it is for testing."""
    return {name: value for name, value in manifest.items() if name != "split"}


def _ask_reader(services: RunServices, source: ExternalSource, scratch: Path, job: dict[str, Any]) -> dict[str, Any]:
    reader = services.executor.reader_pool.get_reader((source.folder,), (scratch,))
    return reader.run_job(MANIFEST_JOB, {**job, "root": str(source.folder), "place": str(scratch)})


def _fit_cases_to_model(
    state: RunState, services: RunServices, target: Path, data_name: str, scratch: Path
) -> ExternalCases:
    """Return the cases in `target`, with paths relative to `locked/`."""
    task = state.get_artifact(Selection).task
    external_index, model_index = read_index(target, task), read_index(services.folder.locked, task)
    fitted_cases = fit_to_model_classes(external_index.records, external_index.values, model_index)
    records = fitted_cases.records
    if fitted_cases.mask_values:
        records = _renumber_masks(services, target, records, fitted_cases.mask_values, scratch)
    audit = services.executor.get_checking_reader().run_job(AUDIT_JOB, AuditRequest(target, task, MAX_AUDIT_S))
    notes = _check_audit(audit)
    prefix = target.relative_to(services.folder.locked).as_posix()

    def relocate_path(path: str) -> str:
        return path if path.startswith(f"data/{data_name}/") else f"{prefix}/{path}"

    return ExternalCases(
        tuple(relocate_record(record, relocate_path) for record in records), (*fitted_cases.notes, *notes), ""
    )


def _renumber_masks(
    services: RunServices,
    target_folder: Path,
    records: Sequence[Record],
    numbers: Sequence[tuple[int, int]],
    scratch: Path,
) -> tuple[Record, ...]:
    """Return the records with masks in the model's numbers, copied from the reader's output to `target_folder`."""
    output_folder = scratch / "numbered"
    output_folder.mkdir()
    raw_folders = [path.resolve() for path in (target_folder / "data").iterdir()]
    reader = services.executor.reader_pool.get_reader((target_folder, *raw_folders), (output_folder,))
    file_names = reader.run_job(
        RENUMBER_JOB, RenumberRequest(list(records), target_folder, output_folder, list(numbers))
    )
    renumbered = []
    for record, name in zip(records, file_names, strict=True):
        if not name:
            renumbered.append(record)
            continue
        if Path(name).name != name:
            raise DataError(f"A mask was written as {name!r}, which is no plain file name.")
        target = f"Datapath/numbered/{name}"
        copy_file(output_folder, name, target_folder, target)
        renumbered.append(replace(record, mask=target))
    return tuple(renumbered)


def _check_audit(audit: Audit) -> tuple[str, ...]:
    """Return the warnings of the audit. Raise DataError for findings that make the metrics worthless."""
    blocking_findings = [
        finding for finding in (*audit.of("reject"), *audit.of("fix")) if finding.code not in SPLIT_ONLY_CODES
    ]
    if blocking_findings:
        raise DataError(" ".join(finding.message for finding in blocking_findings[:3]))
    return tuple(finding.message for finding in audit.of("warn") if finding.code not in SPLIT_ONLY_CODES)


CASES_FILE, PREDICTIONS_FILE = "cases.json", "predictions.json"


def measure_external_sets(state: RunState, services: RunServices) -> dict[str, ExternalResult]:
    """Return the results of every external set by its name; a set that cannot be measured gives the reason only."""
    results = {}
    for source in services.external_sources:
        services.emit(StepStarted(f"measuring on the external set {source.name}"))
        try:
            result = _measure_set(state, services, source)
        except (M3bError, OSError, ValueError) as error:
            result = ExternalResult(source.name, reason=" ".join(str(error).split())[:600] or type(error).__name__)
        services.emit(NoteAdded(result.summary))
        results[source.name] = result
    return results


def _measure_set(state: RunState, services: RunServices, source: ExternalSource) -> ExternalResult:
    if not source.folder.is_dir():
        raise DataError(f"{source.folder} is not there any more.")
    data_name = f"{EXTERNAL_FOLDER}-{source.name}"
    set_folder = services.folder.locked / EXTERNAL_FOLDER / source.name
    with _link_data(services, data_name, source.folder):
        cases = read_external_cases(state, services, source, data_name, set_folder)
        index = read_index(services.folder.locked, state.get_artifact(Selection).task)
        records, notes = _drop_training_images(services, index, cases.records)
        external_index = replace(index, test=tuple(records))
        rows = _predict_set(services, external_index, set_folder)
        baseline_predictions = services.executor.predict_baseline(
            index.train, external_index.test, external_index, services.folder.locked
        )
    write_records(set_folder / CASES_FILE, external_index.test, index.task)
    write_text_atomically(set_folder / PREDICTIONS_FILE, json.dumps({"rows": rows, "trivial": baseline_predictions}))
    scores = _compute_scores(
        rows, external_index, state.get_artifact(Selection).metric, services.options.seed, baseline_predictions
    )
    return _make_result(source.name, scores, cases.grouped_by, (*cases.notes, *notes))


def _predict_set(services: RunServices, index: Index, set_folder: Path) -> list[Row]:
    """Predict the cases. A failure names no output of predict.py: the reason goes into the delivered model card."""
    try:
        return services.executor.predict(services.folder.measured_model, index.test, index)
    except ModelError as error:
        file = keep_failed_output(set_folder, str(error)).relative_to(services.folder.path)
        raise ModelError(
            f"The model's predict.py fails on it ({describe_hidden_failure(str(error))}). Its output is in {file} of the run.",
            code=error.code,
        ) from None


def _make_result(name: str, scores: Scores, grouped_by: str, notes: Sequence[str]) -> ExternalResult:
    return ExternalResult(
        name,
        primary=scores.primary,
        metrics={metric: measure.to_dict() for metric, measure in scores.metrics.items()},
        cases=scores.n_cases,
        patients=scores.n_patients if scores.patients_known else None,
        patients_known=scores.patients_known,
        grouped_by=grouped_by,
        notes=tuple(notes),
    )


def _compute_scores(rows: Sequence[Row], index: Index, metric: str, seed: int, baseline_predictions: Any) -> Scores:
    task_family = get_family(index.task)
    scores = score_all(task_family, rows, index, primary=metric, baseline=baseline_predictions, seed=seed)
    scores = add_subgroups(add_lookup_control(scores, rows, task_family), task_family, rows, index, seed=seed)
    return replace(
        add_uncertainty_scores(scores, rows), patients_known=all(record.patient_known for record in index.test)
    )


def recompute_scores(run: RunFolder, name: str, selection: Selection, seed: int) -> Scores:
    """Compute the scores of a set again, from its files in `locked/`.

    Raises:
        DataError, OSError, ValueError, KeyError: the files cannot be read.
    """
    set_folder = run.locked / EXTERNAL_FOLDER / name
    stored = json.loads((set_folder / PREDICTIONS_FILE).read_text(encoding="utf-8"))
    index = replace(read_index(run.locked, selection.task), test=read_records(set_folder / CASES_FILE, selection.task))
    return _compute_scores(stored["rows"], index, selection.metric, seed, stored["trivial"])


@contextmanager
def _link_data(services: RunServices, data_name: str, folder: Path) -> Iterator[None]:
    """Link the set below `locked/data` while it is measured, so that its paths have the same base as all others."""
    link = services.folder.locked / "data" / data_name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder, target_is_directory=True)
    try:
        yield
    finally:
        link.unlink(missing_ok=True)


def _drop_training_images(
    services: RunServices, index: Index, records: Sequence[Record]
) -> tuple[list[Record], list[str]]:
    """Return the records whose images are not training images, and notes on equal and nearly equal images."""
    comparison = services.executor.get_checking_reader().run_job(
        COMPARE_JOB, CompareRequest(list(index.train), list(records), services.folder.locked)
    )
    same_images, notes = set(comparison.same_keys), []
    remaining = [record for record in records if not ({record.key, *record.images} & same_images)]
    if len(remaining) < len(records):
        notes.append(f"{len(records) - len(remaining):,} cases are left out: training had the same pixels.")
    if comparison.near_count:
        notes.append(
            f"{comparison.near_count:,} images are nearly the same as training images; the figure may be too high."
        )
    if not comparison.is_complete:
        notes.append("Not all images could be compared with those of training.")
    if not remaining:
        raise DataError("Training used every one of its images, pixel for pixel, so it is not an external set.")
    return remaining, notes
