"""Validation of a deliverable: it is copied, measured on cases that it has not seen, and kept if it is accepted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.index_lock import sha256_or_missing
from m3b.agents.checks.model import check_model, freeze_deliverable
from m3b.data.index import read_index
from m3b.events import StepStarted
from m3b.isolation.untrusted import remove_tree
from m3b.models.kept_answers import ANSWERS_FILE, ANSWERS_FOLDER
from m3b.run.folder import RunFolder
from m3b.run.packaging import TEST_PREDICTIONS_FILE, get_acceptable_range, write_test_result
from m3b.writing import rename_durably

if TYPE_CHECKING:
    from m3b.run.services import RunServices


def validate_model(services: RunServices, selection: Selection, previous: CheckResult | None) -> CheckResult:
    """Copy the deliverable, measure the copy, and keep it if it is accepted.

    Args:
        previous: the check result of the model that this process accepted last; it remains the one to deliver until
            another one is accepted.
    """
    if previous is None:
        return _measure_model(services, selection, None)
    _back_up_model(services.folder)
    check_result = _measure_model(services, selection, previous)
    _resolve_backup(services.folder, keep_earlier=not check_result.is_accepted)
    return check_result


def _measure_model(services: RunServices, selection: Selection, previous: CheckResult | None) -> CheckResult:
    run = services.folder
    frozen = freeze_deliverable(run.work, run.measured_model)
    hashes = frozen.hashes if frozen and not frozen.refusals else {}
    if previous is not None and isinstance(previous.artifact, TrainedModel) and previous.artifact.hashes == hashes:
        _restore_test_predictions(run)
        return previous  # nothing was changed since it was accepted
    services.emit(StepStarted("running the model on cases that it has not seen"))
    check_result = check_model(
        run.work,
        frozen,
        selection,
        read_index(run.locked, selection.task),
        partial(services.executor.predict, keep_answers_in=run.locked),
        lambda test_result: write_test_result(run, test_result),
        get_acceptable_range(services.card_of(selection), selection),
        root=run.locked,
        predict_baseline=services.executor.predict_baseline,
    )
    if not check_result.is_accepted:
        return check_result
    artifact = replace(
        check_result.artifact,
        answers=sha256_or_missing(run.locked, TEST_PREDICTIONS_FILE),
        kept_answers=sha256_or_missing(run.locked, f"{ANSWERS_FOLDER}/{ANSWERS_FILE}"),
    )
    return replace(check_result, artifact=artifact)


def _backup_paths(run: RunFolder) -> tuple[tuple[Path, Path], ...]:
    """Return (current, backup) paths of the accepted model and of its predictions, for measuring another model."""
    names = (run.measured_model.name, TEST_PREDICTIONS_FILE, ANSWERS_FOLDER)
    return tuple((run.locked / name, run.locked / f"{name}.accepted") for name in names)


def _back_up_model(run: RunFolder) -> None:
    for current, backup in _backup_paths(run):
        if current.exists():
            _remove_path(backup)
            rename_durably(current, backup)


def _restore_test_predictions(run: RunFolder) -> None:
    """Restore the predictions of an unchanged model, which was measured before."""
    for current, backup in _backup_paths(run)[1:]:
        if backup.exists():
            rename_durably(backup, current)


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
