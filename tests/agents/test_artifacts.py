"""What one role hands to the next survives the journal; what a user's folders look like before anything starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.artifacts import (
    ARTIFACT_CLASSES,
    DataIndex,
    Selection,
    TrainedModel,
    TrainingModule,
    from_json,
    kind_of,
    to_json,
)
from m3b.agents.check_result import accept, reject
from m3b.data.cards import Card
from m3b.errors import DataRejected, NoDatasetFound
from m3b.run.precheck import check_data_folders

EXAMPLES: dict[str, Any] = {
    "selection": Selection("card", "diagnosis", "auroc", "plan", ("a", "b"), "reason"),
    "index": DataIndex(
        ("a", "b"), True, {"train": {"a": 1}, "test": {}}, {"train": 1}, {"train": 1}, {"x": "f00"}, ("note",)
    ),
    "module": TrainingModule((8, 3, 64, 64), 12, (0.7, 0.1), {"size": [64, 64]}),
    "model": TrainedModel("Deliver", {"value": 0.9, "interval": [0.8, 1.0]}, 7),
}


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(ARTIFACT_CLASSES)


@pytest.mark.parametrize("kind", ARTIFACT_CLASSES)
def test_an_artifact_comes_back_from_the_journal(kind: str) -> None:
    encoded = json.loads(json.dumps(to_json(EXAMPLES[kind])))
    assert from_json(ARTIFACT_CLASSES[kind], encoded) == EXAMPLES[kind]
    assert kind_of(ARTIFACT_CLASSES[kind]) == kind


def test_verdicts() -> None:
    assert accept("x", "note").is_accepted
    assert accept("x", "note").artifact == "x"
    assert not reject("fault").is_accepted
    assert reject("fault", "other").agent_messages == ("fault", "other")


# --- the site ----------------------------------------------------------------------------------------------------


def card(folder: Path | None, name: str = "Mine") -> Card:
    return Card(name, "x", folder)


def test_a_folder_with_a_file_deep_inside(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "1.png").touch()
    check_data_folders([card(tmp_path)])


def test_no_folder_at_all() -> None:
    with pytest.raises(NoDatasetFound, match="give --data a folder"):
        check_data_folders([card(None)])


def test_folders_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / ".DS_Store").touch()
    with pytest.raises(DataRejected, match="holds no files"):
        check_data_folders([card(tmp_path)])


def test_a_folder_that_went_away(tmp_path: Path) -> None:
    with pytest.raises(DataRejected, match="is not there; fix the `path`"):
        check_data_folders([card(tmp_path / "gone")])


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data.zip").touch()
    with pytest.raises(DataRejected, match="is not there"):
        check_data_folders([card(tmp_path / "data.zip")])


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir(mode=0)
    with pytest.raises(DataRejected, match="cannot be read"):
        check_data_folders([card(tmp_path / "x")])


def test_one_good_folder_is_enough(tmp_path: Path) -> None:
    (tmp_path / "1.png").touch()
    check_data_folders([card(tmp_path / "gone", "A"), card(tmp_path, "B")])
