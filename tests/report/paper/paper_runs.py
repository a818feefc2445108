"""Run folders of every task family with what a paper kit reads: a chained journal, a locked index, metrics, provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, TrainingModule, to_json
from m3b.data.index import LABELS, TEST, TRAIN
from m3b.events import ArtifactAccepted, IndexAudited, RunEnded, RunStarted
from m3b.journal import Journal
from m3b.measure import Measure
from m3b.metrics.metric_tables import metric_table
from m3b.models import write_metrics
from m3b.run.result import Result

TARGETS: dict[str, Sequence[Mapping[str, Any]]] = {
    "diagnosis": ({"labels": ["normal"]}, {"labels": ["pneumonia"]}),
    "grading": ({"grade": "0"}, {"grade": "2"}),
    "regression": ({"value": 131.5}, {"value": 84.0}),
    "survival": ({"time": 14.5, "event": True}, {"time": 60.0, "event": False}),
    "segmentation": ({"mask_path": "data/l/{n}.nii.gz"}, {"mask_path": "data/l/{n}.nii.gz"}),
    "detection": ({"boxes": [{"label": "nodule", "box": [1, 2, 3, 4]}] * 2}, {"boxes": []}),
    "report": (
        {"report": {"findings": "The heart is large.", "impression": ""}},
        {"report": {"findings": "Clear.", "impression": ""}},
    ),
}  # fmt: skip
VOCABULARIES: dict[str, dict[str, int]] = {
    "diagnosis": {"normal": 0, "pneumonia": 1}, "grading": {"0": 0, "1": 1, "2": 2}, "regression": {"bone age (months)": 0},
    "survival": {"overall survival (months)": 0}, "segmentation": {"liver": 1}, "detection": {"nodule": 0}, "report": {},
}  # fmt: skip
AGES = (61.0, 47.0, None, 55.0, 70.0, 38.0)
MEASURE = Measure("", 0.812, 0.701, 0.913, 12, 0.5, (0.2, 0.4), 12)
PLAN = {"network": {"name": "small_cnn"}, "dims": 2, "channels": 1, "size": [48, 64], "batch": 16, "lr": 0.003, "folds": 1,
        "validation_share": 0.15, "augment": {"rotate": 5.0, "flip": []}, "minutes": 7.5}  # fmt: skip


def make_items(task: str, count: int, first: int, *, targets: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return index records: two cases a patient, targets in turn, age and sex."""
    items = []
    for number in range(first, first + count):
        choices = targets or TARGETS[task]
        target = json.loads(json.dumps(choices[number % len(choices)]).replace("{n}", str(number)))
        patient = number // 2
        attributes = {"sex": "FM"[patient % 2]}
        if (age := AGES[patient % len(AGES)]) is not None:
            attributes["age"] = f"{age:g}"
        items.append(
            {"image_path": f"data/i/{number}.png", "patient": f"p{patient}", "attributes": attributes, **target}
        )
    return items


def make_run(
    folder: Path,
    task: str,
    *,
    vocabulary: Mapping[str, int] | None = None,
    targets: Sequence[Mapping[str, Any]] = (),
    result_changes: Mapping[str, Any] | None = None,
    external: Mapping[str, Any] | None = None,
) -> Path:
    """Make a finished run of 24 training and 12 test cases."""
    values = dict(VOCABULARIES[task] if vocabulary is None else vocabulary)
    parts = {"train": make_items(task, 24, 0, targets=targets), "test": make_items(task, 12, 24, targets=targets)}
    (folder / "locked/Datapath").mkdir(parents=True)
    (folder / "model").mkdir()
    for name, content in ((TRAIN, parts["train"]), (TEST, parts["test"]), (LABELS, values)):
        (folder / "locked" / name).write_text(json.dumps(content))
    metric_names = [metric_table(task).default_metric, *list(metric_table(task).names)[:3]]
    metrics = {name: {**MEASURE.to_dict(), "name": name} for name in dict.fromkeys(metric_names)}
    primary = metrics[metric_names[0]]
    groups = [{"group": "F", "n": 6, "patients": 3, "measure": {**primary, "value": 0.777}}]
    details = {"subgroups": {"sex": groups}, "control": {"noise": {"n": 12, "change": 0.0123}}}
    write_metrics(folder / "model", {"primary": primary, "metrics": metrics, "details": details})
    versions = {"python": "3.11.7", "m3b": "0.1.0", "torch": "2.13.0"}
    provenance = {
        "made_at": "2026-11-27T14:00:00+0000",
        "versions": versions,
        "llm": {"default": "rules"},
        "options": {"seed": 7},
    }
    (folder / "model/provenance.json").write_text(json.dumps(provenance))
    manifest = {
        "task": task,
        "tables": {"cases": {"files": "cases.csv", "key": "{image}", "image": "{name}"}},
        "labels": {"value": "{cases.finding}"},
        "split": {"share": 0.33},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    _write_journal(folder, task, values, primary, {"external": external or {}, **(result_changes or {})})
    return folder


def _write_journal(
    folder: Path, task: str, values: Mapping[str, int], primary: Mapping[str, Any], result_changes: Mapping[str, Any]
) -> None:
    counts = {"train": dict.fromkeys(values, 12), "test": dict.fromkeys(values, 6)}
    left_out = [{"reason": "a document", "files": 3}, {"reason": "no label in cases.csv", "files": 2}]
    index = DataIndex(
        tuple(values), False, counts, {"train": 12, "test": 6}, {"train": 24, "test": 12}, {}, task=task,
        values=dict(values), grouped_by="the column patient of cases.csv", origin="proposed",
        accounting={"files": 42, "used": {"image": 36, "table": 1}, "left_out": left_out, "crossing": 0, "named_but_absent": 4},
    )  # fmt: skip
    result = Result("completed", "measured", "find it", task=task, integrity="clean").to_json()
    result |= {"primary": dict(primary), **result_changes}
    validation = {"name": primary["name"], "value": 0.9, "low": 0.8, "high": 0.95, "n": 5}
    audit = {"opened": 36, "shapes": {"1x64x64": 36}}
    journal = Journal(folder / "journal.jsonl", fsync=False)
    for event in (
        RunStarted("find it", "20261127-140000-beef", {}),
        ArtifactAccepted("selection", to_json(Selection("chest films", task, str(primary["name"]), "plan"))),
        IndexAudited(
            "", [{"code": "small_test", "message": "The test split is small, e.g. data/i/mueller_hans.png"}], audit
        ),
        ArtifactAccepted("index", to_json(index)),
        ArtifactAccepted("module", to_json(TrainingModule((2, 1, 48, 64), 608_032, (1.0, 0.5), PLAN))),
        ArtifactAccepted("model", to_json(TrainedModel("Deliver", validation))),
        RunEnded(result),
    ):
        journal.write(event)
    journal.close()
