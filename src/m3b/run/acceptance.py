"""What a run checks with its own eyes: the raw data, the index as it is locked, the deliverable as it predicts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection
from m3b.agents.checks.folds import Predict
from m3b.agents.checks.frozen import freeze
from m3b.agents.checks.index import AUDIT, check_index
from m3b.agents.checks.integrity import fingerprint, integrity, save_hashes, sha256
from m3b.agents.checks.locked import digest_made, lock, made_files
from m3b.agents.checks.model import FOLDER, Baseline, MeasuredTest, check_model, take
from m3b.agents.loop import Emit
from m3b.agents.verdict import Verdict, rejected
from m3b.data import kinds
from m3b.data.audit_common import told_patients
from m3b.data.cards import Card
from m3b.data.index import read_index
from m3b.data.view import shared_files, wanted_by
from m3b.errors import DataError
from m3b.events import Audited, Noted, Output, StageBegun
from m3b.models.opened import DRAW, ToDraw
from m3b.reader import Reader
from m3b.report.plan_page import plan_page
from m3b.run.folder import Run
from m3b.run.leftovers import FROZEN
from m3b.run.origin import SCRIPT
from m3b.run.packaging import PREDICTIONS, acceptable_range, keep_trial
from m3b.run.readings import Readings
from m3b.summaries import AuditSummary
from m3b.untrusted import remove_tree, write_whole
from m3b.writing import rename, replace_text

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.run.labelling import Labelling

MAX_GROUPING = 200
"""Characters of the words on what groups the images, which lie where scripts can write."""
INDEX = "index"
"""Below `FROZEN`: an index that is looked at."""
PAGE, READING, NEAREST = "reading.html", "reading.json", "reading-proposed.json"
"""The page of the run folder that shows how the data was read; the reading that the accepted index was made from, as JSON to
edit; and where a script made the index, so that there is none, the best that was proposed."""


class Inspector:
    """The checks that need more than the working directory.

    Args:
        predict: runs a deliverable on cases, confined.
        baseline: makes the best answer that looks at no image.
        reader: the reader process for hand-overs, what is locked and the raw data.
        emit: takes events.
        readings: executes what the Data Engineer hands over as a reading.
        confined: whether scripts cannot write to the raw data.
        raw_roots: the folders of raw data by the names that records give them.
        request: the user's words.
        labelling: the masks that were prompted for, where the user has approved that.
    """

    def __init__(
        self,
        run: Run,
        predict: Predict,
        baseline: Baseline,
        reader: Callable[[], Reader],
        emit: Emit,
        readings: Readings,
        *,
        confined: bool,
        raw_roots: Mapping[str, Path],
        request: str = "",
        labelling: Labelling | None = None,
    ) -> None:
        self.run, self.predict, self.baseline, self.reader = run, predict, baseline, reader
        self.emit, self.raw_roots = emit, raw_roots
        self.readings, self.request, self.labelling = readings, request, labelling
        self.raw = ""
        self._use_change_times = not confined
        self._last: tuple[Mapping[str, str], Verdict] | None = None

    def watch(self, card: Card) -> None:
        """Remember what the raw data looks like before any script has run."""
        file = self.run.locked / "raw.json"
        stored = _kept(file)
        if stored:
            self.raw, self._use_change_times = str(stored["fingerprint"]), bool(stored.get("change_times", True))
        elif card.path:
            self.raw = self.raw_now(card)
            replace_text(file, json.dumps({"fingerprint": self.raw, "change_times": self._use_change_times}))

    def raw_now(self, card: Card) -> str:
        """What the raw data looks like now, told as it was told at the start."""
        return fingerprint(card.path, change_times=self._use_change_times) if card.path else ""

    def check_index(self, selection: Selection, card: Card, said: str) -> Verdict:
        """Execute the reading that was handed over, if one was; freeze what is there, look at the copy, and lock that
        very copy if it is accepted."""
        try:
            return self._check_index(selection, card, said)
        finally:
            remove_tree(self.run.folder / FROZEN / INDEX)

    def _check_index(self, selection: Selection, card: Card, closing_text: str) -> Verdict:
        if self.labelling is not None:
            self.labelling.settle()
        if rejection := self.readings.execute(selection, card):
            return rejection
        self.emit(StageBegun("auditing the data"))
        on_progress = lambda done, total: self.emit(Output(0, f"audit: {done} of {total} images"))  # noqa: E731
        frozen = self.run.folder / FROZEN / INDEX
        try:
            notes = freeze(self.run.work, frozen, self.raw_roots, selection.task)
        except DataError as error:
            return rejected(str(error))
        check_result = check_index(
            frozen, selection, request=self.request, said=closing_text, tick=on_progress, reader=self.reader()
        )
        self._publish_audit(frozen)
        if not check_result.accepted:
            return check_result
        index = read_index(frozen, selection.task)
        if rejection := self.readings.compare(selection, card, index, frozen, closing_text):
            return rejection
        if shared_files_problem := _find_shared_files(frozen, selection.task):
            return rejected(shared_files_problem)
        if self.labelling is not None and (
            labelling_problem := self.labelling.refused(index, frozen, scripted=self.readings.origin == SCRIPT)
        ):
            return rejected(labelling_problem)
        for note in notes:
            self.emit(Noted(note))
        hashes = lock(frozen, self.run.locked, selection.task)
        save_hashes(self.run.locked, hashes, self.raw)
        provenance = (
            *self.readings.told(closing_text),
            *(self.labelling.told(index) if self.labelling is not None else ()),
        )
        for line in provenance:
            self.emit(Noted(line))
        all_notes = (*check_result.artifact.notes, *provenance)
        grouped_by = str(self.readings.facts.get("grouped_by", ""))[:MAX_GROUPING]
        artifact = replace(
            check_result.artifact,
            hashes=hashes,
            notes=all_notes,
            grouped_by=grouped_by,
            origin=self.readings.origin,
            read=provenance,
            weak=self.readings.weak(),
        )
        self._write_plan_page(selection)
        return replace(check_result, artifact=artifact)

    def read_again(self, selection: Selection, card: Card, given: Given) -> Verdict:
        """The index as another reading makes it, locked in place of the one at hand; where that is not accepted, the one
        at hand stays."""
        audit_file, previous_overrides = self.run.folder / AUDIT, self.readings.given
        previous_audit = audit_file.read_bytes() if audit_file.is_file() else None
        self.readings.given = given
        check_result = self.check_index(selection, card, "")
        if not check_result.accepted:
            self.readings.given = previous_overrides
            if previous_audit is not None:
                audit_file.write_bytes(previous_audit)
                audit_values = json.loads(previous_audit)
                self.emit(_audited(audit_values))
        return check_result

    def _write_plan_page(self, selection: Selection) -> None:
        """The page that shows people how the data was read; nothing rests on it, so that it fails quietly."""
        try:
            examples = self.reader().ask(DRAW, ToDraw(self.run.locked, selection.task))
        except DataError:
            examples = None
        proposals = self.readings.shown()
        page_facts = {"task": selection.task, "readings": proposals, "counted": self.readings.facts}
        _write_manifest_files(self.run.folder, self.readings.facts.get("spec"), proposals)
        replace_text(self.run.folder / PAGE, plan_page(self.request, page_facts, examples), errors="replace")
        self.emit(Noted(f"How the data is read, with examples: {self.run.folder / PAGE} (shows patients)"))

    def _publish_audit(self, frozen: Path) -> None:
        """The audit, where the agent and people find it."""
        audit_file = frozen / AUDIT
        if not audit_file.is_file():
            with contextlib.suppress(OSError):
                (self.run.work / AUDIT).unlink()  # an earlier one, or a script's
            return
        audit_values = json.loads(audit_file.read_text(encoding="utf-8"))
        self.emit(_audited(audit_values))
        write_whole(self.run.work, AUDIT, audit_file.read_bytes())
        rename(audit_file, self.run.folder / AUDIT)

    def label(self, data: DataIndex, card: Card) -> str:
        """What the end of the run finds of the raw data, the index and all that was locked."""
        index = read_index(self.run.locked, data.task)
        derived_files = made_files(index.records)
        derived_digest = digest_made(self.run.locked, derived_files) if derived_files else None
        raw_after = self.raw_now(card)
        return integrity(
            self.run.work, self.run.locked, data.hashes, self.raw, raw_after, data.task, made=derived_digest
        )

    def check_model(self, selection: Selection, card: Card) -> Verdict:
        """Copy the deliverable, measure the copy, and keep it if it is accepted; a model that was accepted before stays
        the one to deliver until another is."""
        previous = self._last
        if previous:
            _back_up_model(self.run)
        check_result = self._measured(selection, card)
        if previous:
            _settle(self.run, keep_earlier=not check_result.accepted)
            self._last = self._last or previous
        return check_result

    def _measured(self, selection: Selection, card: Card) -> Verdict:
        frozen = take(self.run.work, self.run.measured)
        hashes = frozen.hashes if frozen and not frozen.refused else {}
        if self._last and self._last[0] == hashes:
            _restore_test_predictions(self.run)
            return self._last[1]  # nothing was changed since it was accepted
        self.emit(StageBegun("running the model on cases that it has not seen"))

        def keep(test_result: MeasuredTest) -> None:
            keep_trial(self.run, test_result)

        index, acceptable = read_index(self.run.locked, selection.task), acceptable_range(card, selection)
        root = self.run.locked
        check_result = check_model(
            self.run.work,
            frozen,
            selection,
            index,
            self.predict,
            keep,
            acceptable,
            base=root,
            baseline=self.baseline,
        )
        if check_result.accepted:
            model = replace(check_result.artifact, answers=sha256(self.run.locked, PREDICTIONS))
            check_result = replace(check_result, artifact=model)
        self._last = (hashes, check_result) if check_result.accepted else None
        return check_result

    def last_model(self, selection: Selection, card: Card) -> Verdict | None:
        """The verdict on what was accepted last, or else on the deliverable as it lies there; None where there is none."""
        if self._last:
            return self._last[1]
        return self.check_model(selection, card) if (self.run.work / FOLDER).is_dir() else None


def _write_manifest_files(folder: Path, accepted: object, proposals: Sequence[Mapping[str, Any]]) -> None:
    """The accepted reading as JSON; of an index that a script made, what was proposed, under a name that says so. What an
    earlier index left there goes."""
    best_proposed = (
        next((proposal["spec"] for proposal in proposals if proposal.get("spec")), None) if accepted is None else None
    )
    for name, manifest in ((READING, accepted), (NEAREST, best_proposed)):
        if manifest is None:
            (folder / name).unlink(missing_ok=True)
        else:
            replace_text(folder / name, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _backup_paths(run: Run) -> tuple[tuple[Path, Path], ...]:
    """The accepted model and its measured answers, and where both lie while another is measured."""
    test_predictions = run.locked / PREDICTIONS
    return (run.measured, run.locked / "model.accepted"), (test_predictions, run.locked / f"{PREDICTIONS}.accepted")


def _back_up_model(run: Run) -> None:
    for current, backup in _backup_paths(run):
        if current.exists():
            _remove(backup)
            rename(current, backup)


def _restore_test_predictions(run: Run) -> None:
    """The same model was measured before: its answers stand."""
    current, backup = _backup_paths(run)[1]
    if backup.is_file():
        current.write_bytes(backup.read_bytes())


def _settle(run: Run, *, keep_earlier: bool) -> None:
    for current, backup in _backup_paths(run):
        if backup.exists() and keep_earlier:
            _remove(current)
            rename(backup, current)
        _remove(backup)


def _remove(place: Path) -> None:
    if place.is_dir():
        remove_tree(place)
    else:
        place.unlink(missing_ok=True)


def _find_shared_files(frozen: Path, task: str) -> str:
    """Files of training cases that belong to test cases too, so that the one cannot be shown without the other."""
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


def _kept(file: Path) -> dict[str, Any]:
    """What was remembered of the raw data; empty where nothing was, or where a power cut tore it as it was written,
    which is before the first script runs."""
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(record, dict) and "fingerprint" in record:
            return record
    return {}


def _audited(found: Mapping[str, Any]) -> Audited:
    """What an audit counted and found, in words and as data."""
    facts = AuditSummary.model_validate(found).plain()
    del facts["findings"]  # they stand beside it
    return Audited(_format_audit(found), found["findings"], facts)


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
