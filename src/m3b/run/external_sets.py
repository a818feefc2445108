"""External test sets, measured with the delivered model after everything else: read, audited and staged by the confined
reader, and answered by predict.py as the run's own test cases are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import Selection
from m3b.data.index import Index, read_index, read_records, write_records
from m3b.data.records import Record
from m3b.errors import DataError, M3bError
from m3b.events import NoteAdded, StepStarted
from m3b.metrics import Scores
from m3b.run.external import ExternalSource
from m3b.run.external_reading import EXTERNAL_FOLDER, read_external_cases
from m3b.run.result import ExternalResult
from m3b.tasks import Row, get_family
from m3b.tasks.control import add_lookup_control
from m3b.tasks.doubts import add_uncertainty_scores
from m3b.tasks.external_inside import COMPARE_JOB, CompareRequest
from m3b.tasks.subgroups import add_subgroups
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from m3b.run.context import RunContext
    from m3b.run.folder import RunFolder

CASES_FILE, PREDICTIONS_FILE = "cases.json", "predictions.json"


def measure_external_sets(run: RunContext) -> dict[str, ExternalResult]:
    """The figures of every external set by its name; one that cannot be measured says why, and changes nothing else."""
    results = {}
    for source in run.external_sources:
        run.emit(StepStarted(f"measuring on the external set {source.name}"))
        try:
            result = _measure_set(run, source)
        except (M3bError, OSError, ValueError) as error:
            result = ExternalResult(source.name, reason=" ".join(str(error).split())[:600] or type(error).__name__)
        run.emit(NoteAdded(result.summary))
        results[source.name] = result
    return results


def _measure_set(run: RunContext, source: ExternalSource) -> ExternalResult:
    if not source.folder.is_dir():
        raise DataError(f"{source.folder} is not there any more.")
    data_name = f"{EXTERNAL_FOLDER}-{source.name}"
    set_folder = run.folder.locked / EXTERNAL_FOLDER / source.name
    with _link_data(run, data_name, source.folder):
        cases = read_external_cases(run, source, data_name, set_folder)
        index = read_index(run.folder.locked, run.get_artifact(Selection).task)
        records, notes = _drop_training_images(run, index, cases.records)
        external_index = replace(index, test=tuple(records))
        rows = run.executor.predict(run.folder.measured_model, external_index.test, external_index)
        baseline_predictions = run.executor.predict_baseline(
            index.train, external_index.test, external_index, run.folder.locked
        )
    write_records(set_folder / CASES_FILE, external_index.test, index.task)
    write_text_atomically(set_folder / PREDICTIONS_FILE, json.dumps({"rows": rows, "trivial": baseline_predictions}))
    scores = _compute_scores(
        rows, external_index, run.get_artifact(Selection).metric, run.options.seed, baseline_predictions
    )
    return _make_result(source.name, scores, cases.grouped_by, (*cases.notes, *notes))


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
    scores = task_family.score_all(rows, index, primary=metric, baseline=baseline_predictions, seed=seed)
    scores = add_subgroups(add_lookup_control(scores, rows, task_family), task_family, rows, index, seed=seed)
    return replace(
        add_uncertainty_scores(scores, rows), patients_known=all(record.patient_known for record in index.test)
    )


def recompute_scores(run: RunFolder, name: str, selection: Selection, seed: int) -> Scores:
    """The figures of a set once more, from what `locked/` holds of it.

    Raises:
        DataError, OSError, ValueError, KeyError: it cannot be read.
    """
    set_folder = run.locked / EXTERNAL_FOLDER / name
    stored = json.loads((set_folder / PREDICTIONS_FILE).read_text(encoding="utf-8"))
    index = replace(read_index(run.locked, selection.task), test=read_records(set_folder / CASES_FILE, selection.task))
    return _compute_scores(stored["rows"], index, selection.metric, seed, stored["trivial"])


@contextmanager
def _link_data(run: RunContext, data_name: str, folder: Path) -> Iterator[None]:
    """The set below `locked/data` for as long as it is measured, so that its paths count from where the others do."""
    link = run.folder.locked / "data" / data_name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder, target_is_directory=True)
    try:
        yield
    finally:
        link.unlink(missing_ok=True)


def _drop_training_images(run: RunContext, index: Index, records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """The records whose images training did not have; how many it had, and how many it nearly had, in words."""
    comparison = run.executor.get_checking_reader().run_job(
        COMPARE_JOB, CompareRequest(list(index.train), list(records), run.folder.locked)
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
        raise DataError("Training had every image of it, pixel for pixel; it is no external set.")
    return remaining, notes
