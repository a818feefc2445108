"""`m3b interactive trajectories`, `m3b trajectories` and `m3b teach` on the command line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_world import Brush, targets

from m3b.cli import main
from m3b.teaching.chats import read_chats

JOURNALS = Path(__file__).parents[1] / "run" / "journals"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with 6 pictures, 4 to train; the segmenter of a folder is a brush."""
    work = tmp_path / "work"
    (work / "Datapath").mkdir(parents=True)
    records = []
    for number, target in enumerate(targets(6, 2)):
        Image.fromarray(target.image).save(work / f"{number}.png")
        Image.fromarray(target.truth.astype(np.uint8)).save(work / f"{number}_mask.png")
        records.append({"image_path": f"{number}.png", "mask_path": f"{number}_mask.png", "patient": f"p{number}"})
    for name, part in (("train", records[:4]), ("test", records[4:])):
        (work / "Datapath" / f"{name}.json").write_text(json.dumps(part))
    (work / "Datapath" / "label_dict.json").write_text(json.dumps({"disk": 1}))
    monkeypatch.setattr("m3b.interactive.segmenters.loading.open_segmenter", lambda folder: Brush())
    return work


def m3b(*words: str) -> int:
    sys.argv = ["m3b", *words]
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_trajectories_of_an_index_come_from_its_training_cases(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ("interactive", "trajectories", str(index), str(out), "--segmenter", "any", "--side", "48", "--held-out", "0",
             "--tremor", "0.5", "--min-iou", "0.6")  # fmt: skip
    assert m3b(*words, "--limit", "2") == 0
    assert m3b(*words) == 0
    printed = capsys.readouterr()
    assert "8 of 8 trajectories kept (8 train, 0 validation)" in printed.out
    assert "going on: 4 trajectories were tried before" in printed.err
    assert {chat.facts["case"] for chat in read_chats(out)} == {f"{number}.png" for number in range(4)}
    assert m3b(*words, "--way", "points") == 2
    assert "begun with other settings" in capsys.readouterr().err


def test_a_wrong_way_and_a_folder_without_index_are_told(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (str(tmp_path / "out"), "--segmenter", "any")
    assert m3b("interactive", "trajectories", str(index), *arguments, "--way", "lines") == 2
    assert "ways are hybrid, points" in capsys.readouterr().err
    assert m3b("interactive", "trajectories", str(tmp_path / "none"), *arguments) == 2
    assert not (tmp_path / "out").exists()


def test_an_empty_target_leaves_nothing_to_teach(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        Image.fromarray(np.zeros((64, 64), np.uint8)).save(index / f"{number}_mask.png")
    assert m3b("interactive", "trajectories", str(index), str(tmp_path / "out"), "--segmenter", "any") != 0
    assert "No trajectory was kept: there is no target" in capsys.readouterr().err


def test_trajectories_of_a_role_come_from_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    shutil.copytree(JOURNALS, runs)
    assert m3b("trajectories", str(runs), str(out), "--role", "data_engineer") == 0
    printed = capsys.readouterr()
    assert "1 trajectories of the role data_engineer; mean reward 1.000; 1 accepted at once" in printed.out
    assert "ended as failed (1)" in printed.err
    assert m3b("trajectories", str(runs), str(out), "--role", "engineer") == 2
    assert "Roles: task_manager" in capsys.readouterr().err
    assert m3b("trajectories", str(tmp_path / "none"), str(out), "--role", "data_engineer") == 2


def test_teaching_wants_data_and_a_model(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert m3b("teach", "supervised", str(tmp_path / "none"), str(tmp_path), str(tmp_path / "out")) == 2
    assert "There are no trajectories" in capsys.readouterr().err
    arguments = (str(tmp_path / "none"), str(tmp_path / "out2"), "--segmenter", "any")
    assert m3b("teach", "reinforced", str(index), *arguments) == 2
    assert "no model folder" in capsys.readouterr().err
    assert m3b("teach", "reinforced", str(index), *arguments, "--rollouts", "1") == 2
    assert "cannot be compared" in capsys.readouterr().err
