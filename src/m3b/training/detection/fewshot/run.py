"""Training of plan.json's few-shot detector: one detector for each draw of k examples, and ordinary networks for comparison.

Writes Logout/: metrics.json, calibration.json, valid_predictions.json, log.csv, model/best.safetensors.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m3b.training.detection.fewshot import comparison
from m3b.training.detection.fewshot.build import build_network
from m3b.training.detection.fewshot.cross_fitting import FittedEnsemble, build_ensemble, fit_cross
from m3b.training.detection.fewshot.data import PictureCases, draw_all, split_validation
from m3b.training.detection.fewshot.fitting import Fitted, fit, fit_zero_shot, predict_images
from m3b.training.detection.fewshot.image_classifier import FittedImage, fit_image
from m3b.training.detection.fewshot.scoring import mask_threshold
from m3b.training.detection.fewshot.selection import ENGINE_NAMES, choose_engine_by_auroc
from m3b.training.detection.index import read_index
from m3b.training.patients import describe_patients
from m3b.training.ranking_metrics import auroc

LOGOUT = Path("Logout")
MIN_TRAINING_SHARE = 0.25
"""Share of the minutes that remains for the training, however long the backbone takes."""
Detector = Fitted | FittedImage | FittedEnsemble


@dataclass
class DrawResult:
    """A draw of examples with its detector: AUROC on validation, and on the labelled cases outside the draw."""

    fitted: Detector
    engine: str
    train: PictureCases
    valid: PictureCases | None
    valid_auroc: float
    outside_auroc: float
    outside_cases: PictureCases | None = None

    @property
    def held_out(self) -> PictureCases:
        """Return the cases that were not used for training, if any: validation cases, else those outside the draw."""
        return self.valid or self.outside_cases or self.train


def run_fewshot(plan: dict[str, Any], minutes: float, train_detector: comparison.TrainDetector) -> None:
    """Train, compare and write the results."""
    started = time.monotonic()
    cases = PictureCases(read_index(), plan)
    for message in cases.unreadable[:3]:
        print(f"excluded: {message}", flush=True)
    settings = plan["fewshot"]
    rows_of_draws, measured_rows = draw_all(plan, cases)
    if plan["engine"] == "fewshot" and settings["protocol"] != "paper":
        used_rows = sorted({*measured_rows, *(row for rows in rows_of_draws for row in rows)})
        cases.compute_features(used_rows)
        seconds = time.monotonic() - started
        minutes = max(minutes - seconds / 60, minutes * MIN_TRAINING_SHARE)
        print(f"features of {len(used_rows)} pictures by the frozen backbone: {seconds:.0f} s", flush=True)
    if plan["engine"] == "fewshot" and settings["shots"] == 0:
        zero_shot = _run_zero_shot(plan, cases.part(measured_rows))
        write_results(plan, zero_shot, [zero_shot], time.monotonic() - started)
        return
    if plan["engine"] == "fewshot" and settings["compare"] and plan.get("detector") and settings["shots"] is None:
        _compare_with_ordinary(plan, cases, minutes, started, train_detector)
        return
    has_comparison = (
        plan["engine"] == "fewshot" and settings["compare"] and not cases.masked and bool(cases.abnormal.any())
    )
    detector_seconds = 60 * minutes * 0.9 / (len(rows_of_draws) * (2 if has_comparison else 1))
    results: list[DrawResult] = []
    for number, rows in enumerate(rows_of_draws):
        outside_rows = [row for row in measured_rows if row not in set(rows)]
        results += _run_draw(plan, cases, number, rows, outside_rows, detector_seconds, has_comparison)
    best = _choose_detector(results, plan)
    _print_summaries(results)
    write_results(plan, best, results, time.monotonic() - started)


def _compare_with_ordinary(
    plan: dict[str, Any], cases: PictureCases, minutes: float, started: float, train_detector: comparison.TrainDetector
) -> None:
    """Train the ordinary detector (masks) and this engine in half of the minutes each; keep the better one on validation."""
    held_out_images = comparison.train_ordinary_detector(plan, minutes / 2, train_detector)
    rows, valid_rows = comparison.split_rows(cases, held_out_images)
    is_comparable = bool(rows and valid_rows and cases.abnormal[rows].any())
    if not is_comparable:
        rows, valid_rows = split_validation(cases, float(plan["validation_share"]), int(plan["seed"]))
    train, valid = cases.part(rows), cases.part(valid_rows) if valid_rows else None
    fitted = fit(build_network(plan), train, valid, plan, 27 * minutes)
    best = DrawResult(fitted, "fewshot", train, valid, fitted.valid, float("nan"))
    write_results(plan, best, [best], time.monotonic() - started)
    if valid is None or not is_comparable:
        print("kept: few-shot (too few cases for a comparison on held-out cases)", flush=True)
        return
    threshold = float(json.loads((LOGOUT / "calibration.json").read_text())["map_threshold"])
    if comparison.is_ordinary_better(
        comparison.measure_fewshot(plan, fitted, valid, threshold), comparison.read_ordinary_metrics()
    ):
        comparison.restore_ordinary_results()


def _run_zero_shot(plan: dict[str, Any], cases: PictureCases) -> DrawResult:
    """Return the zero-shot detector, measured on all labelled cases."""
    fitted = fit_zero_shot(build_network(plan), plan)
    auroc_value = image_auroc(fitted, cases)
    metric_text = f"AUROC {auroc_value:.3f}" if np.isfinite(auroc_value) else "no AUROC: all cases have one state"
    print(f"no examples used: adapters trained on other sets; on {len(cases)} labelled cases {metric_text}", flush=True)
    return DrawResult(fitted, "fewshot", cases, cases, auroc_value, float("nan"))


def _run_draw(
    plan: dict[str, Any],
    cases: PictureCases,
    number: int,
    rows: list[int],
    outside_rows: list[int],
    seconds: float,
    has_comparison: bool,
) -> list[DrawResult]:
    """Train the detectors of one draw of examples and print their AUROC."""
    seed = int(plan["seed"]) + number
    torch.manual_seed(seed)
    part = cases.part(rows)
    outside_cases = cases.part(outside_rows) if outside_rows else None
    share = float(plan["validation_share"])
    train_rows, valid_rows = ([], []) if outside_rows else split_validation(part, share, seed)
    detectors: list[tuple[str, Detector]] = []
    train, valid = (part.part(train_rows), part.part(valid_rows)) if valid_rows else (part, None)
    for engine in ("fewshot", "image") if has_comparison else (plan["engine"],):
        engine_plan = {**plan, "engine": engine}
        if valid is not None:
            model: Any = build_network(engine_plan)
            fit_engine = fit if engine == "fewshot" else fit_image
            fitted: Fitted | FittedImage = fit_engine(model, train, valid, engine_plan, seconds)
        else:  # too few examples to hold any out
            fitted = fit_cross(engine_plan, part, seconds, seed)
        detectors.append((engine, fitted))
    if has_comparison and plan["fewshot"]["protocol"] != "paper":
        fewshot, ordinary = (detector for _, detector in detectors)
        if isinstance(fewshot, Fitted) and isinstance(ordinary, FittedImage):
            ensemble = build_ensemble(fewshot, ordinary, plan["backbone"])
            detectors += [("both", ensemble)] if ensemble else []
    results = []
    for engine, detector in detectors:
        outside_auroc = image_auroc(detector, outside_cases) if outside_cases is not None else float("nan")
        results.append(DrawResult(detector, engine, train, valid, detector.valid, outside_auroc, outside_cases))
        prefix = "" if valid is not None else "cross-fitted "
        has_valid = np.isfinite(detector.valid)
        valid_text = f"{prefix}validation AUROC {detector.valid:.3f}" if has_valid else "no validation part"
        outside_text = (
            f", on {len(outside_rows)} labelled cases outside the draw {outside_auroc:.3f}" if outside_cases else ""
        )
        effort = f"{detector.epochs} epochs, {detector.seconds:.0f} s"
        print(f"draw {number + 1}, {engine}: {valid_text}{outside_text}; {effort}", flush=True)
    return results


def predict_scores(fitted: Detector, cases: PictureCases) -> np.ndarray:
    """Return (N,) anomaly scores from 0 to 1."""
    return predict_images(fitted, cases)[0] if isinstance(fitted, Fitted) else fitted.predict(cases)


def image_auroc(fitted: Detector, cases: PictureCases) -> float:
    """Return the AUROC of images."""
    return auroc(cases.abnormal.numpy(), predict_scores(fitted, cases))


def _choose_detector(results: list[DrawResult], plan: dict[str, Any]) -> DrawResult:
    """Return the best draw of the engine that held-out cases favour; of the few-shot engine if they do not decide."""

    def auroc_or_worst(result: DrawResult) -> float:
        return result.valid_auroc if np.isfinite(result.valid_auroc) else -1.0

    engines = list(dict.fromkeys(result.engine for result in results))
    engine = plan["engine"]
    if len(engines) > 1:
        scores = {
            name: [result.fitted.held_out_scores for result in results if result.engine == name] for name in engines
        }
        if len(scores.get("both", [])) < len(scores["fewshot"]):  # a draw that could not be cross-fitted
            scores.pop("both", None)
        defined = {name: [draw for draw in draws if draw is not None] for name, draws in scores.items()}
        reason = "too few cases for a comparison on held-out cases"
        if all(defined.values()):
            engine, reason = choose_engine_by_auroc(defined)
        print(f"kept: {ENGINE_NAMES[engine]} ({reason})", flush=True)
    return max((result for result in results if result.engine == engine), key=auroc_or_worst)


def summarise_draws(results: list[DrawResult], engine: str) -> dict[str, Any]:
    """Return the AUROC of every draw, on the labelled cases outside the draw, or on validation if there are none."""
    draws = [result for result in results if result.engine == engine]
    values = [draw.outside_auroc if np.isfinite(draw.outside_auroc) else draw.valid_auroc for draw in draws]
    finite = [value for value in values if np.isfinite(value)]
    rounded = [round(value, 4) if np.isfinite(value) else None for value in values]
    if not finite:
        return {"draws": rounded}
    return {"draws": rounded, "mean": round(float(np.mean(finite)), 4), "deviation": round(float(np.std(finite)), 4)}


def _print_summaries(results: list[DrawResult]) -> None:
    for engine in dict.fromkeys(result.engine for result in results):
        summary = summarise_draws(results, engine)
        if len(summary["draws"]) > 1 and "mean" in summary:
            spread = f"{summary['mean']:.3f} +- {summary['deviation']:.3f}"
            print(f"{engine}: AUROC {spread} over {len(summary['draws'])} draws", flush=True)


def write_results(plan: Mapping[str, Any], best: DrawResult, results: list[DrawResult], seconds: float) -> None:
    """Write all files that export.py and people need."""
    from safetensors.torch import save_file

    (LOGOUT / "model").mkdir(parents=True, exist_ok=True)
    cases = best.held_out
    state, config = pack_model(best, cases)
    save_file(state, str(LOGOUT / "model" / "best.safetensors"))
    (LOGOUT / "calibration.json").write_text(json.dumps(config, indent=2))
    scores = predict_scores(best.fitted, cases)
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "abnormal": bool(truth),
            "anomaly_score": float(score),
        }
        for record, truth, score in zip(cases.records, cases.abnormal, scores, strict=True)
    ]
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    measured = best.outside_auroc if np.isfinite(best.outside_auroc) else best.valid_auroc
    auroc_value = round(measured, 4) if np.isfinite(measured) else None
    patients = len({json.dumps(row["patient"] or row["image"]) for row in rows})
    metrics = {
        "validation": {
            "image_auroc": auroc_value,
            "cases": len(rows) if cases is not best.train or best.valid is not None else 0,
            "patients": patients,
        },
        "by_class": {},
        "engine": best.engine,
        "over_draws": {
            engine: summarise_draws(results, engine) for engine in dict.fromkeys(result.engine for result in results)
        },
        "epochs": [best.fitted.epochs],
        "best_epoch": [best.fitted.epochs],
        "seconds": round(seconds, 1),
    }
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    patient_text = describe_patients(row["patient"] or row["image"] for row in rows)
    metric_text = "none: too few cases to hold any out"
    if auroc_value is not None:
        metric_text = f"{auroc_value} on {len(rows)} held-out cases of {patient_text}"
    print(f"done: {best.engine}, validation image auroc {metric_text}", flush=True)


def pack_model(best: DrawResult, held_out_cases: PictureCases) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return weights with the memory and the ordinary networks of an ensemble, and the configuration for predict.py."""
    if isinstance(best.fitted, FittedEnsemble):
        state, config = pack_model(replace(best, fitted=best.fitted.fewshot), held_out_cases)
        for number, copy in enumerate(best.fitted.copies):
            state |= {
                f"ordinary.{number}.{name}": tensor.contiguous().clone() for name, tensor in copy.state_dict().items()
            }
        return state, {**config, "together": {**best.fitted.config, "copies": len(best.fitted.copies)}}
    fitted = best.fitted
    state = {name: value.contiguous().clone() for name, value in fitted.model.state_dict().items()}
    if not isinstance(fitted, Fitted):
        return state, {"engine": "image", "image_calibration": fitted.calibration}
    state |= {f"bank.{level}": rows.contiguous() for level, rows in enumerate(fitted.banks)}
    threshold = float(fitted.config.get("map_threshold", 3.0))
    if held_out_cases.masked and "map_threshold" not in fitted.config:
        _, maps, _ = predict_images(fitted, held_out_cases)
        threshold = mask_threshold(maps, held_out_cases.masks())
    return state, {
        "engine": "fewshot",
        **fitted.config,
        "map_threshold": threshold,
        "adapting": fitted.model.adapting,
        "pixels": fitted.model.pixels,
        "mid": int(fitted.model.texts.shape[-1]),
        "banks": len(fitted.banks),
    }
