"""Links inside raw data: within the given folders they are followed, else refused, and the user hears what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.agents.artifacts import Selection
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.index import check_index
from m3b.data.cards import Card
from m3b.data.index import read_index
from m3b.data.links import leading_out
from m3b.data.records import Record
from m3b.dataset.view import make_view, needed_files_of
from m3b.errors import DataError, DataRejected, ModelError
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.models import stage_cases
from m3b.run.precheck import check_data_folders
from m3b.tools import TOOLS, Roots, Toolbox

CHOICE = Selection("x", "diagnosis", "auroc", "train", ("a", "b"))


class Place:
    """A data folder as git-annex lays it out: names that link to a store of contents, here beside the folder."""

    def __init__(self, top: Path, linked: int, cases: int = 24) -> None:
        self.raw, self.store, self.locked = top / "raw", top / "store", top / "locked"
        for folder in (self.raw, self.store, self.locked / "data", self.locked / "Datapath"):
            folder.mkdir(parents=True)
        random, rows = np.random.default_rng(3), {"train": [], "test": []}
        for number in range(cases):
            inner = self.store / f"{number:04x}.png"
            Image.fromarray(random.integers(0, 256, (20, 20), dtype=np.uint8)).save(inner)
            name = self.raw / f"{number}.png"
            name.symlink_to(f"../store/{inner.name}") if number < linked else inner.rename(name)
            row = {"image_path": f"data/x/{number}.png", "labels": ["ab"[number % 2]], "patient": f"p{number}"}
            rows["test" if number % 4 < 2 and number < cases // 2 else "train"].append(row)
        for split, of_split in rows.items():
            (self.locked / f"Datapath/{split}.json").write_text(json.dumps(of_split))
        (self.locked / "Datapath/label_dict.json").write_text('{"a": 0, "b": 1}')
        (self.locked / "data/x").symlink_to(self.raw)

    def give_store(self) -> None:
        (self.locked / "data/store").symlink_to(self.store)

    def check(self) -> CheckResult:
        return check_index(self.locked, CHOICE)

    def view(self) -> Path:
        view = self.locked.parent / "view"
        records = read_index(self.locked, "diagnosis").train
        make_view(needed_files_of(records, self.locked), self.locked, lambda path: view / path, link=False)
        return view

    def stage(self, *images: str) -> Path:
        return stage_cases(images, self.locked.parent / "staged", True, base=self.locked).folder

    def preview(self, *paths: str, with_store: bool = False) -> str:
        data_folders = {"data/x": self.raw, **({"data/store": self.store} if with_store else {})}
        with Toolbox(Roots(self.locked, data_folders), sandbox=choose_sandbox("off")) as box:
            file_preview = box.call(ToolCall("1", "preview_files", {"paths": list(paths)}), tuple(TOOLS)).text
            return file_preview + "\n" + box.call(ToolCall("1", "preview_dirs", {"path": "data/x"}), tuple(TOOLS)).text


def test_links_out_are_refused_and_the_user_hears_where_they_lead(tmp_path: Path) -> None:
    place = Place(tmp_path, linked=3)
    verdict = place.check()
    assert not verdict.is_accepted
    assert verdict.end_error is None, "the other cases can be used"
    (fault,) = verdict.agent_messages
    assert "3 files of 3 of 24 cases are links that lead out of the data, such as data/x/2.png" in fault
    assert "Leave these cases out" in fault
    assert "store" not in fault, "where they lead is no agent's affair"
    (user_message,) = verdict.user_messages
    assert str(place.store) in user_message
    assert "one more --data" in user_message
    with pytest.raises(DataError, match=r"data/x/\d+\.png is a link that leads out of the data"):
        place.view()
    with pytest.raises(ModelError, match="one more --data"):
        place.stage("data/x/0.png")
    preview = place.preview("data/x/0.png")
    assert "leads outside" in preview
    assert "one more --data" in preview
    assert "data/x: 21 files" in preview


def test_data_of_nothing_but_links_out_ends_the_run(tmp_path: Path) -> None:
    place = Place(tmp_path, linked=24)
    assert place.check().end_error is DataRejected
    with pytest.raises(DataRejected, match=r"links that lead out of it.*one more --data"):
        check_data_folders([Card("x", "", path=place.raw)])


def test_a_store_that_is_given_as_data_too_is_followed(tmp_path: Path) -> None:
    place = Place(tmp_path, linked=24)
    place.give_store()
    verdict = place.check()
    assert verdict.is_accepted, verdict.agent_messages
    check_data_folders([Card("x", "", path=place.raw), Card("store", "", path=place.store)])
    assert len(list((place.view() / "data/x").iterdir())) == 18
    assert len(list(place.stage("data/x/0.png", "data/x/1.png").iterdir())) == 2
    preview = place.preview("data/x/0.png", with_store=True)
    assert "width 20 x height 20" in preview
    assert "data/x: 24 files" in preview
    assert "counted as files: 24" in preview


def test_a_folder_that_holds_both_needs_nothing_more(tmp_path: Path) -> None:
    place = Place(tmp_path / "repository", linked=24)
    (place.locked / "data/x").unlink()
    (place.locked / "data/x").symlink_to(tmp_path / "repository")
    for split in ("train", "test"):
        file = place.locked / f"Datapath/{split}.json"
        file.write_text(file.read_text().replace("data/x/", "data/x/raw/"))
    assert place.check().is_accepted
    check_data_folders([Card("x", "", path=tmp_path / "repository")])


def test_content_that_was_never_fetched_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, linked=24)
    for file in place.store.iterdir():
        file.unlink()
    with pytest.raises(DataRejected, match=r"not there.*datalad get"):
        check_data_folders([Card("x", "", path=place.raw)])


def test_members_of_folders_and_names_with_a_mark_count_too(tmp_path: Path) -> None:
    place = Place(tmp_path, linked=0)
    (place.raw / "volume").mkdir()
    for name in ("volume/1.png", "odd#1.png"):
        (place.raw / name).symlink_to("/etc/passwd")
    (place.raw / "folder").symlink_to("/etc")
    (place.raw / "archive.npz").symlink_to("/etc/hostname")
    for path, first in (
        ("data/x/volume", "data/x/volume/1.png"),
        ("data/x/odd#1.png", "data/x/odd#1.png"),
        ("data/x/folder/passwd", "data/x/folder/passwd"),
        ("data/x/archive.npz#key[3]", "data/x/archive.npz"),
    ):
        links = leading_out([Record(path, patient="p")], place.locked)
        assert links
        assert (links.files, links.cases, links.first) == (1, 1, first)
        with pytest.raises(ModelError, match="leads out of the data"):
            stage_cases([path], tmp_path / f"staged-{len(path)}", True, base=place.locked)
