"""Names of metrics, for every task and every data card; what is loaded when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import m3b.metrics
from m3b.metrics import MetricTable, canonical_metric, metric_names
from m3b.metrics.metric_tables import (
    add_table,
    is_unbounded,
    lower_is_better,
    metric_table,
    metric_tables,
    tasks_with_metrics,
)

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


def test_every_public_name_is_there() -> None:
    for name in m3b.metrics.__all__:
        assert getattr(m3b.metrics, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        m3b.metrics.nonsense


def test_scipy_is_loaded_when_masks_are_measured_and_not_before() -> None:
    code = (
        "import sys, m3b.metrics as m; assert 'scipy' not in sys.modules, 'early'; m.score_reports; m.judge; "
        "assert 'scipy' not in sys.modules, 'for texts'; m.measure_masks; assert 'scipy' in sys.modules; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)
