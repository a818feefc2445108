"""Notes of a data folder that are links, pipes, devices or huge: nothing from outside the folder reaches a model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from attacks.test_hand_over_files import in_child
from m3b.data.cards import NOTE_LIMIT, NOTES, card_for_folder, load_cards, own_notes
from m3b.errors import DataError, UsageError
from m3b.run.overrides import parse_overrides

SECRET = "sk-CANARY-of-the-user"
READ_NOTES = """
import sys
from pathlib import Path
from m3b.data.cards import own_notes
print(repr(own_notes(Path(sys.argv[1]))))
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


@pytest.mark.parametrize("name", NOTES)
def test_a_note_that_is_a_link_is_not_read(tmp_path: Path, secret: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / name).symlink_to(secret)
    assert own_notes(data) == ""
    assert SECRET not in card_for_folder(data).description


def test_the_environment_is_no_note(tmp_path: Path) -> None:
    (tmp_path / "README.md").symlink_to("/proc/self/environ")
    (tmp_path / "README").symlink_to("README.md")
    assert own_notes(tmp_path) == ""


def test_a_link_does_not_hide_the_note_beside_it(tmp_path: Path, secret: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "SOURCE.md").symlink_to(secret)
    (data / "dataset_description.json").symlink_to(secret)
    (data / "README.md").write_text("Chest radiographs.")
    assert own_notes(data) == "From README.md:\nChest radiographs."


@pytest.mark.parametrize("kind", ["pipe", "zero", "random", "folder", "loop", "dangling"])
def test_a_note_that_is_no_file(tmp_path: Path, kind: str) -> None:
    note = tmp_path / "README.md"
    if kind == "pipe":
        os.mkfifo(note)
    elif kind == "folder":
        note.mkdir()
    else:
        targets = {"zero": "/dev/zero", "random": "/dev/urandom", "loop": note, "dangling": tmp_path / "absent"}
        note.symlink_to(targets[kind])
    assert in_child(READ_NOTES, tmp_path) == "''\n"


def test_of_a_huge_note_the_beginning_is_read(tmp_path: Path) -> None:
    with (tmp_path / "README.md").open("wb") as file:
        file.write(b"Bright spots. ")
        file.truncate(2**40)
    notes = own_notes(tmp_path)
    assert notes.startswith("From README.md:\nBright spots.")
    assert len(notes) < NOTE_LIMIT + 100


@pytest.mark.parametrize("place", ["{sub}/README.md", "{sub}/notes.txt", "spot/labels.csv", "labels.csv", "cases.json"])
def test_links_elsewhere_in_the_folder_are_not_shown(tmp_path: Path, secret: Path, place: str) -> None:
    from m3b.run.dataset_preview import preview_dataset

    data = tmp_path / "data"
    name = data / place.format(sub="plain")
    name.parent.mkdir(parents=True)
    name.symlink_to(secret)
    (data / "outside").symlink_to(tmp_path)
    (tmp_path / "place").mkdir()
    preview = preview_dataset(data, "Tell spots from plain tissue", tmp_path / "place")
    assert SECRET not in json.dumps(preview.to_json())
    assert SECRET not in own_notes(data)


def test_a_data_card_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({"name": SECRET, "description": SECRET}))
    (tmp_path / "card.json").symlink_to("own.json")
    with pytest.raises(DataError) as raised:
        load_cards(tmp_path / "card.json")
    assert SECRET not in str(raised.value)
    assert "link" in str(raised.value)


@pytest.mark.parametrize("kind", ["pipe", "zero", "deep"])
def test_files_that_a_user_names_are_bounded(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "named.json"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("[" * 100_000)
    readers: list[tuple[type[Exception], Any]] = [
        (DataError, lambda: load_cards(file)),
        (UsageError, lambda: parse_overrides(file, None)),
    ]
    for error, read in readers:
        with pytest.raises(error, match=str(file)):
            read()
