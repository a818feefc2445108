"""From an accepted deliverable to `model/`: test metrics, verdict, model card, provenance."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.checks.index_lock import INTEGRITY_CLEAN, sha256_or_missing
from m3b.agents.checks.model import LockedTestResult, PredictBaseline
from m3b.agents.search_table import describe_selection
from m3b.data.cards import Card
from m3b.data.index import read_index
from m3b.data.kinds.covariates import list_covariates
from m3b.errors import RunFailed
from m3b.facts import SearchSummary
from m3b.isolation import untrusted
from m3b.markup.formatting import shorten
from m3b.markup.json_values import as_dict
from m3b.measure import describe_test_looks, describe_test_sample, describe_unknown_patients
from m3b.metrics import Scores, judge
from m3b.metrics.metric_tables import metric_table
from m3b.models import freeze, write_metrics, write_model_card, write_provenance
from m3b.models.checksums import find_changes
from m3b.models.model_card import remove_file_names
from m3b.run.folder import RunFolder
from m3b.run.result import ExternalResult
from m3b.run.sampled_test_part import describe_measured_part
from m3b.tasks import get_family, score_all
from m3b.tasks.score_details import (
    add_lookup_control,
    add_subgroups,
    add_uncertainty_scores,
    describe_group_differences,
)
from m3b.writing import iterate_list, rename_durably, write_list_atomically, write_text_atomically

RECORDED_PACKAGES = ("m3b", "torch", "transformers", "monai", "numpy", "accelerate")


@dataclass(frozen=True)
class DeliveredModel:
    """A delivered model with m3b's own scores, and whether they make the run a success.

    Args:
        has_verdict: whether there are enough test patients for a verdict.
    """

    is_accepted: bool
    reason: str
    scores: Scores
    integrity: str
    acceptable: tuple[float, float | None] | None
    external: Mapping[str, ExternalResult] = field(default_factory=dict)
    has_verdict: bool = True


TEST_PREDICTIONS_FILE = "predictions.json"


def write_test_result(folder: Path, test_result: LockedTestResult) -> None:
    """Store the measured predictions of the test cases in a folder out of the agents' reach."""
    write_list_atomically(folder / TEST_PREDICTIONS_FILE, test_result.rows)


def read_test_result(run: RunFolder) -> LockedTestResult:
    """Return what `write_test_result` stored."""
    return LockedTestResult(tuple(iterate_list(run.locked / TEST_PREDICTIONS_FILE)))


def get_acceptable_range(card: Card, selection: Selection) -> tuple[float, float | None] | None:
    """Return the card's acceptable range if it is for the selected metric."""
    return card.acceptable if card.metric == selection.metric else None


def deliver_model(
    run: RunFolder,
    *,
    selection: Selection,
    card: Card,
    data: DataIndex,
    model: TrainedModel,
    integrity: str,
    run_facts: Mapping[str, Any],
    predict_baseline: PredictBaseline,
    journal: Mapping[str, Any] = MappingProxyType({}),
    external_results: Mapping[str, ExternalResult] = MappingProxyType({}),
    earlier_model: Path | None = None,
) -> DeliveredModel:
    """Score the stored predictions, judge them, and write `model/` with model card, metrics and provenance.

    Args:
        run_facts: `request`, `llm`, `options`, `sandboxes`, `seed`, `test_looks` and `run` for model card and provenance.
        predict_baseline: computes the image-blind baseline predictions.
        journal: `lines` and `head` of the journal so far, for provenance.json.
        external_results: name -> result on an external set; the verdict does not depend on them.
        earlier_model: where the model that is replaced is kept; None replaces it.

    Raises:
        RunFailed: the model or its predictions are not those that were measured.
    """
    _check_unchanged(run, model)
    scores = compute_test_scores(run, selection, int(run_facts["seed"]), predict_baseline)
    acceptable = get_acceptable_range(card, selection)
    verdict = judge(scores, acceptable)
    reason = (
        verdict.reason if integrity == INTEGRITY_CLEAN else f"The run was tampered with: {integrity}. {verdict.reason}"
    )
    delivered = DeliveredModel(
        verdict.ok and integrity == INTEGRITY_CLEAN,
        reason,
        scores,
        integrity,
        acceptable,
        external_results,
        has_verdict=not verdict.is_open,
    )
    write_text_atomically(run.locked / "scores.json", json.dumps(scores.to_dict(), indent=1))
    if earlier_model is not None and run.model.is_dir() and not earlier_model.exists():
        rename_durably(run.model, earlier_model)
    _copy_measured_model(run, model)
    anonymous_results = [_anonymize_external_result(external_result) for external_result in external_results.values()]
    write_metrics(run.model, {**scores.to_dict(), "external": anonymous_results} if anonymous_results else scores)
    index = read_index(run.locked, selection.task)
    card_info = _make_card_info(delivered, selection, card, data, model, run_facts) | {
        "channels": list(index.channels),
        "given beside the image": list_covariates(index.train),
        "external": anonymous_results,
        "network": describe_choices(run.model),
    }
    write_model_card(run.model, card_info)
    write_provenance(
        run.model, {**_make_provenance(selection, card, data, integrity, run_facts), "journal": dict(journal)}
    )
    return delivered


def compute_test_scores(
    run: RunFolder, selection: Selection, seed: int, predict_baseline: PredictBaseline | None = None
) -> Scores:
    """Return the test scores, from the measured predictions and the index in `locked/`.

    Args:
        predict_baseline: as for `deliver_model`; without it the scores have no baseline.

    Raises:
        DataError, OSError, ValueError: a file cannot be read.
    """
    test_result = read_test_result(run)
    index, task_family = read_index(run.locked, selection.task), get_family(selection.task)
    test_cases, sample = describe_measured_part(test_result.rows, index)
    baseline_predictions = predict_baseline(index.train, test_cases, index, run.locked) if predict_baseline else None
    scores = score_all(
        task_family, test_result.rows, index, primary=selection.metric, baseline=baseline_predictions, seed=seed
    )
    scores = add_subgroups(
        add_lookup_control(scores, test_result.rows, task_family), task_family, test_result.rows, index, seed=seed
    )
    scores = add_uncertainty_scores(scores, test_result.rows)
    details = {**scores.details, "test_sample": sample} if sample else scores.details
    return replace(scores, details=details, patients_known=index.patients_known)


def _check_unchanged(run: RunFolder, model: TrainedModel) -> None:
    """Raise RunFailed if model or predictions changed since they were measured. Early journals hold no hashes."""
    changed = find_changes(run.measured_model, model.hashes, editable=()) if model.hashes else []
    if model.answers and sha256_or_missing(run.locked, TEST_PREDICTIONS_FILE) != model.answers:
        changed.append(f"{TEST_PREDICTIONS_FILE}, the measured answers, was changed")
    if changed:
        raise _make_tampering_error(changed)


def _make_tampering_error(changed: Sequence[str]) -> RunFailed:
    return RunFailed(
        f"The run was tampered with: after the model was measured, {', '.join(changed[:5])} in locked/. Nothing is "
        "delivered, since the measured figures are not those of these files."
    )


def _copy_measured_model(run: RunFolder, model: TrainedModel) -> None:
    """Copy the measured model to `model/`; what is written is hashed and compared again."""
    if not model.hashes:  # measured by an early version, in the folder where it was made
        freeze(run.work / model.folder, run.model)
        return
    frozen = freeze(run.measured_model, run.model)
    if frozen.refusals or frozen.hashes != model.hashes:
        shutil.rmtree(run.model, ignore_errors=True)
        raise _make_tampering_error(frozen.refusals or ["the model was changed"])


def _make_card_info(
    delivered: DeliveredModel,
    selection: Selection,
    card: Card,
    data: DataIndex,
    model: TrainedModel,
    run_facts: Mapping[str, Any],
) -> dict[str, Any]:
    limitations = [remove_file_names(note) for note in data.notes]
    if delivered.scores.n_patients < 100:
        counted_units = "patients" if data.patients_known else "cases"
        limitations.append(
            f"Measured on {delivered.scores.n_patients} {counted_units} only: the interval is wide for that reason."
        )
    if sample_note := describe_test_sample(delivered.scores.details.get("test_sample")):
        limitations.append(f"Measured on {sample_note}.")
    limitations += describe_group_differences(delivered.scores.details.get("subgroups", {}))
    if looks_note := describe_test_looks(run_facts["test_looks"]):
        limitations.append(f"Measured at {looks_note}.")
    return {
        "title": _make_title(selection, card, data),
        "assumptions": list(map(remove_file_names, data.assumptions)),
        "request": run_facts["request"],
        "task": selection.task,
        "data": card.name,
        "patients": data.patients if data.patients_known else describe_unknown_patients(data.grouped_by),
        "grouped by": data.grouped_by if data.patients_known else "",
        "classes": list(data.classes),
        "set by the user": run_facts.get("set_by_user", []),
        "training": _describe_training(model, selection.metric, run_facts.get("search")),
        "integrity": delivered.integrity,
        "seed": run_facts["seed"],
        "made": time.strftime("%Y-%m-%d"),
        "split": data.counts,
        "scores": delivered.scores.to_dict(),
        "less_is_better": sorted(metric_table(selection.task).lower_is_better),
        "acceptable": delivered.acceptable,
        "verdict": ("accepted: " if delivered.is_accepted else "NOT accepted: ") + delivered.reason,
        "limits": limitations,
    }


def _anonymize_external_result(external_result: ExternalResult) -> dict[str, Any]:
    """Return an external result for the deliverable, without file names."""
    return replace(
        external_result,
        reason=remove_file_names(external_result.reason),
        notes=tuple(map(remove_file_names, external_result.notes)),
    ).to_dict()


def _describe_training(model: TrainedModel, metric: str, search: Mapping[str, Any] | None) -> str:
    """Return the validation metric in words, and the selection of the plan if there was a search."""
    texts = [_describe_validation(model, metric)]
    if search:
        summary = SearchSummary.model_validate(search)
        texts.append(
            f"the plan was selected by a search: {remove_file_names(describe_selection(summary))}".removesuffix(".")
        )
    return "; ".join(filter(None, texts))


def _describe_validation(model: TrainedModel, metric: str) -> str:
    """Return the validation metric in words; for a refit, say that the delivered weights have none of their own."""
    value = model.validation.get("value")
    validation_text = f"validation {metric} {value:.3f}" if isinstance(value, float) else ""
    if not model.refit:
        return validation_text
    refit_text = "the delivered weights were trained on every training case and have no validation figure of their own"
    return (
        f"{refit_text}; {validation_text} is of networks like it, each on cases that it was trained without"
        if validation_text
        else refit_text
    )


def describe_choices(folder: Path) -> list[str]:
    """Return what validation chose among candidates of the training, as config.json of a model states it."""
    config: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        config = as_dict(untrusted.read_json(folder, "config.json"))
    plan = as_dict(config.get("plan"))
    texts = [as_dict(config.get("start")).get("told")]
    texts += [
        as_dict(plan.get(key)).get("description") for key in ("linear_probe", "recipes", "encoders", "self_training")
    ]
    return [shorten(remove_file_names(text), 300) for text in texts if isinstance(text, str)]


def _make_title(selection: Selection, card: Card, data: DataIndex) -> str:
    return f"{card.name}: {get_family(selection.task).join_classes(data.classes) or selection.task}"


def _make_provenance(
    selection: Selection, card: Card, data: DataIndex, integrity: str, run_facts: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "made_by": "m3b",
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "run": run_facts["run"],
        "request": run_facts["request"],
        "data_card": card.name,
        **({"data_origin": card.origin.to_json()} if card.origin is not None else {}),
        "task": selection.task,
        "metric": selection.metric,
        "cases": data.cases,
        "index_hashes": data.hashes,
        "integrity": integrity,
        "test_looks": run_facts["test_looks"],
        "llm": run_facts["llm"],
        "options": run_facts["options"],
        "set_by_user": run_facts.get("set_by_user", []),
        "sandboxes": run_facts["sandboxes"],
        **({"search": run_facts["search"]} if run_facts.get("search") else {}),
        "versions": collect_versions(),
    }


def collect_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that influence results; missing packages are omitted."""
    package_versions = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            package_versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return package_versions
