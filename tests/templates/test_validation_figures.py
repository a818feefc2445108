"""Validation figures of networks that answered different cases."""

from __future__ import annotations

import numpy as np
import pytest
from template_kit import load


def test_networks_of_different_scale_are_not_ranked_against_each_other() -> None:
    """Pooled logits of five networks gave 0.773 where their own figures were 0.817 on average."""
    rng = np.random.default_rng(0)
    truth = rng.random(300) < 0.4
    networks = np.arange(300) % 3
    scores = truth + rng.normal(0, 0.8, 300)
    shifted = scores + 4.0 * networks
    labels = np.stack([~truth, truth], axis=1).astype(np.float32)
    ranks = load("ranking_metrics")
    areas = [ranks.auroc(truth[networks == k], scores[networks == k]) for k in range(3)]
    auroc = ranks.macro_auroc(labels, np.stack([-shifted, shifted], axis=1), networks)
    assert auroc == pytest.approx(np.mean(areas), abs=0.005)
    assert ranks.macro_auroc(labels, np.stack([-shifted, shifted], axis=1)) < auroc - 0.1
    one_sided = np.where(truth, 1, networks)
    assert ranks.macro_auroc(labels, np.stack([-scores, scores], axis=1), one_sided) > 0.5


def test_each_site_has_its_own_validation_figures() -> None:
    rng = np.random.default_rng(0)
    train = load("diagnosis.train")
    truth = rng.random(400) < 0.5
    sites = np.array(["easy", "hard", "one class", ""])[np.arange(400) % 4]
    truth[sites == "one class"] = True
    scores = np.where(sites == "easy", 4.0, 0.0) * truth + rng.normal(0, 1, 400)
    predictions = train.HeldOutPredictions(
        logits=np.stack([-scores, scores], axis=1),
        labels=np.stack([~truth, truth], axis=1).astype(np.float32),
        networks=np.zeros(400, int),
        records=[{"attributes": {"site": site}} if site else {} for site in sites.tolist()],
        shared=None,
        figures=[],
    )
    plan = {"task": "diagnosis", "classes": ["clear", "ill"], "multi_label": False}
    figures = train.measure_sites(plan, predictions)
    assert list(figures) == ["easy", "hard", "one class"]
    assert {values["cases"] for values in figures.values()} == {100}
    assert figures["easy"]["auroc"] > 0.95
    assert figures["hard"]["auroc"] == pytest.approx(0.5, abs=0.12)
    assert set(figures["one class"]) == {"cases"}, "an AUROC of one class is undefined"
    for record in predictions.records:
        record["attributes"] = {"site": "easy"}
    assert train.measure_sites(plan, predictions) == {}, "one site is no comparison"
