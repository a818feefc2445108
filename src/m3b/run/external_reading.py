"""The cases of an external set: read and audited in the confined reader, with the model's class names and numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.checks.frozen import freeze_index
from m3b.agents.checks.inside import AUDIT_JOB, AuditRequest
from m3b.data.audit import Audit
from m3b.data.cards import own_notes
from m3b.data.index import read_index
from m3b.data.records import Record, relocated
from m3b.errors import DataError
from m3b.run.acceptance import MANIFEST_FILE
from m3b.run.external import ExternalSource
from m3b.run.proposal_choice import SURVEY_S
from m3b.run.readings import describe_accounting
from m3b.tasks import get_family
from m3b.tasks.external import fit_to_model_classes
from m3b.tasks.external_inside import RENUMBER_JOB, RenumberRequest
from m3b.tools.surveying import MANIFEST_JOB
from m3b.untrusted import copy_file, remove_tree

if TYPE_CHECKING:
    from m3b.run.context import RunContext

EXTERNAL_FOLDER = "external"
"""Below `locked/`: a folder for each set, with its cases and the measured answers."""
SPLIT_ONLY_CODES = (
    "too_few_cases", "one_class", "one_value", "one_report", "two_grades", "few_patients", "patient_overlap", "one_patient",
    "class_absent_train", "class_absent_test", "class_rare_train", "class_rare_test", "class_nowhere", "small_test",
    "class_scarce_train", "class_scarce_test",
    "one_case_a_class", "duplicate_across", "near_duplicate_across", "altered_copy_across", "metric_not_borne", "no_healthy",
    "state_rare_test", "normal_only", "one_anomaly", "report_across", "numbers_of_request", "classes_off_request",
    "all_empty",
)  # fmt: skip
"""What the audit asks of sets that are learnt from, and a set for testing alone need not have."""
MAX_AUDIT_S = 60.0


@dataclass(frozen=True)
class ExternalCases:
    """Records whose paths count from `locked/` while `locked/data` leads to the set; what was noted; what groups them."""

    records: tuple[Record, ...]
    notes: tuple[str, ...]
    grouped_by: str


def read_external_cases(run: RunContext, source: ExternalSource, data_name: str, target: Path) -> ExternalCases:
    """Every case of the folder, with the model's class names and numbers, audited; the index is kept in `target`.

    Raises:
        DataError: no reading suffices, or the cases cannot be used.
    """
    scratch = run.folder.path / f".{EXTERNAL_FOLDER}-{source.name}"
    remove_tree(scratch)
    scratch.mkdir()
    try:
        facts = _execute_manifest(run, source, data_name, scratch)
        remove_tree(target)
        notes = [
            *describe_accounting(facts),
            *freeze_index(scratch, target, {data_name: source.folder}, run.get_artifact(Selection).task),
        ]
        cases = _fit_cases_to_model(run, target, data_name, scratch)
    finally:
        remove_tree(scratch)
    return ExternalCases(cases.records, (*notes, *cases.notes), str(facts.get("grouped_by", ""))[:200])


def _execute_manifest(run: RunContext, source: ExternalSource, data_name: str, scratch: Path) -> dict[str, Any]:
    """Index files in `scratch`, by the reading that was given, the best that is proposed, or the one of the run's own data."""
    problems: list[str] = []
    for manifest in _candidate_manifests(run, source, scratch, problems):
        job = {
            "do": "execute",
            "task": run.get_artifact(Selection).task,
            "name": data_name,
            "work": str(scratch),
            "spec": manifest,
        }
        answer = _ask_reader(run, source, scratch, job)
        if "error" not in answer:
            return answer
        problems.append(str(answer["error"]))
    problem = problems[0] if problems else "no reading is proposed."
    raise DataError(
        f"It cannot be read: {problem} Give a reading of it; `m3b look DIR REQUEST -o spec.json` writes one."
    )


def _candidate_manifests(
    run: RunContext, source: ExternalSource, scratch: Path, problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Specs to try, with all cases for testing. Why the best proposal may not be taken is added to `problems`."""
    if source.manifest is not None:
        yield _without_split(source.manifest.model_dump(mode="json", exclude_defaults=True))
        return
    selection, data = run.get_artifact(Selection), run.get_artifact(DataIndex)
    boxes = True if selection.metric in get_family(selection.task).box_metrics else None
    job = {"do": "propose", "request": run.request, "notes": own_notes(source.folder), "seconds": SURVEY_S, "given": {},
           "task": selection.task, "boxes": boxes,
           "classes": list(data.classes) if selection.task != "regression" else []}  # fmt: skip
    answer = _ask_reader(run, source, scratch, job)
    if "error" in answer or answer["insufficient"] or not answer["readings"]:
        problems.append(str(answer.get("error") or answer["insufficient"] or "no reading is proposed."))
    else:
        yield _without_split(answer["readings"][0]["spec"])
    manifest_file = run.folder.path / MANIFEST_FILE
    if manifest_file.is_file():  # a hospital that exports as the first one did
        yield _without_split(json.loads(manifest_file.read_text(encoding="utf-8")))


def _without_split(manifest: dict[str, Any]) -> dict[str, Any]:
    """The reading without the set's own split: all of it is for testing."""
    return {name: value for name, value in manifest.items() if name != "split"}


def _ask_reader(run: RunContext, source: ExternalSource, scratch: Path, job: dict[str, Any]) -> dict[str, Any]:
    reader = run.executor.reader_pool.get_reader((source.folder,), (scratch,))
    return reader.run_job(MANIFEST_JOB, {**job, "root": str(source.folder), "place": str(scratch)})


def _fit_cases_to_model(run: RunContext, target: Path, data_name: str, scratch: Path) -> ExternalCases:
    """The cases that lie in `target`, with paths that count from `locked/`."""
    task = run.get_artifact(Selection).task
    external_index, model_index = read_index(target, task), read_index(run.folder.locked, task)
    fitted_cases = fit_to_model_classes(external_index.records, external_index.values, model_index)
    records = fitted_cases.records
    if fitted_cases.mask_values:
        records = _renumber_masks(run, target, records, fitted_cases.mask_values, scratch)
    audit = run.executor.get_checking_reader().run_job(AUDIT_JOB, AuditRequest(target, task, MAX_AUDIT_S))
    notes = _check_audit(audit)
    prefix = target.relative_to(run.folder.locked).as_posix()

    def relocate_path(path: str) -> str:
        return path if path.startswith(f"data/{data_name}/") else f"{prefix}/{path}"

    return ExternalCases(
        tuple(_relocate_record(record, relocate_path) for record in records), (*fitted_cases.notes, *notes), ""
    )


def _relocate_record(record: Record, relocate_path: Callable[[str], str]) -> Record:
    mask = record.mask
    if isinstance(mask, str):
        mask = relocate_path(mask)
    elif mask is not None:
        mask = (
            {k: relocate_path(v) for k, v in mask.items()}
            if isinstance(mask, Mapping)
            else tuple(map(relocate_path, mask))
        )
    return replace(record, image=relocated(record.image, relocate_path), mask=mask)


def _renumber_masks(
    run: RunContext, target_folder: Path, records: Sequence[Record], numbers: Sequence[tuple[int, int]], scratch: Path
) -> tuple[Record, ...]:
    """The records with masks in the model's numbers, copied to `target_folder` from where the reader wrote them."""
    output_folder = scratch / "numbered"
    output_folder.mkdir()
    raw_folders = [path.resolve() for path in (target_folder / "data").iterdir()]
    reader = run.executor.reader_pool.get_reader((target_folder, *raw_folders), (output_folder,))
    file_names = reader.run_job(
        RENUMBER_JOB, RenumberRequest(list(records), target_folder, output_folder, list(numbers))
    )
    renumbered = []
    for record, name in zip(records, file_names, strict=True):
        if not name:
            renumbered.append(record)
            continue
        if Path(name).name != name:
            raise DataError(f"A mask was written as {name!r}, which is no plain name.")
        target = f"Datapath/numbered/{name}"
        copy_file(output_folder, name, target_folder, target)
        renumbered.append(replace(record, mask=target))
    return tuple(renumbered)


def _check_audit(audit: Audit) -> tuple[str, ...]:
    """What the audit warns of. Raises DataError for what makes a figure worthless."""
    blocking_findings = [
        finding for finding in (*audit.of("reject"), *audit.of("fix")) if finding.code not in SPLIT_ONLY_CODES
    ]
    if blocking_findings:
        raise DataError(" ".join(finding.told or finding.message for finding in blocking_findings[:3]))
    return tuple(
        finding.told or finding.message for finding in audit.of("warn") if finding.code not in SPLIT_ONLY_CODES
    )
