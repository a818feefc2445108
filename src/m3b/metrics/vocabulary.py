"""The names of metrics: one canonical name each, the aliases that people write, and which way is better."""

from __future__ import annotations

import re

_ALIASES: dict[str, tuple[str, ...]] = {
    "auroc": (
        "AUC",
        "ROC-AUC",
        "ROC AUC",
        "AUROC macro",
        "macro AUC",
        "mean AUC",
        "area under the ROC curve",
        "AUC-ROC",
    ),
    "balanced_accuracy": ("bacc", "balanced acc", "balanced accuracy", "macro recall", "UAR"),
    "accuracy": ("acc", "top-1 accuracy", "overall accuracy"),
    "f1": ("F1 score", "macro F1", "F1 macro", "F-score", "F1-measure"),
    "sensitivity": ("recall", "true positive rate", "TPR", "sens"),
    "specificity": ("true negative rate", "TNR", "spec"),
    "ece": ("calibration error", "expected calibration error", "calibration"),
    "brier": ("Brier score", "Brier loss"),
}

CANONICAL: tuple[str, ...] = tuple(_ALIASES)
"""Every metric of a diagnosis model, in the order in which tables show them."""

LOWER_IS_BETTER = frozenset({"ece", "brier"})

COMPANION = {"sensitivity": "balanced_accuracy", "specificity": "balanced_accuracy", "ece": "auroc"}
"""Metrics that a model without any skill can win, and the one that has to be better than trivial in their place."""


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def metric_names() -> dict[str, str]:
    """Every spelling that is understood, with the canonical name that it stands for.

    Case, spaces, hyphens and underscores do not matter when a name is looked up with `canonical_metric`.
    """
    table = {name: name for name in CANONICAL}
    table.update({alias: name for name, aliases in _ALIASES.items() for alias in aliases})
    return table


def canonical_metric(name: str) -> str:
    """The canonical name of a metric.

    Raises:
        ValueError: a name that is not in the vocabulary; the message lists those that are.
    """
    known = {_folded(alias): canonical for alias, canonical in metric_names().items()}
    found = known.get(_folded(name))
    if found is None:
        raise ValueError(f"unknown metric {name!r}; a diagnosis model is measured by one of: {', '.join(CANONICAL)}")
    return found
