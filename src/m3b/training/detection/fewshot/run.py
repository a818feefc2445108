"""Training of plan.json's few-shot detector: draws of the k examples, each a detector; the ordinary network beside it.

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

from m3b.training.detection.fewshot import comparison as versus
from m3b.training.detection.fewshot.build import build
from m3b.training.detection.fewshot.cross_fitting import Both, joined, taught
from m3b.training.detection.fewshot.data import Cases, divide, draw
from m3b.training.detection.fewshot.fitting import Fitted, answers, fit, zero_shot
from m3b.training.detection.fewshot.image_classifier import FittedImage, fit_image
from m3b.training.detection.fewshot.scoring import mask_threshold
from m3b.training.detection.fewshot.selection import NAMES, preferred
from m3b.training.detection.index import read_index
from m3b.training.patients import people
from m3b.training.ranking_metrics import auroc

LOGOUT = Path("Logout")
Detector = Fitted | FittedImage | Both


@dataclass
class Drawn:
    """One draw of examples with what came of it: AUROC on validation, and on the labelled cases that were not drawn."""

    fitted: Detector
    engine: str
    train: Cases
    valid: Cases | None
    figure: float
    rest: float
    others: Cases | None = None

    @property
    def held(self) -> Cases:
        """Cases that it did not learn from, where there are any: those held out, else those that were not drawn."""
        return self.valid or self.others or self.train


def run_fewshot(plan: dict[str, Any], minutes: float, train_detector: versus.TrainDetector) -> None:
    """Train, compare, write."""
    started = time.monotonic()
    cases = Cases(read_index(), plan)
    for fault in cases.unreadable[:3]:
        print(f"left out: {fault}", flush=True)
    few = plan["fewshot"]
    if plan["engine"] == "fewshot" and few["shots"] == 0:
        only = _zero(plan, cases)
        write(plan, only, [only], time.monotonic() - started)
        return
    if plan["engine"] == "fewshot" and few["compare"] and plan.get("detector") and few["shots"] is None:
        _against_detector(plan, cases, minutes, started, train_detector)
        return
    draws = max(1, int(few["draws"])) if few["shots"] is not None else 1
    both = plan["engine"] == "fewshot" and few["compare"] and not cases.masked and bool(cases.abnormal.any())
    each = 60 * minutes * 0.9 / (draws * (2 if both else 1))
    found = [one for number in range(draws) for one in _drawn(plan, cases, number, each, both)]
    best = _choose(found, plan)
    _told(found)
    write(plan, best, found, time.monotonic() - started)


def _against_detector(
    plan: dict[str, Any], cases: Cases, minutes: float, started: float, train_detector: versus.TrainDetector
) -> None:
    """Of masks: half of the minutes for the ordinary detector, half for this engine, and what is better on validation stays."""
    held = versus.run_detector(plan, minutes / 2, train_detector)
    rows, valid_rows = versus.parted(cases, held)
    if not rows or not valid_rows or not bool(cases.abnormal[rows].any()):
        rows, valid_rows = divide(cases, float(plan["validation_share"]), int(plan["seed"]))
    train, valid = cases.part(rows), cases.part(valid_rows) if valid_rows else None
    fitted = fit(build(plan), train, valid, plan, 27 * minutes)  # type: ignore[arg-type]
    best = Drawn(fitted, "fewshot", train, valid, fitted.valid, float("nan"))
    write(plan, best, [best], time.monotonic() - started)
    if valid is None:
        print("kept: few-shot (too few cases to hold any out for a comparison)", flush=True)
        return
    cut = float(json.loads((LOGOUT / "calibration.json").read_text())["map_threshold"])
    if versus.detector_wins(versus.quality(fitted, valid, cut), versus.beside()):
        versus.bring_back()


def _zero(plan: dict[str, Any], cases: Cases) -> Drawn:
    """No example at all: every labelled case can tell how good it is."""
    fitted = zero_shot(build(plan), plan)  # type: ignore[arg-type]
    figure = figure_of(fitted, cases)
    told = f"AUROC {figure:.3f}" if np.isfinite(figure) else "no AUROC: all of one state"
    print(f"no example taken: adapters trained on other sets; on {len(cases)} labelled cases {told}", flush=True)
    return Drawn(fitted, "fewshot", cases, cases, figure, float("nan"))


def _drawn(plan: dict[str, Any], cases: Cases, number: int, seconds: float, both: bool) -> list[Drawn]:
    seed = int(plan["seed"]) + number
    torch.manual_seed(seed)
    rows = draw(cases, plan["fewshot"]["shots"], seed)
    part = cases.part(rows)
    rest = [row for row in range(len(cases)) if row not in set(rows)]
    others = cases.part(rest) if rest else None
    train_rows, valid_rows = (None, None) if rest else divide(part, float(plan["validation_share"]), seed)
    made: list[tuple[str, Detector]] = []
    train, valid = (part.part(train_rows), part.part(valid_rows)) if valid_rows else (part, None)
    for engine in ("fewshot", "image") if both else (plan["engine"],):
        mine = {**plan, "engine": engine}
        if valid is not None:
            model: Any = build(mine)
            fitted: Fitted | FittedImage = (fit if engine == "fewshot" else fit_image)(
                model, train, valid, mine, seconds
            )
        else:  # few were drawn, or there are few: none is given up
            fitted = taught(mine, part, seconds, seed)
        made.append((engine, fitted))
    if both and plan["fewshot"]["protocol"] != "paper" and (pair := joined(*(one for _, one in made))):  # type: ignore[arg-type]
        made.append(("both", pair))
    drawn = []
    for engine, one in made:
        figure = figure_of(one, others) if others is not None else float("nan")
        drawn.append(Drawn(one, engine, train, valid, one.valid, figure, others))
        crossed = "" if valid is not None else "cross-fitted "
        where = f"{crossed}validation AUROC {one.valid:.3f}" if np.isfinite(one.valid) else "no validation part"
        more = f", on {len(rest)} labelled cases that were not drawn {figure:.3f}" if others is not None else ""
        print(f"draw {number + 1}, {engine}: {where}{more}; {one.epochs} epochs, {one.seconds:.0f} s", flush=True)
    return drawn


def figure_of(fitted: Detector, cases: Cases) -> float:
    """AUROC of images."""
    scores = answers(fitted, cases.pictures)[0] if isinstance(fitted, Fitted) else fitted.answers(cases.pictures)
    return auroc(cases.abnormal.numpy(), scores)


def _choose(found: list[Drawn], plan: dict[str, Any]) -> Drawn:
    """The engine that held-out cases prefer; of its draws the best one. The few-shot one where nothing tells."""

    def known(one: Drawn) -> float:
        return one.figure if np.isfinite(one.figure) else -1.0

    engines = list(dict.fromkeys(one.engine for one in found))
    engine = plan["engine"]
    if len(engines) > 1:
        held = {name: [one.fitted.held for one in found if one.engine == name] for name in engines}
        if len(held.get("both", [])) < len(held["fewshot"]):  # a draw whose cases could not be crossed
            held.pop("both", None)
        told = {name: [one for one in some if one is not None] for name, some in held.items()}
        why = "too few cases to hold any out for a comparison"
        if all(told.values()):
            engine, why = preferred(told)
        print(f"kept: {NAMES[engine]} ({why})", flush=True)
    return max((one for one in found if one.engine == engine), key=known)


def spread(found: list[Drawn], engine: str) -> dict[str, Any]:
    """Figures of every draw, on the labelled cases that were not drawn, or on validation where all were."""
    mine = [one for one in found if one.engine == engine]
    values = [one.rest if np.isfinite(one.rest) else one.figure for one in mine]
    known = [value for value in values if np.isfinite(value)]
    rounded = [round(value, 4) if np.isfinite(value) else None for value in values]
    if not known:
        return {"draws": rounded}
    return {"draws": rounded, "mean": round(float(np.mean(known)), 4), "deviation": round(float(np.std(known)), 4)}


def _told(found: list[Drawn]) -> None:
    for engine in dict.fromkeys(one.engine for one in found):
        one = spread(found, engine)
        if len(one["draws"]) > 1 and "mean" in one:
            print(
                f"{engine}: AUROC {one['mean']:.3f} +- {one['deviation']:.3f} over {len(one['draws'])} draws",
                flush=True,
            )


def write(plan: Mapping[str, Any], best: Drawn, found: list[Drawn], seconds: float) -> None:
    """Everything that export.py and people need."""
    from safetensors.torch import save_file

    (LOGOUT / "model").mkdir(parents=True, exist_ok=True)
    held = best.held
    state, config = packed(best, held)
    save_file(state, str(LOGOUT / "model" / "best.safetensors"))
    (LOGOUT / "calibration.json").write_text(json.dumps(config, indent=2))
    scores = (
        answers(best.fitted, held.pictures)[0]
        if isinstance(best.fitted, Fitted)
        else best.fitted.answers(held.pictures)
    )
    rows = [
        {
            "image": record["image_path"],
            "patient": record.get("patient"),
            "abnormal": bool(truth),
            "anomaly_score": float(score),
        }
        for record, truth, score in zip(held.records, held.abnormal, scores, strict=True)
    ]
    (LOGOUT / "valid_predictions.json").write_text(json.dumps(rows, indent=1))
    figure = round(best.figure, 4) if np.isfinite(best.figure) else None
    patients = len({json.dumps(row["patient"] or row["image"]) for row in rows})
    metrics = {
        "validation": {
            "image_auroc": figure,
            "cases": len(rows) if held is not best.train or best.valid is not None else 0,
            "patients": patients,
        },
        "by_class": {},
        "engine": best.engine,
        "over_draws": {engine: spread(found, engine) for engine in dict.fromkeys(one.engine for one in found)},
        "epochs": [best.fitted.epochs],
        "best_epoch": [best.fitted.epochs],
        "seconds": round(seconds, 1),
    }
    (LOGOUT / "metrics.json").write_text(json.dumps(metrics, indent=2))
    whose = people(row["patient"] or row["image"] for row in rows)
    told = (
        f"{figure} on {len(rows)} held-out cases of {whose}"
        if figure is not None
        else "none: too few cases to hold any out"
    )
    print(f"done: {best.engine}, validation image auroc {told}", flush=True)


def packed(best: Drawn, held: Cases) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights with the memory and the ordinary networks that are asked too, and what predict.py has to know."""
    if isinstance(best.fitted, Both):
        state, config = packed(replace(best, fitted=best.fitted.few), held)
        for number, copy in enumerate(best.fitted.copies):
            state |= {f"ordinary.{number}.{name}": one.contiguous().clone() for name, one in copy.state_dict().items()}
        return state, {**config, "together": {**best.fitted.config, "copies": len(best.fitted.copies)}}
    fitted = best.fitted
    state = {name: value.contiguous().clone() for name, value in fitted.model.state_dict().items()}
    if not isinstance(fitted, Fitted):
        return state, {"engine": "image", "image_calibration": fitted.calibration}
    state |= {f"bank.{level}": rows.contiguous() for level, rows in enumerate(fitted.banks)}
    threshold = float(fitted.config.get("map_threshold", 3.0))
    if held.masked and "map_threshold" not in fitted.config:
        _, shown, _ = answers(fitted, held.pictures)
        threshold = mask_threshold(shown, held.truths[:, 0].numpy() > 0.5)
    return state, {
        "engine": "fewshot",
        **fitted.config,
        "map_threshold": threshold,
        "adapting": fitted.model.adapting,
        "pixels": fitted.model.pixels,
        "mid": int(fitted.model.texts.shape[-1]),
        "banks": len(fitted.banks),
    }
