"""Where the candidates of a search come from, and the commands that make their plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3b import TrainingOverrides
from m3b.errors import ModelError, SettingError, UsageError
from m3b.run.plan_candidates import (
    MAX_SINGLE_CHANGES,
    PROPOSALS_FILE,
    Candidate,
    CandidateSource,
    check_search_possible,
    find_proposal_problem,
)
from m3b.run.plan_search import read_plan
from m3b.run.training_overrides import list_setting_names
from m3b.training.plan_table import PLAN_TABLES
from m3b.training.search_space import SEARCH_SPACES, list_dimensions

pytest.importorskip("optuna")
PLAN: dict[str, Any] = {
    "task": "diagnosis",
    "dims": 2,
    "size": [64, 64],
    "network": {"name": "small_cnn", "width": 16, "dropout": 0.4},
    "lr": 0.001,
    "weight_decay": 0.1,
    "label_smoothing": 0.05,
    "folds": 1,
    "cross_validation": False,
    "augment": {"rotate": 10, "zoom": 0.1, "flip": [], "erase": 0.0},
}


def make_source(**overrides: Any) -> CandidateSource:
    return CandidateSource("diagnosis", PLAN, TrainingOverrides(**overrides))


def draw(source: CandidateSource, count: int) -> list[Candidate]:
    """The first candidates; the figure of each is its place."""
    candidates: list[Candidate] = []
    while len(candidates) < count and (candidate := source.suggest(candidates, lower_is_better=False)):
        candidates.append(candidate)
        candidate.figures = [float(candidate.number)]
    return candidates


def test_the_plan_comes_first_then_single_changes_then_combinations() -> None:
    candidates = draw(make_source(), 12)
    assert [candidate.number for candidate in candidates] == list(range(1, 13))
    assert [candidate.source for candidate in candidates] == [
        "default", *["table"] * MAX_SINGLE_CHANGES, *["sampler"] * (11 - MAX_SINGLE_CHANGES)
    ]  # fmt: skip
    assert [candidate.settings for candidate in candidates[:4]] == [
        {}, {"lr": 0.003}, {"network.width": 32}, {"augment.rotate": 5.0, "augment.zoom": 0.05}
    ]  # fmt: skip
    texts = [json.dumps(candidate.settings, sort_keys=True) for candidate in candidates]
    assert len(set(texts)) == len(texts)
    again = draw(make_source(), 12)
    assert [candidate.settings for candidate in again] == [candidate.settings for candidate in candidates]


def test_what_the_user_fixed_is_not_varied() -> None:
    source = make_source(network="small_cnn", settings={"lr": 0.01, "augment.rotate": 5})
    assert not {"lr", "augment", "network.name"} & set(source.space)
    assert "network.width" in source.space
    with pytest.raises(SettingError) as raised:
        source.make_plan_command({"lr": 0.1}, PLAN, 5.0, 3)
    assert raised.value.code == "fixed_by_user"


def test_a_small_space_ends() -> None:
    plan = {"task": "diagnosis", "lr": 0.001}
    source = CandidateSource("diagnosis", plan, TrainingOverrides())
    assert [item.settings for item in draw(source, 9)] == [{}, {"lr": 0.003}, {"lr": 0.00033}]


def test_commands_change_the_plan_or_make_it_anew() -> None:
    source = make_source(device="cpu")
    assert source.make_plan_command({}, PLAN, 5.0, 3) == "python plan.py --keep --set folds=3 cross_validation=true"
    assert source.make_plan_command({"lr": 0.003}, PLAN, 5.0, 0) == "python plan.py --keep --set lr=0.003"
    anew = source.make_plan_command({"network.name": "resnet18", "lr": 0.003}, PLAN, 5.0, 3)
    assert anew == "python plan.py --minutes 5 --device cpu --set folds=3 network.name=resnet18 lr=0.003"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "JSON"),
        ("{}", "a list"),
        ('[{"lr": 1}]', "entry 1"),
        ('[{"settings": {"lr": 0.1}}, {"settings": {"learning": 1}}]', "entry 2"),
        ('[{"settings": {"lr": 100}}]', "entry 1"),
        ('[{"settings": {"network.name": "no-such-network"}}]', "entry 1"),
        ('[{"settings": {"task": "report"}}]', "entry 1"),
    ],
)
def test_proposals_that_cannot_be_meant_are_named(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / PROPOSALS_FILE).write_text(content)
    with pytest.raises(UsageError, match=words):
        make_source().read_proposals(tmp_path, PLAN, [])


def test_proposals_get_the_next_numbers(tmp_path: Path) -> None:
    source = make_source()
    assert source.read_proposals(tmp_path, PLAN, []) == []
    entries = [{"settings": {"lr": 0.003}}, {"settings": {"lr": 0.002}}, {"settings": {"network.name": "resnet18"}}]
    (tmp_path / PROPOSALS_FILE).write_text(json.dumps(entries))
    proposals = source.read_proposals(tmp_path, PLAN, draw(source, 3))
    assert [(item.number, item.settings) for item in proposals] == [
        (4, {"lr": 0.002}), (5, {"network.name": "resnet18"})
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"epochs": 3}, "epochs_and_hours"),
        ({"plan": {"task": "diagnosis", "network": {}}}, "plan_and_hours"),
    ],
)
def test_what_leaves_nothing_to_search(overrides: dict[str, Any], code: str) -> None:
    with pytest.raises(SettingError) as raised:
        check_search_possible(TrainingOverrides(**overrides))
    assert raised.value.code == code


@pytest.mark.parametrize("task", list(SEARCH_SPACES))
def test_the_table_names_settings_that_plans_have(task: str) -> None:
    names = list_setting_names()
    for dimension in SEARCH_SPACES[task]:
        assert dimension.key.split(".")[0] in names
        assert dimension.factors or dimension.values
    assert set(PLAN_TABLES) <= set(SEARCH_SPACES)


def test_dimensions_of_a_gpu_are_left_out_on_a_processor() -> None:
    assert "network.name" not in list_dimensions("diagnosis", PLAN, has_gpu=False)
    names = [item["network.name"] for item in list_dimensions("diagnosis", PLAN, has_gpu=True)["network.name"]]
    assert names == ["resnet18", "densenet121"]
    assert list_dimensions("diagnosis", PLAN, has_gpu=False)["size"] == [{"size": [96, 96]}, {"size": [48, 48]}]


@pytest.mark.parametrize(
    "settings",
    [
        {"network.pretrained": "/root"},
        {"network.pretrained": "~nobody/model"},
        {"network.pretrained": "runs/model"},
        {"network.name": "runs/model"},
        {"network": {"name": "resnet18", "pretrained": "/root"}},
        {"augment.rotate": [[1]]},
        {"augment.rotate": "\ud800"},
        {"lr": 10**400},
        {"network.pretrained": "x" * 5000},
        {"--set": 1},
    ],
)
def test_proposals_name_no_folders_and_hold_plain_values(tmp_path: Path, settings: dict[str, Any]) -> None:
    """m3b itself read what a proposed setting named, and one odd value ended the run."""
    (tmp_path / PROPOSALS_FILE).write_text(json.dumps([{"settings": settings}]))
    assert find_proposal_problem(settings)
    with pytest.raises(UsageError, match="entry 1"):
        make_source().read_proposals(tmp_path, PLAN, [])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "[1]",
        '{"lr": 1' + "0" * 400 + "}",
        '{"lr": NaN}',
        '{"a": "\\ud800"}',
        '{"a": ' * 40 + "1" + "}" * 40,
    ],
)
def test_plans_that_nothing_can_be_computed_with_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ModelError):
        read_plan(tmp_path)
