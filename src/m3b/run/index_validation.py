"""Validation of the Data Engineer's index: it is made or taken, audited, compared with the archive, and locked."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.check_result import CheckResult, reject
from m3b.agents.checks.index import AUDIT_FILE, check_index
from m3b.agents.checks.index_lock import freeze_index, lock_index, save_hashes
from m3b.data import kinds
from m3b.data.index import Index, format_patient_count, read_index
from m3b.dataset.view import needed_files_of, shared_files
from m3b.errors import DataError
from m3b.events import IndexAudited, NoteAdded, ScriptOutput, StepStarted
from m3b.facts import AuditSummary
from m3b.isolation.untrusted import remove_tree, write_atomic
from m3b.metrics.metric_tables import metric_table
from m3b.metrics.verdict import MIN_VERDICT_PATIENTS
from m3b.models.image_jobs import DRAW_EXAMPLES_JOB, ExamplesRequest
from m3b.report.manifest_page import render_manifest_page
from m3b.run.folder import RunFolder
from m3b.run.manifests import (
    ORIGIN_SCRIPT,
    IndexOrigin,
    compare_with_archive,
    describe_index_origin,
    execute_manifest,
    find_review_reason,
    keep_reasons,
    list_assumptions,
    list_displayed_proposals,
    summarize_accounting,
)
from m3b.run.provisioning import FROZEN_FOLDER
from m3b.writing import rename_durably, write_text_atomically

if TYPE_CHECKING:
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.run.services import RunServices

MAX_GROUPING_CHARS = 200
"""Longest text on what groups the images; it is limited because scripts can write the file that holds it."""
FROZEN_INDEX_FOLDER = "index"
"""Folder below `FROZEN_FOLDER` with the copy of an index that is being checked."""
PLAN_PAGE_FILE, MANIFEST_FILE, PROPOSED_MANIFEST_FILE = "manifest.html", "manifest.json", "manifest-proposed.json"
"""Files of the run folder: the page that shows how the data is read; the manifest of the accepted index, as JSON to
edit; if a script made the index, so that it has no manifest, the best proposed one instead."""


def validate_index(
    services: RunServices, selection: Selection, closing_text: str, overrides: Overrides | None
) -> CheckResult:
    """Execute the manifest if one was handed over, freeze the index files, check the copy, and lock it if accepted.

    The locked files are exactly those that were checked.

    Args:
        overrides: what the user fixed of the manifest.
    """
    if services.labelling is not None:
        services.labelling.restore_mask_list()
    closing_text = keep_reasons(services, closing_text)
    origin = execute_manifest(services, selection, overrides, closing_text)
    if isinstance(origin, CheckResult):
        return origin
    services.emit(StepStarted("auditing the data"))
    with _frozen_index_folder(services.folder) as frozen:
        try:
            notes = freeze_index(services.folder.work, frozen, services.raw_folders, selection.task)
        except DataError as error:
            return reject(str(error))
        check_result = check_index(
            frozen,
            selection,
            request=services.request,
            closing_text=closing_text,
            on_progress=lambda done, total: services.emit(ScriptOutput(0, f"audit: {done} of {total} images")),
            reader=services.executor.get_checking_reader(),
            manifest=origin.manifest,
        )
        _publish_audit(services, frozen)
        if not check_result.is_accepted:
            return check_result
        index = read_index(frozen, selection.task)
        origin = compare_with_archive(services, selection, frozen, origin, closing_text)
        if isinstance(origin, CheckResult):
            return origin
        if problem := _find_shared_files(index, frozen) or _find_prompted_test_mask(services, index, frozen, origin):
            return reject(problem)
        for note in notes:
            services.emit(NoteAdded(note))
        hashes = lock_index(frozen, services.folder.locked, selection.task)
    save_hashes(services.folder.locked, hashes, services.raw_fingerprint.fingerprint)
    provenance = (
        *describe_index_origin(services.folder, origin, closing_text),
        *(services.labelling.describe_masks(index) if services.labelling is not None else ()),
        *_describe_unlabelled(index),
    )
    for line in (*list_assumptions(services.folder, origin), *provenance):
        services.emit(NoteAdded(line))
    few_cases = describe_few_test_cases(check_result.artifact)
    if few_cases:
        services.emit(NoteAdded(few_cases))
    artifact = replace(
        check_result.artifact,
        hashes=hashes,
        notes=(*check_result.artifact.notes, *provenance),
        grouped_by=str(origin.facts.get("grouped_by", ""))[:MAX_GROUPING_CHARS],
        origin=origin.kind,
        read=provenance,
        weak=find_review_reason(services.folder, origin) or few_cases,
        accounting=summarize_accounting(origin.facts),
        assumptions=list_assumptions(services.folder, origin),
    )
    _write_plan_page(services, selection, origin)
    return replace(check_result, artifact=artifact)


def _describe_unlabelled(index: Index) -> list[str]:
    """Return the sentence on the images without a label, if the index has some."""
    count = len(index.unlabelled)
    return [f"{count:,} images without a label are kept for self-training alone."] if count else []


def describe_few_test_cases(index: DataIndex) -> str:
    """Return a sentence if the test cases are too few for a verdict, which is known before training; else ''."""
    unit = "patients" if index.patients_known else "cases"
    count, subject, total = index.patients.get("test", 0), unit, sum(index.patients.values())
    if metric_table(index.task).uses_rarer_class and len(index.classes) == 2 and not index.multi_label:
        by_class = index.counts.get("test", {})
        rarer_class = min(index.classes, key=lambda name: by_class.get(name, 0))
        if by_class.get(rarer_class, 0) < count:
            count, subject = by_class.get(rarer_class, 0), f"cases of {rarer_class}"
            total = sum(split.get(rarer_class, 0) for split in index.counts.values())
    if count >= MIN_VERDICT_PATIENTS:
        return ""
    needed = math.ceil(MIN_VERDICT_PATIENTS * total / count) if count else MIN_VERDICT_PATIENTS * 4
    return (
        f"Only {count} test {subject}: a verdict needs at least {MIN_VERDICT_PATIENTS}, so no model can be accepted. "
        f"About {needed} {subject} in all would do; there are {total}."
    )


@contextmanager
def _frozen_index_folder(run: RunFolder) -> Iterator[Path]:
    """Yield the folder for the copy of an index that is being checked, and remove it in the end."""
    folder = run.path / FROZEN_FOLDER / FROZEN_INDEX_FOLDER
    try:
        yield folder
    finally:
        remove_tree(folder)


def revalidate_index(services: RunServices, selection: Selection, overrides: Overrides) -> CheckResult:
    """Check and lock the index that another manifest gives; if it is rejected, the previous audit is restored."""
    audit_file = services.folder.path / AUDIT_FILE
    previous_audit = audit_file.read_bytes() if audit_file.is_file() else None
    check_result = validate_index(services, selection, "", overrides)
    if not check_result.is_accepted and previous_audit is not None:
        audit_file.write_bytes(previous_audit)
        services.emit(_make_audit_event(json.loads(previous_audit)))
    return check_result


def _publish_audit(services: RunServices, frozen: Path) -> None:
    """Copy the audit to the working directory (for the agent) and the run folder (for people)."""
    audit_file, run = frozen / AUDIT_FILE, services.folder
    if not audit_file.is_file():
        with contextlib.suppress(OSError):
            (run.work / AUDIT_FILE).unlink()  # written by an earlier check or by a script
        return
    services.emit(_make_audit_event(json.loads(audit_file.read_text(encoding="utf-8"))))
    write_atomic(run.work, AUDIT_FILE, audit_file.read_bytes())
    rename_durably(audit_file, run.path / AUDIT_FILE)


def _make_audit_event(audit_values: Mapping[str, Any]) -> IndexAudited:
    """Return the audit event: its counts and findings in words and as data."""
    facts = AuditSummary.model_validate(audit_values).to_json()
    del facts["findings"]  # they have a field of their own in the event
    return IndexAudited(_format_audit(audit_values), audit_values["findings"], facts)


def _format_audit(audit_values: Mapping[str, Any]) -> str:
    parts = []
    for split in ("train", "test"):
        class_counts = ", ".join(f"{name}: {count}" for name, count in audit_values["counts"][split].items())
        patients_text = format_patient_count(
            audit_values["patients"][split], known=audit_values.get("patients_known", True)
        )
        by_class = f" ({class_counts})" if class_counts else ""
        parts.append(f"{split}: {audit_values['split'][split]} cases{by_class}; {patients_text}")
    shapes = ", ".join(
        f"{shape} ({count} image{'s' if count != 1 else ''})"
        for shape, count in list(audit_values["shapes"].items())[:3]
    )
    cases_word = kinds.of(audit_values.get("task") or kinds.DEFAULT).cases_word
    opened_text = f"Opened {audit_values['opened']} of {audit_values['cases']} {cases_word}"
    return f"{'. '.join(parts)}. {opened_text}, most often of shape {shapes or 'unknown'}."


def _find_shared_files(index: Index, root: Path) -> str:
    """Return the problem if a file belongs to training and test cases, which cannot be separated then; else ''."""
    try:
        shared = shared_files(needed_files_of(index.training_images, root), needed_files_of(index.test, root))
    except DataError as error:
        return str(error)
    if not shared:
        return ""
    return (
        f"{len(shared)} files belong to training and to test cases at once, e.g. {shared[0]}. Name the items of an archive "
        "one by one (file#key[3]), and leave no case inside the folder of another."
    )


def _find_prompted_test_mask(services: RunServices, index: Index, root: Path, origin: IndexOrigin) -> str:
    """Return the problem if a test case has a mask that was made by prompting a segmenter; else ''."""
    if services.labelling is None:
        return ""
    return services.labelling.find_prompted_test_mask(index, root, is_scripted=origin.kind == ORIGIN_SCRIPT)


def _write_plan_page(services: RunServices, selection: Selection, origin: IndexOrigin) -> None:
    """Write the page that shows people how the data is read, without pictures if they cannot be drawn."""
    run = services.folder
    try:
        examples = services.executor.get_checking_reader().run_job(
            DRAW_EXAMPLES_JOB, ExamplesRequest(run.locked, selection.task)
        )
    except DataError:
        examples = None
    proposals = list_displayed_proposals(run, origin.manifest)
    page_facts = {
        "task": selection.task,
        "proposals": proposals,
        "counts": origin.facts,
        "assumptions": list_assumptions(run, origin),
    }
    _write_manifest_files(run, origin.manifest, proposals)
    page_file = run.path / PLAN_PAGE_FILE
    write_text_atomically(page_file, render_manifest_page(services.request, page_facts, examples), errors="replace")
    services.emit(NoteAdded(f"How the data is read, with examples: {page_file} (shows patients)"))


def _write_manifest_files(run: RunFolder, accepted: object, proposals: Sequence[Mapping[str, Any]]) -> None:
    """Write the accepted manifest as JSON, or the best proposed one under another name if a script made the index.

    Files of an earlier index are removed.
    """
    best_proposed = (
        next((proposal["manifest"] for proposal in proposals if proposal.get("manifest")), None)
        if accepted is None
        else None
    )
    for name, manifest in ((MANIFEST_FILE, accepted), (PROPOSED_MANIFEST_FILE, best_proposed)):
        if manifest is None:
            run.get_path(name).unlink(missing_ok=True)
        else:
            write_text_atomically(run.path / name, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
