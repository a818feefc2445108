"""Metric tables: the metrics of each task with aliases, direction and role in the verdict; and their registry.

`m3b.tasks.TaskFamily` has its table as `metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from m3b.plugins import Registry


@dataclass(frozen=True)
class MetricTable:
    """The metrics by which models of one task are measured.

    Args:
        names: canonical name -> aliases that people write, in the order of tables.
        default_metric: the metric that a model is judged by unless the user asks for another.
        lower_is_better: metrics of which less is better.
        unbounded: metrics that are not shares between 0 and 1, such as millimetres.
        best: perfect value of unbounded metrics of which more is better.
        companions: metrics that a model without any skill can win -> the metric that has to beat the image-blind
            baseline instead.
        guarded_metrics: metrics that must not be worse than the image-blind baseline, whichever metric a model is
            judged by.
        noted_metrics: metrics that are only mentioned if they are worse than that baseline.
        decision_metric: a metric of the model's decisions that has to beat the image-blind baseline too; empty for
            none.
        uses_rarer_class: whether, with two classes, the rarer one determines the number of patients behind a value.
    """

    names: Mapping[str, tuple[str, ...]]
    default_metric: str
    lower_is_better: frozenset[str] = frozenset()
    unbounded: frozenset[str] = frozenset()
    best: Mapping[str, float] = field(default_factory=dict)
    companions: Mapping[str, str] = field(default_factory=dict)
    guarded_metrics: tuple[str, ...] = ()
    noted_metrics: tuple[str, ...] = ()
    decision_metric: str = ""
    uses_rarer_class: bool = False

    def __post_init__(self) -> None:
        mentioned = {
            self.default_metric,
            *self.lower_is_better,
            *self.unbounded,
            *self.best,
            *self.companions,
            *self.companions.values(),
            *self.guarded_metrics,
            *self.noted_metrics,
            *filter(None, [self.decision_metric]),
        }
        if unknown := sorted(mentioned - set(self.names)):
            raise ValueError(
                f"The table of metrics refers to {', '.join(unknown)}, but `names` only has {', '.join(self.names)}."
            )


@dataclass(frozen=True)
class AddedMetric:
    """Properties of a metric that a user added to a task's table; `metric` computes it."""

    lower_is_better: bool
    unbounded: bool
    aliases: tuple[str, ...]
    metric: Any


_TABLES: Registry[MetricTable] = Registry("table of metrics for")
_ADDED: dict[str, dict[str, AddedMetric]] = {}
"""Task -> metric -> its properties."""


def add_table(task: str, table: MetricTable) -> None:
    """Register the metrics of a task.

    Raises:
        ValueError: the task has another table, or another task has a metric of this name with the opposite direction.
    """
    for name in table.names:
        for registered in (existing for existing in _registered_tables() if name in existing.names):
            if (name in registered.lower_is_better) != (name in table.lower_is_better):
                raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _TABLES.add(task, table)


def add_metric(task: str, name: str, added: AddedMetric) -> None:
    """Add a metric to a task's table; an added metric of the same name is replaced.

    Raises:
        ValueError: there is no such task, its family has a metric of this name, or another task has one with the
            opposite direction.
    """
    if (task_table := _TABLES.get(task)) is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if name in task_table.names:
        raise ValueError(f"The task {task} has a metric {name!r} of its own; choose another name.")
    for other_task in (
        other_task for other_task in _TABLES.names() if other_task != task and name in metric_table(other_task).names
    ):
        if (name in metric_table(other_task).lower_is_better) != added.lower_is_better:
            raise ValueError(f"There is a metric {name!r} that is better the other way round; name it differently.")
    _ADDED.setdefault(task, {})[name] = added


def added_metrics(task: str) -> list[Any]:
    """Return the metrics that users added to a task."""
    _TABLES.names()  # loads installed plug-ins
    return [added.metric for added in _ADDED.get(task, {}).values()]


def _registered_tables() -> list[MetricTable]:
    return [metric_table(task) for task in _TABLES.added_names()]


def metric_tables() -> Iterator[MetricTable]:
    """Iterate over the tables of all tasks, m3b's own first."""
    return (metric_table(task) for task in _TABLES.names())


def metric_table(task: str) -> MetricTable:
    """Return the metrics of a task, with those that users added.

    Raises:
        ValueError: the task is unknown.
    """
    base_table = _TABLES.get(task)
    if base_table is None:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(_TABLES.names())}")
    if not (additions := _ADDED.get(task)):
        return base_table
    return replace(
        base_table,
        names={**base_table.names, **{name: added.aliases for name, added in additions.items()}},
        lower_is_better=base_table.lower_is_better
        | {name for name, added in additions.items() if added.lower_is_better},
        unbounded=base_table.unbounded | {name for name, added in additions.items() if added.unbounded},
    )


def tasks_with_metrics() -> tuple[str, ...]:
    """Return the tasks that have metrics."""
    return _TABLES.names()


def lower_is_better(name: str) -> bool:
    """Return whether less of a metric is better."""
    return any(name in task_table.lower_is_better for task_table in metric_tables())


def is_unbounded(name: str) -> bool:
    """Return whether a metric is not a share between 0 and 1."""
    return any(name in task_table.unbounded for task_table in metric_tables())


def best_value(name: str) -> float | None:
    """Return the value of a perfect answer; None if it is not known."""
    if lower_is_better(name):
        return 0.0
    if not is_unbounded(name):
        return 1.0
    return next((owner.best[name] for owner in metric_tables() if name in owner.best), None)


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
    """Return every spelling that is understood, with the canonical name that it stands for.

    Case, spaces, hyphens and underscores do not matter when a name is looked up with `canonical_metric`. A canonical
    name wins over an alias; without a task, an alias that several tasks share ("F1", "recall") means the first:
    diagnosis.

    Raises:
        ValueError: the task is unknown.
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
    """Return the canonical name of a metric, among those of one task if it is given.

    Raises:
        ValueError: the name is not in the vocabulary (of the task); the message lists the valid names.
    """
    canonical_by_alias = {_normalise_name(alias): canonical for alias, canonical in metric_names(task).items()}
    match = canonical_by_alias.get(_normalise_name(name))
    if match is None:
        names = dict.fromkeys(metric_names(task).values())
        model = "a model" if task is None else f"a {task} model"
        raise ValueError(f"unknown metric {name!r}; {model} is measured by one of: {', '.join(names)}")
    return match
