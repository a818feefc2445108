"""Checks of a run that need more than the working directory: raw data, locked index, deliverable."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.check_result import CheckResult, reject
from m3b.agents.checks.index import AUDIT_FILE, check_index
from m3b.agents.checks.index_lock import (
    check_integrity,
    digest_derived_files,
    fingerprint_folder,
    freeze_index,
    list_derived_files,
    lock_index,
    save_hashes,
    sha256_or_missing,
)
from m3b.agents.checks.model import (
    DELIVERABLE_FOLDER,
    LockedTestResult,
    PredictBaseline,
    PredictCases,
    check_model,
    freeze_deliverable,
)
from m3b.agents.loop import Emit
from m3b.data import kinds
from m3b.data.audit_common import told_patients
from m3b.data.cards import Card
from m3b.data.index import read_index
from m3b.data.view import shared_files, wanted_by
from m3b.errors import DataError
from m3b.events import IndexAudited, NoteAdded, ScriptOutput, StepStarted
from m3b.facts import AuditSummary
from m3b.isolation.reader import Reader
from m3b.isolation.untrusted import remove_tree, write_atomic
from m3b.models.image_jobs import DRAW_EXAMPLES_JOB, ExamplesRequest
from m3b.report.manifest_page import render_manifest_page
from m3b.run.folder import RunFolder
from m3b.run.manifests import ORIGIN_SCRIPT, RunManifests, proposal_to_json
from m3b.run.packaging import TEST_PREDICTIONS_FILE, get_acceptable_range, write_test_result
from m3b.run.provisioning import FROZEN_FOLDER
from m3b.writing import rename_durably, write_text_atomically

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.run.labelling import MaskLabelling

MAX_GROUPING_CHARS = 200
"""Longest text on what groups the images; it is limited because scripts can write the file that holds it."""
FROZEN_INDEX_FOLDER = "index"
"""Folder below `FROZEN_FOLDER` with the copy of an index that is being checked."""
PLAN_PAGE_FILE, MANIFEST_FILE, PROPOSED_MANIFEST_FILE = "manifest.html", "manifest.json", "manifest-proposed.json"
"""Files of the run folder: the page that shows how the data is read; the manifest of the accepted index, as JSON to
edit; if a script made the index, so that it has no manifest, the best proposed one instead."""


class ArtifactValidator:
    """The checks that need more than the working directory.

    Args:
        predict: runs a deliverable on cases, confined.
        predict_baseline: computes the image-blind baseline predictions.
        get_reader: returns the confined reader of frozen artifacts, locked files and raw data.
        emit: receives events.
        manifests: executes the manifest that the Data Engineer hands over.
        is_confined: whether scripts are prevented from writing to the raw data.
        raw_folders: name in the records -> folder of raw data.
        request: the user's request.
        labelling: the masks made by prompting a segmenter, if the user has approved that.
    """

    def __init__(
        self,
        run: RunFolder,
        predict: PredictCases,
        predict_baseline: PredictBaseline,
        get_reader: Callable[[], Reader],
        emit: Emit,
        manifests: RunManifests,
        *,
        is_confined: bool,
        raw_folders: Mapping[str, Path],
        request: str = "",
        labelling: MaskLabelling | None = None,
    ) -> None:
        self.run, self.predict, self.predict_baseline, self.get_reader = run, predict, predict_baseline, get_reader
        self.emit, self.raw_folders = emit, raw_folders
        self.manifests, self.request, self.labelling = manifests, request, labelling
        self.raw_fingerprint = ""
        self._use_change_times = not is_confined
        self._last_accepted: tuple[Mapping[str, str], CheckResult] | None = None

    def record_raw_fingerprint(self, card: Card) -> None:
        """Store the fingerprint of the raw data before any script has run; a stored one is loaded instead."""
        file = self.run.locked / "raw.json"
        stored = _read_raw_record(file)
        if stored:
            self.raw_fingerprint, self._use_change_times = (
                str(stored["fingerprint"]),
                bool(stored.get("change_times", True)),
            )
        elif card.path:
            self.raw_fingerprint = self.fingerprint_raw_data(card)
            write_text_atomically(
                file, json.dumps({"fingerprint": self.raw_fingerprint, "change_times": self._use_change_times})
            )

    def fingerprint_raw_data(self, card: Card) -> str:
        """Return the current fingerprint of the raw data, computed in the same way as at the start of the run."""
        return fingerprint_folder(card.path, change_times=self._use_change_times) if card.path else ""

    def check_index(self, selection: Selection, card: Card, closing_text: str) -> CheckResult:
        """Execute the manifest if one was handed over, freeze the index files, check the copy, and lock it if accepted.

        The locked files are exactly those that were checked.
        """
        try:
            return self._check_index(selection, card, closing_text)
        finally:
            remove_tree(self.run.path / FROZEN_FOLDER / FROZEN_INDEX_FOLDER)

    def _check_index(self, selection: Selection, card: Card, closing_text: str) -> CheckResult:
        if self.labelling is not None:
            self.labelling.restore_mask_list()
        if rejection := self.manifests.execute_manifest(selection, card):
            return rejection
        self.emit(StepStarted("auditing the data"))
        on_progress = lambda done, total: self.emit(ScriptOutput(0, f"audit: {done} of {total} images"))  # noqa: E731
        frozen = self.run.path / FROZEN_FOLDER / FROZEN_INDEX_FOLDER
        try:
            notes = freeze_index(self.run.work, frozen, self.raw_folders, selection.task)
        except DataError as error:
            return reject(str(error))
        check_result = check_index(
            frozen,
            selection,
            request=self.request,
            closing_text=closing_text,
            on_progress=on_progress,
            reader=self.get_reader(),
        )
        self._publish_audit(frozen)
        if not check_result.is_accepted:
            return check_result
        index = read_index(frozen, selection.task)
        if rejection := self.manifests.compare_with_data(selection, card, index, frozen, closing_text):
            return rejection
        if shared_files_problem := _find_shared_files(frozen, selection.task):
            return reject(shared_files_problem)
        if self.labelling is not None and (
            labelling_problem := self.labelling.find_prompted_test_mask(
                index, frozen, is_scripted=self.manifests.origin == ORIGIN_SCRIPT
            )
        ):
            return reject(labelling_problem)
        for note in notes:
            self.emit(NoteAdded(note))
        hashes = lock_index(frozen, self.run.locked, selection.task)
        save_hashes(self.run.locked, hashes, self.raw_fingerprint)
        provenance = (
            *self.manifests.describe(closing_text),
            *(self.labelling.describe_masks(index) if self.labelling is not None else ()),
        )
        for line in provenance:
            self.emit(NoteAdded(line))
        all_notes = (*check_result.artifact.notes, *provenance)
        grouped_by = str(self.manifests.facts.get("grouped_by", ""))[:MAX_GROUPING_CHARS]
        artifact = replace(
            check_result.artifact,
            hashes=hashes,
            notes=all_notes,
            grouped_by=grouped_by,
            origin=self.manifests.origin,
            read=provenance,
            weak=self.manifests.get_review_reason(),
        )
        self._write_plan_page(selection)
        return replace(check_result, artifact=artifact)

    def recheck_index(self, selection: Selection, card: Card, overrides: Given) -> CheckResult:
        """Check and lock the index that another manifest gives; if it is rejected, the previous index is kept."""
        audit_file, previous_overrides = self.run.path / AUDIT_FILE, self.manifests.overrides
        previous_audit = audit_file.read_bytes() if audit_file.is_file() else None
        self.manifests.overrides = overrides
        check_result = self.check_index(selection, card, "")
        if not check_result.is_accepted:
            self.manifests.overrides = previous_overrides
            if previous_audit is not None:
                audit_file.write_bytes(previous_audit)
                audit_values = json.loads(previous_audit)
                self.emit(_make_audit_event(audit_values))
        return check_result

    def _write_plan_page(self, selection: Selection) -> None:
        """Write the page that shows people how the data is read, without pictures if they cannot be drawn."""
        try:
            examples = self.get_reader().run_job(DRAW_EXAMPLES_JOB, ExamplesRequest(self.run.locked, selection.task))
        except DataError:
            examples = None
        proposals = self.manifests.list_for_display()
        page_facts = {
            "task": selection.task,
            "proposals": [proposal_to_json(proposal) for proposal in proposals],
            "counts": self.manifests.facts,
        }
        _write_manifest_files(self.run, self.manifests.facts.get("spec"), proposals)
        write_text_atomically(
            self.run.path / PLAN_PAGE_FILE, render_manifest_page(self.request, page_facts, examples), errors="replace"
        )
        self.emit(NoteAdded(f"How the data is read, with examples: {self.run.path / PLAN_PAGE_FILE} (shows patients)"))

    def _publish_audit(self, frozen: Path) -> None:
        """Copy the audit to the working directory (for the agent) and the run folder (for people)."""
        audit_file = frozen / AUDIT_FILE
        if not audit_file.is_file():
            with contextlib.suppress(OSError):
                (self.run.work / AUDIT_FILE).unlink()  # written by an earlier check or by a script
            return
        audit_values = json.loads(audit_file.read_text(encoding="utf-8"))
        self.emit(_make_audit_event(audit_values))
        write_atomic(self.run.work, AUDIT_FILE, audit_file.read_bytes())
        rename_durably(audit_file, self.run.path / AUDIT_FILE)

    def verify_integrity(self, data: DataIndex, card: Card) -> str:
        """Return what changed in the raw data, the index and all locked files since the index was accepted."""
        index = read_index(self.run.locked, data.task)
        derived_files = list_derived_files(index.records)
        derived_digest = digest_derived_files(self.run.locked, derived_files) if derived_files else None
        raw_after = self.fingerprint_raw_data(card)
        return check_integrity(
            self.run.work,
            self.run.locked,
            data.hashes,
            self.raw_fingerprint,
            raw_after,
            data.task,
            derived_digest=derived_digest,
        )

    def check_model(self, selection: Selection, card: Card) -> CheckResult:
        """Copy the deliverable, measure the copy, and keep it if it is accepted.

        A model that was accepted before remains the one to deliver until another one is accepted.
        """
        previous = self._last_accepted
        if previous:
            _back_up_model(self.run)
        check_result = self._measure_model(selection, card)
        if previous:
            _resolve_backup(self.run, keep_earlier=not check_result.is_accepted)
            self._last_accepted = self._last_accepted or previous
        return check_result

    def _measure_model(self, selection: Selection, card: Card) -> CheckResult:
        frozen = freeze_deliverable(self.run.work, self.run.measured_model)
        hashes = frozen.hashes if frozen and not frozen.refusals else {}
        if self._last_accepted and self._last_accepted[0] == hashes:
            _restore_test_predictions(self.run)
            return self._last_accepted[1]  # nothing was changed since it was accepted
        self.emit(StepStarted("running the model on cases that it has not seen"))

        def store_test_result(test_result: LockedTestResult) -> None:
            write_test_result(self.run, test_result)

        index, acceptable = read_index(self.run.locked, selection.task), get_acceptable_range(card, selection)
        root = self.run.locked
        check_result = check_model(
            self.run.work,
            frozen,
            selection,
            index,
            self.predict,
            store_test_result,
            acceptable,
            root=root,
            predict_baseline=self.predict_baseline,
        )
        if check_result.is_accepted:
            model = replace(check_result.artifact, answers=sha256_or_missing(self.run.locked, TEST_PREDICTIONS_FILE))
            check_result = replace(check_result, artifact=model)
        self._last_accepted = (hashes, check_result) if check_result.is_accepted else None
        return check_result

    def get_last_model_result(self, selection: Selection, card: Card) -> CheckResult | None:
        """Return the check result of the last accepted model, else check the current deliverable; None without one."""
        if self._last_accepted:
            return self._last_accepted[1]
        return self.check_model(selection, card) if (self.run.work / DELIVERABLE_FOLDER).is_dir() else None


def _write_manifest_files(run: RunFolder, accepted: object, proposals: Sequence[Mapping[str, Any]]) -> None:
    """Write the accepted manifest as JSON, or the best proposed one under another name if a script made the index.

    Files of an earlier index are removed.
    """
    best_proposed = (
        next((proposal["spec"] for proposal in proposals if proposal.get("spec")), None) if accepted is None else None
    )
    for name, manifest in ((MANIFEST_FILE, accepted), (PROPOSED_MANIFEST_FILE, best_proposed)):
        if manifest is None:
            run.get_path(name).unlink(missing_ok=True)
        else:
            write_text_atomically(run.path / name, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _backup_paths(run: RunFolder) -> tuple[tuple[Path, Path], ...]:
    """Return (current, backup) paths of the accepted model and of its predictions, for measuring another model."""
    test_predictions = run.locked / TEST_PREDICTIONS_FILE
    return (run.measured_model, run.locked / "model.accepted"), (
        test_predictions,
        run.locked / f"{TEST_PREDICTIONS_FILE}.accepted",
    )


def _back_up_model(run: RunFolder) -> None:
    for current, backup in _backup_paths(run):
        if current.exists():
            _remove_path(backup)
            rename_durably(current, backup)


def _restore_test_predictions(run: RunFolder) -> None:
    """Restore the predictions of an unchanged model, which was measured before."""
    current, backup = _backup_paths(run)[1]
    if backup.is_file():
        current.write_bytes(backup.read_bytes())


def _resolve_backup(run: RunFolder, *, keep_earlier: bool) -> None:
    for current, backup in _backup_paths(run):
        if backup.exists() and keep_earlier:
            _remove_path(current)
            rename_durably(backup, current)
        _remove_path(backup)


def _remove_path(path: Path) -> None:
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _find_shared_files(frozen: Path, task: str) -> str:
    """Return the problem if a file belongs to training and test cases, which cannot be separated then; else ''."""
    index = read_index(frozen, task)
    try:
        shared = shared_files(wanted_by(index.train, frozen), wanted_by(index.test, frozen))
    except DataError as error:
        return str(error)
    if not shared:
        return ""
    return (
        f"{len(shared)} files belong to training and to test cases at once, e.g. {shared[0]}. Name the items of an archive "
        "one by one (file#key[3]), and leave no case inside the folder of another."
    )


def _read_raw_record(file: Path) -> dict[str, Any]:
    """Return the stored fingerprint record; empty if there is none or a crash left it incomplete.

    The record is written before the first script runs, so an incomplete one can be made again.
    """
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(record, dict) and "fingerprint" in record:
            return record
    return {}


def _make_audit_event(audit_values: Mapping[str, Any]) -> IndexAudited:
    """Return the audit event: its counts and findings in words and as data."""
    facts = AuditSummary.model_validate(audit_values).to_json()
    del facts["findings"]  # they have a field of their own in the event
    return IndexAudited(_format_audit(audit_values), audit_values["findings"], facts)


def _format_audit(audit_values: Mapping[str, Any]) -> str:
    parts = []
    for split in ("train", "test"):
        class_counts = ", ".join(f"{name} {count}" for name, count in audit_values["counts"][split].items())
        patients_text = told_patients(audit_values["patients"][split], known=audit_values.get("patients_known", True))
        parts.append(f"{split}: {class_counts or str(audit_values['split'][split]) + ' cases'}; {patients_text}")
    shapes = ", ".join(
        f"{shape} ({count} image{'s' if count != 1 else ''})"
        for shape, count in list(audit_values["shapes"].items())[:3]
    )
    cases_word = kinds.of(audit_values.get("task") or kinds.DEFAULT).cases_word
    opened_text = f"Opened {audit_values['opened']} of {audit_values['cases']} {cases_word}"
    return f"{'. '.join(parts)}. {opened_text}, most often of shape {shapes or 'unknown'}."
