"""The metrics of m3b's own tasks: one canonical name each, the aliases that people write, and which way is better."""

from __future__ import annotations

import re

from .table import MetricTable, add_table, metric_table, metric_tables

_AliasTable = dict[str, tuple[str, ...]]

_DIAGNOSIS: _AliasTable = {
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
    "auprc": ("average precision", "PR-AUC", "AUC-PR", "area under the precision-recall curve", "macro AP"),
    "sensitivity_at_90_specificity": ("sensitivity at 90 % specificity", "sens@90spec", "recall at 90 % specificity"),
    "sensitivity_at_95_specificity": ("sensitivity at 95 % specificity", "sens@95spec", "recall at 95 % specificity"),
    "ece": ("calibration error", "expected calibration error", "calibration"),
    "brier": ("Brier score", "Brier loss"),
}

_SEGMENTATION: _AliasTable = {
    "dice": ("DSC", "Dice score", "Dice coefficient", "mean Dice", "Dice similarity coefficient", "Sørensen-Dice"),
    "nsd": ("normalised surface distance", "normalized surface distance", "surface Dice", "normalised surface Dice"),
    "hd95": ("95 % Hausdorff distance", "HD 95", "Hausdorff 95", "Hausdorff distance 95", "robust Hausdorff distance"),
}

_DETECTION: _AliasTable = _SEGMENTATION | {
    "lesion_f1": ("F1", "lesion-wise F1", "lesionwise F1", "F1 score", "object F1", "detection F1"),
    "lesion_precision": ("precision", "lesion-wise precision", "positive predictive value", "PPV"),
    "lesion_recall": ("recall", "sensitivity", "lesion-wise recall", "lesion sensitivity", "LTPR"),
    "map_50": ("mAP@0.5", "mAP50", "AP50", "AP@0.5", "mAP at 0.5"),
    "map": ("mean average precision", "COCO mAP", "mAP@[.5:.95]", "AP", "mAP 50-95"),
    "map_10": ("mAP@0.1", "mAP10", "AP10", "AP@0.1", "mAP at 0.1"),
    "centre_ap": ("centre hit AP", "center AP", "centre-hit average precision", "AP by centre hits"),
    "froc": ("CPM", "FROC score", "competition performance metric", "average FROC sensitivity"),
    "image_auroc": ("image-level AUROC", "image AUROC", "image-level AUC", "auroc", "AUC", "anomaly AUROC"),
    "image_ap": ("image-level AP", "image AP", "AUPRC", "image-level average precision", "anomaly AP"),
    "pixel_auroc": ("pixel-level AUROC", "pixel AUC", "pixel-level AUC", "P-AUROC"),
    "pixel_ap": ("pixel-level AP", "pixel-level average precision", "P-AP"),
    "pro": ("AUPRO", "per-region overlap", "AU-PRO", "PRO score"),
}

_REPORT: _AliasTable = {
    "bleu_1": ("BLEU1", "BLEU@1"),
    "bleu_2": ("BLEU2", "BLEU@2"),
    "bleu_3": ("BLEU3", "BLEU@3"),
    "bleu_4": ("BLEU", "BLEU4", "BLEU@4"),
    "rouge_l": ("ROUGE", "ROUGEL"),
    "meteor": ("METEOR score",),
    "cider": ("CIDEr-D",),
    "label_f1": ("F1", "clinical F1", "clinical efficacy F1", "CE F1", "label F1 macro", "finding F1"),
    "label_f1_micro": ("micro label F1", "micro clinical F1"),
}

_GRADING: _AliasTable = {
    "qwk": (
        "quadratic weighted kappa", "quadratic kappa", "weighted kappa", "Cohen's kappa", "kappa", "quadratically weighted kappa",
    ),
    "grade_mae": ("MAE", "mean absolute error", "MAE of the grade", "mean grade error"),
    "accuracy": ("acc", "exact agreement", "overall accuracy"),
    "within_one": ("adjacent accuracy", "accuracy within one grade", "off-by-one accuracy"),
    "balanced_accuracy": ("bacc", "balanced acc", "macro recall", "UAR"),
    "auroc": ("AUC", "ROC-AUC", "macro AUC", "mean AUC"),
}  # fmt: skip

_REGRESSION: _AliasTable = {
    "mae": ("mean absolute error", "absolute error", "MAD"),
    "rmse": ("root mean squared error", "root mean square error", "RMS error"),
    "r2": ("R squared", "R^2", "coefficient of determination", "explained variance"),
    "pearson": ("Pearson's r", "Pearson correlation", "correlation", "PCC"),
}

_SURVIVAL: _AliasTable = {
    "c_index": ("C-index", "concordance", "concordance index", "Harrell's C", "Harrell C-index", "CI"),
    "ibs": ("integrated Brier score", "integrated Brier"),
}

DIAGNOSIS = MetricTable(
    _DIAGNOSIS,
    "auroc",
    lower_is_better=frozenset({"ece", "brier"}),
    companions={"sensitivity": "balanced_accuracy", "specificity": "balanced_accuracy", "ece": "auroc"},
    noted_metrics=("accuracy",),
    decision_metric="balanced_accuracy",
    uses_rarer_class=True,
)
SEGMENTATION = MetricTable(
    _SEGMENTATION,
    "dice",
    lower_is_better=frozenset({"hd95"}),
    unbounded=frozenset({"hd95"}),
    guarded_metrics=("dice", "hd95"),
)
DETECTION = MetricTable(
    _DETECTION,
    "lesion_f1",
    lower_is_better=frozenset({"hd95"}),
    unbounded=frozenset({"hd95"}),
    companions={"lesion_precision": "lesion_f1", "lesion_recall": "lesion_f1"},
    guarded_metrics=("dice", "lesion_f1", "map_50", "froc", "image_auroc"),
)
REPORT = MetricTable(_REPORT, "bleu_4", unbounded=frozenset({"cider"}), best={"cider": 10.0})
GRADING = MetricTable(
    _GRADING,
    "qwk",
    lower_is_better=frozenset({"grade_mae"}),
    unbounded=frozenset({"grade_mae", "qwk"}),
    best={"qwk": 1.0},
    guarded_metrics=("grade_mae",),
    noted_metrics=("accuracy",),
)
REGRESSION = MetricTable(
    _REGRESSION,
    "mae",
    lower_is_better=frozenset({"mae", "rmse"}),
    unbounded=frozenset({"mae", "rmse", "r2", "pearson"}),
    best={"r2": 1.0, "pearson": 1.0},
    companions={"pearson": "mae"},
    guarded_metrics=("mae",),
    noted_metrics=("rmse",),
)

SURVIVAL = MetricTable(
    _SURVIVAL,
    "c_index",
    lower_is_better=frozenset({"ibs"}),
    noted_metrics=("ibs",),
)

for _task, _table in (
    ("diagnosis", DIAGNOSIS),
    ("segmentation", SEGMENTATION),
    ("detection", DETECTION),
    ("report", REPORT),
    ("grading", GRADING),
    ("regression", REGRESSION),
    ("survival", SURVIVAL),
):
    add_table(_task, _table)


def _normalise_name(name: str) -> str:
    return re.sub(r"[^\w]|_", "", name.casefold())


def metric_names(task: str | None = None) -> dict[str, str]:
    """Every spelling that is understood, with the canonical name that it stands for.

    Case, spaces, hyphens and underscores do not matter when a name is looked up with `canonical_metric`. A canonical
    name wins over an alias; without a task an alias that several share ("F1", "recall") means the first: diagnosis.

    Raises:
        ValueError: an unknown task.
    """
    vocabularies = [vocabulary.names for vocabulary in (metric_tables() if task is None else [metric_table(task)])]
    names = {name: name for vocabulary in vocabularies for name in vocabulary}
    normalised = {_normalise_name(name) for name in names}
    for vocabulary in vocabularies:
        new_aliases = {
            alias: name
            for name, aliases in vocabulary.items()
            for alias in aliases
            if _normalise_name(alias) not in normalised
        }
        names.update(new_aliases)
        normalised.update(_normalise_name(alias) for alias in new_aliases)
    return names


def canonical_metric(name: str, task: str | None = None) -> str:
    """The canonical name of a metric, of one task where it is given.

    Raises:
        ValueError: a name that is not in the vocabulary (of the task); the message lists those that are.
    """
    canonical_by_alias = {_normalise_name(alias): canonical for alias, canonical in metric_names(task).items()}
    match = canonical_by_alias.get(_normalise_name(name))
    if match is None:
        names = dict.fromkeys(metric_names(task).values())
        model = "a model" if task is None else f"a {task} model"
        raise ValueError(f"unknown metric {name!r}; {model} is measured by one of: {', '.join(names)}")
    return match
