"""Names of metrics, for every task and every data card; what is loaded when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import m3b.metrics
from m3b.metrics import CANONICAL, LOWER_IS_BETTER, TASK_METRICS, canonical_metric, metric_names
from m3b.metrics.vocabulary import COMPANION, UNBOUNDED

CARDS = sorted((Path(__file__).parents[2] / "resources" / "datacards").glob("*.json"))


@pytest.mark.parametrize("task", [None, *TASK_METRICS])
def test_every_spelling_is_understood(task: str | None) -> None:
    names = metric_names(task)
    for alias, name in names.items():
        assert canonical_metric(alias, task) == name
        assert canonical_metric(alias.upper().replace(" ", "-"), task) == name
    expected = CANONICAL if task is None else TASK_METRICS[task]
    assert set(names.values()) == set(expected)
    assert all(canonical_metric(name, task) == name for name in expected)


def test_the_metrics_of_all_data_cards_are_known() -> None:
    assert len(CARDS) > 14
    for card in CARDS:
        facts = json.loads(card.read_text(encoding="utf-8"))
        if facts.get("metric"):
            assert canonical_metric(facts["metric"], facts.get("task")) in TASK_METRICS[facts["task"]], card.name


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


def test_the_sets_hold_canonical_names() -> None:
    companions = {*COMPANION, *COMPANION.values()}
    assert set(CANONICAL) >= {*LOWER_IS_BETTER, *UNBOUNDED, *companions}
    for metric, other in COMPANION.items():
        assert any({metric, other} <= set(names) for names in TASK_METRICS.values())


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
