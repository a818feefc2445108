"""Recalibration: thresholds and calibration of a delivered model for a new site, fitted on its labelled cases.

Only config.json changes, in a copy of the model: weights and code stay. The fit sees the model's own calibrated probabilities.
With p = softmax(z / T + b), or a sigmoid, a second temperature and bias on log p (or logit p) are again a temperature and a bias of z.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from m3b.cleanup import undo_on_error
from m3b.errors import ModelError, UsageError
from m3b.writing import write_text_atomically

RECALIBRATED_TASKS = ("diagnosis", "grading", "regression")
MIN_PATIENTS = 20
"""Patients below which a recalibration is refused: with fewer, thresholds and prediction sets are mostly chance."""
_CALIBRATION_KEYS = ("thresholds", "sets", "decide", "interval")
"""Keys of config.json that a recalibration replaces, besides `temperature` and `bias`."""


@dataclass(frozen=True)
class Recalibration:
    """A recalibrated copy of a model.

    Args:
        folder: of the new model.
        cases, patients: that it was fitted on.
        figures: before and after, the latter on cases that the fit did not see; for instance `log_loss_before` and
            `log_loss_after`, `ece_before` and `ece_after`.
    """

    folder: Path
    cases: int
    patients: int
    figures: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {
            "folder": str(self.folder), "cases": self.cases, "patients": self.patients, "figures": dict(self.figures)
        }  # fmt: skip


def recalibrate_model(
    model: str | Path, index: str | Path, out: str | Path, *, base: str | Path | None = None, unconfined: bool = False
) -> Recalibration:
    """Fit calibration and thresholds of a delivered model to labelled cases, and write the model with them to `out`.

    Args:
        model: the folder of a classifier, grader or estimator of a number.
        index: JSON with the cases of the new site, in the form of train.json.
        out: a folder that does not exist yet.
        base: the folder that paths in the index are relative to; by default that of the index.
        unconfined: run the model's code with all rights of the user instead of in a sandbox.

    Raises:
        UsageError: the task cannot be recalibrated, there are too few patients, a label is unknown to the model, or `out` exists.
        DataError: the index cannot be read.
        ModelError: the model cannot predict a case, or its config.json has no calibration.
    """
    from m3b.data.index import read_records
    from m3b.data.records import relocated
    from m3b.models.input_rules import plan_of
    from m3b.models.loading import load_model

    source, index_file, target = Path(model), Path(index), Path(out)
    if target.exists():
        raise UsageError(f"{target} exists already; name a new folder.")
    opened_model = load_model(source, unconfined=unconfined)
    if opened_model.task not in RECALIBRATED_TASKS:
        raise UsageError(
            f"{source} is a model for {opened_model.task}; {', '.join(RECALIBRATED_TASKS)} can be recalibrated."
        )
    config = dict(opened_model.config)
    if "temperature" not in config or plan_of(config).get("task") != opened_model.task:
        raise ModelError(
            f"{source} has no calibration in config.json: only models of m3b's own templates can be recalibrated."
        )
    records = read_records(index_file, opened_model.task)
    patients = [record.patient for record in records]
    if len(set(patients)) < MIN_PATIENTS:
        raise UsageError(
            f"{index_file} has cases of {len(set(patients))} patients; at least {MIN_PATIENTS} are needed."
        )
    base_folder = Path(base) if base is not None else index_file.parent
    images = [relocated(record.image, lambda path: str((base_folder / path).absolute())) for record in records]
    has_covariates = bool(opened_model.covariates)
    cases = [
        {"image": image, **record.covariates} if has_covariates else image
        for image, record in zip(images, records, strict=True)
    ]
    with opened_model:
        predictions = opened_model.predict(cases)
    rows = json.loads(index_file.read_text(encoding="utf-8"))
    outputs = np.array([_read_outputs(prediction, config) for prediction in predictions])
    new_config, figures = recalibrate_config(config, outputs, rows, patients)
    result = Recalibration(target, len(records), len(set(patients)), figures)
    with undo_on_error(lambda: shutil.rmtree(target, ignore_errors=True)):
        _write_model(source, target, new_config, result)
    return result


def _read_outputs(prediction: Any, config: Mapping[str, Any]) -> list[float]:
    """Return the probabilities of a prediction in the order of the classes, or its number."""
    if "number" in config["plan"]:
        return [float(prediction.extra["value"])]
    return [float(prediction.probabilities[name]) for name in config["classes"]]


def recalibrate_config(
    config: Mapping[str, Any], outputs: np.ndarray, rows: Sequence[Mapping[str, Any]], patients: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return config.json with a calibration fitted to the cases, and the figures of the fit.

    Args:
        outputs: (N, K) calibrated probabilities, or (N, 1) numbers, that the model gives now.
        rows: (N,) records of the index as JSON.
        patients: (N,) whose the cases are.

    Raises:
        UsageError: the index has a label that the model does not know.
    """
    from m3b.training.diagnosis.targets import get_target

    target = get_target(config["plan"])
    try:
        labels = target.encode(rows)
    except SystemExit as error:
        raise UsageError(str(error)) from error
    if "number" in config["plan"]:
        return _recalibrate_number(config, outputs, rows, target, labels, list(patients))
    probabilities = np.clip(outputs, 1e-7, 1 - 1e-7)
    logits = np.log(probabilities)
    if config["multi_label"]:
        logits -= np.log1p(-probabilities)
    fitted = target.calibrate(logits, labels, list(patients))
    figures = fitted.pop("figures")
    scale, shift = np.asarray(fitted["temperature"]), np.asarray(fitted["bias"])
    transforms = [config, *config.get("alone", {}).values()]
    composed = [
        {
            "temperature": _round(np.asarray(transform["temperature"]) * scale),
            "bias": _round(np.asarray(transform["bias"]) / scale + shift),
            "thresholds": fitted["thresholds"],
        }
        for transform in transforms
    ]
    new_config = {**config, **composed[0], **{key: fitted[key] for key in _CALIBRATION_KEYS if key in fitted}}
    if config.get("alone"):
        new_config["alone"] = {
            name: {**config["alone"][name], **values}
            for name, values in zip(config["alone"], composed[1:], strict=True)
        }
    return new_config, figures


def _recalibrate_number(
    config: Mapping[str, Any], outputs: np.ndarray, rows: Sequence[Mapping[str, Any]], target: Any, labels: np.ndarray,
    patients: list[str],
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Shift numbers by their mean error if it is larger than twice its standard error, and fit the interval anew."""
    truth = np.array([float(row["value"]) for row in rows])
    errors = truth - outputs[:, 0]
    standard_error = float(errors.std(ddof=1) / np.sqrt(len(errors)))
    shift = float(errors.mean()) if abs(errors.mean()) > 2 * standard_error else 0.0
    shifts = (
        (errors.sum() - errors) / (len(errors) - 1) if shift else np.zeros(len(errors))
    )  # each without its own case
    scaled = (outputs[:, 0] + shifts - target.centre) / target.scale
    fitted = target.calibrate(scaled[:, None], labels, patients)
    interval = {"interval": fitted["interval"]} if "interval" in fitted else {}
    figures = {
        "shift": round(shift, 6),
        "mae_before": round(float(np.abs(errors).mean()), 6),
        "mae_after": round(float(np.abs(errors - shifts).mean()), 6),
        **fitted["figures"],
    }
    return {**config, "bias": float(config["bias"]) + shift, **interval}, figures


def _round(values: np.ndarray) -> float | list[float]:
    return [round(float(value), 6) for value in values] if values.ndim else round(float(values), 6)


def _write_model(source: Path, target: Path, config: Mapping[str, Any], result: Recalibration) -> None:
    """Copy a model with another config.json; card and provenance say where its calibration is from."""
    from m3b.models.checksums import PROVENANCE_FILE
    from m3b.models.model_card import write_provenance

    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    write_text_atomically(target / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    figures = ", ".join(f"{name} {value}" for name, value in result.figures.items() if isinstance(value, int | float))
    card = target / "README.md"
    note = (
        "## Recalibrated\n\nTemperature, bias, thresholds and prediction sets (or intervals) of this copy were fitted on "
        f"{result.cases} cases of {result.patients} patients of another site: {figures}. Figures elsewhere on this page are "
        "those of the model before. Measure it on further cases of that site with `m3b score`.\n"
    )
    write_text_atomically(card, f"{card.read_text(encoding='utf-8').rstrip()}\n\n{note}")
    provenance_file = source / PROVENANCE_FILE
    if provenance_file.is_file():
        provenance = json.loads(provenance_file.read_text(encoding="utf-8"))
        provenance.pop("files", None)
        details = {"cases": result.cases, "patients": result.patients, "figures": dict(result.figures)}
        write_provenance(target, {**provenance, "recalibrated": details})
