"""Names of metrics, for every task and every data card; what is loaded when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from m3b.metrics import MetricTable, canonical_metric, metric_names
from m3b.metrics.metric_tables import (
    add_table,
    is_unbounded,
    lower_is_better,
    metric_table,
    metric_tables,
    metric_title,
    tasks_with_metrics,
)
from m3b.plugins import BUILTIN_TASKS

CARDS = sorted((Path(__file__).parents[2] / "resources" / "datacards").glob("*.json"))


@pytest.mark.parametrize("task", [None, *tasks_with_metrics()])
def test_every_spelling_is_understood(task: str | None) -> None:
    names = metric_names(task)
    for alias, name in names.items():
        assert canonical_metric(alias, task) == name
        assert canonical_metric(alias.upper().replace(" ", "-"), task) == name
    expected = [name for table in (metric_tables() if task is None else [metric_table(task)]) for name in table.names]
    assert set(names.values()) == set(expected)
    assert all(canonical_metric(name, task) == name for name in expected)


def test_the_metrics_of_all_data_cards_are_known() -> None:
    assert len(CARDS) > 14
    for card in CARDS:
        facts = json.loads(card.read_text(encoding="utf-8"))
        if facts.get("metric"):
            assert canonical_metric(facts["metric"], facts.get("task")) in metric_table(facts["task"]).names, card.name


def test_a_task_decides_what_a_short_name_means() -> None:
    assert canonical_metric("F1") == canonical_metric("F1", "diagnosis") == "f1"
    assert canonical_metric("F1", "detection") == "lesion_f1"
    assert canonical_metric("F1", "report") == "label_f1"
    assert canonical_metric("recall", "detection") == "lesion_recall"
    assert canonical_metric("AUC", "detection") == "image_auroc"
    assert canonical_metric("DSC", "detection") == canonical_metric("dice score", "segmentation") == "dice"
    assert canonical_metric("BLEU") == "bleu_4"
    with pytest.raises(ValueError, match="one of: auroc"):
        canonical_metric("dice", "diagnosis")
    with pytest.raises(ValueError, match="unknown task 'painting'"):
        canonical_metric("dice", "painting")


def test_what_a_table_says_it_says_of_its_own_metrics() -> None:
    assert [name for name in metric_names().values() if lower_is_better(name)]
    assert is_unbounded("cider")
    assert not is_unbounded("dice")
    with pytest.raises(ValueError, match="refers to speed, but `names` only has blur"):
        MetricTable({"blur": ()}, "blur", lower_is_better=frozenset({"speed"}))


def test_a_metric_is_better_the_same_way_in_every_task() -> None:
    with pytest.raises(ValueError, match="'hd95' that is better the other way round"):
        add_table("painting", MetricTable({"hd95": ()}, "hd95"))
    assert "painting" not in tasks_with_metrics()


def test_a_metric_of_two_tasks_is_better_the_same_way_in_both() -> None:
    for table in metric_tables():
        assert {name for name in table.names if lower_is_better(name)} == set(table.lower_is_better)


def test_every_metric_has_a_title() -> None:
    for task in BUILTIN_TASKS:
        table = metric_table(task)
        assert set(table.titles) == set(table.names)
        assert all(metric_title(name) == title for name, title in table.titles.items())


def test_scipy_is_loaded_when_masks_are_measured_and_not_before() -> None:
    code = (
        "import sys, numpy as np, m3b.metrics as m; from m3b.tasks import list_families; "
        "assert len(list_families()) == 7; m.judge; assert 'scipy' not in sys.modules, 'early'; "
        "m.measure_masks(np.eye(4, dtype=int), np.ones((4, 4), int), {'a': 1}, (1, 1)); assert 'scipy' in sys.modules; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)


def test_a_task_is_loaded_when_its_metrics_are_asked_for() -> None:
    code = (
        "import sys; from m3b.metrics.metric_tables import metric_table; metric_table('survival'); "
        "print(*sorted({name.split('.')[2] for name in sys.modules if name.startswith('m3b.tasks.')}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=True)
    assert set(ran.stdout.split()) & set(BUILTIN_TASKS) == {"survival"}
