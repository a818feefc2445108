"""Data cards from every kind of source, and what is said of those that cannot be used."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.data.cards import NOTE_LIMIT, Card, card_for_folder, gather, load_cards, parse_card, slug, tidy
from m3b.errors import DataError

SPELLINGS = [
    {"name": "Chest", "description": "About.", "path": "raw"},
    {"dataset name": "Chest", "dataset description": "About.", "dataset path": "raw"},
    {"dataset_name": "Chest", "dataset_description": "About.", "dataset_path": "raw"},
]


@pytest.mark.parametrize("raw", SPELLINGS)
def test_every_spelling_of_the_keys_is_read(raw: dict[str, Any], tmp_path: Path) -> None:
    card = parse_card(raw, base=tmp_path, own=True)
    assert (card.name, card.description, card.path, card.root) == ("Chest", "About.", tmp_path / "raw", "chest")


def test_a_path_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    card = parse_card({"name": "a", "description": "", "path": "~/scans"}, base=tmp_path, own=True)
    assert card.path == tmp_path / "home" / "scans"


def test_facts_reach_the_text_that_agents_read(tmp_path: Path) -> None:
    raw = {
        "name": "Knees", "description": "MR of knees.", "path": "k", "task": "diagnosis", "modality": "MRI",
        "anatomy": "knee", "dimension": 3, "metric": "auroc", "acceptable": [0.8, None], "patient_key": "exam",
        "classes": ["healthy", "torn"],
    }  # fmt: skip
    text = parse_card(raw, base=tmp_path, own=True).text()
    for part in (
        "Knees (diagnosis, MRI, knee, 3D; data at data/knees)",
        "acceptable from 0.8.",
        "exam",
        "healthy, torn",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("raw", "expected_text"),
    [
        ({"description": "x"}, "`name`"),
        ({"name": " ", "description": "x"}, "`name`"),
        ({"name": "a"}, "`description`"),
        ({"name": "a", "description": 3}, "`description`"),
        ({"name": "a", "description": "x", "path": 3}, "`path`"),
        ({"name": "a", "description": "x", "acceptable": "high"}, "`acceptable`"),
        ({"name": "a", "description": "x", "acceptable": []}, "`acceptable`"),
        ({"name": "a", "description": "x", "acceptable": [0.5, "1"]}, "`acceptable`"),
        ({"name": "a", "description": "x", "acceptable": [True]}, "`acceptable`"),
        ({"name": "a", "description": "x", "acceptable": [0.9, 0.5]}, "`acceptable`"),
        ({"name": "a", "description": "x", "acceptable": [float("nan"), 1]}, "`acceptable`"),
        ({"name": "a", "description": "x", "dimension": True}, "`dimension`"),
        ({"name": "a", "description": "x", "dimension": 5}, "`dimension`"),
        ({"name": "a", "description": "x", "classes": "a, b"}, "`classes`"),
        ({"name": "a", "description": "x", "classes": 2}, "`classes`"),
    ],
)
def test_a_fault_names_its_key(raw: dict[str, Any], expected_text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected_text):
        parse_card(raw, base=tmp_path, own=True)


def test_all_that_does_not_fit_is_named_at_once(tmp_path: Path) -> None:
    raw = {"name": " Knees ", "description": "x", "task": ["diagnosis"], "dataset_path": 3, "dimension": 5,
           "acceptable": [0.5, 0.9, 1]}  # fmt: skip
    with pytest.raises(DataError) as error:
        parse_card(raw, base=tmp_path, own=True)
    assert str(error.value) == (
        "The data card 'Knees' cannot be used: `path` must be text; found 3. `task` must be text; found ['diagnosis']. "
        "`dimension` must be 2 or 3; found 5. `acceptable` must be [lowest, highest or null]; found [0.5, 0.9, 1]."
    )


def test_null_is_nothing(tmp_path: Path) -> None:
    raw = {"name": "a", "description": "x", "path": None, "task": None, "dimension": None, "acceptable": None,
           "classes": None, "metric": None}  # fmt: skip
    assert parse_card(raw, base=tmp_path, own=True) == Card(name="a", description="x", own=True)


def test_one_bound_alone_will_do(tmp_path: Path) -> None:
    card = parse_card({"name": "a", "description": "x", "acceptable": 0.7, "dimension": "3D"}, base=tmp_path, own=True)
    assert (card.acceptable, card.dimension) == ((0.7, None), 3)


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [("patientkey", "patient_key"), ("Task", "task"), ("accaptable", "acceptable"), ("discription", "description"),
     ("labels", "classes"), ("Modality ", "modality"), ("dataset-path", "dataset_path")],
)  # fmt: skip
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(key: str, suggestion: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no key '{key}' .did you mean '{suggestion}'"):
        parse_card({"name": "a", "description": "x", key: "y"}, base=tmp_path, own=True)


def test_keys_for_people_are_passed_over(tmp_path: Path) -> None:
    raw = {"name": "a", "description": "x", "url": "u", "licence": "CC0", "_mine": 1}
    assert parse_card(raw, base=tmp_path, own=True).name == "a"
    with pytest.raises(DataError, match=r"no key 'zebra'\. Keys: name, description"):
        parse_card({**raw, "zebra": 1}, base=tmp_path, own=True)


@pytest.mark.parametrize(
    ("file", "expected_text"),
    [("card.toml", "JSON"), ("card.yaml", "JSON"), ("data.zip", "Unpack"), ("cases.csv", "folder that holds it")],
)
def test_a_file_that_is_no_card_says_what_to_give_instead(file: str, expected_text: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text('name = "a"\n')
    with pytest.raises(DataError, match=rf"{file} is a file\..*{expected_text}"):
        gather([tmp_path / file])


def test_a_folder_that_is_called_like_a_card_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "scans.json").mkdir()
    assert gather([tmp_path / "scans.json"])[0].path == tmp_path / "scans.json"


def test_a_card_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data card .*absent\.json.*m3b data card"):
        gather([tmp_path / "absent.json"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([
    "name", "description", "path", "dataset name", "dataset_path", "classes", "acceptable", "dimension", "task",
])  # fmt: skip


@given(st.dictionaries(KEYS, JSON))
def test_any_object_is_a_card_or_a_data_error(raw: dict[str, Any]) -> None:
    with contextlib.suppress(DataError):
        card = parse_card(raw, base=Path("/nowhere"), own=True)
        assert card.name
        assert card.line() in card.text()


@given(st.text())
def test_a_slug_is_a_safe_folder_name_and_stays_itself(name: str) -> None:
    folder_name = slug(name)
    assert 0 < len(folder_name) <= 48
    assert set(folder_name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not folder_name.startswith("-")
    assert not folder_name.endswith("-")
    assert slug(folder_name) == folder_name


def test_a_file_holds_one_card_or_several(tmp_path: Path) -> None:
    single_file, list_file = tmp_path / "one.json", tmp_path / "many.json"
    single_file.write_text(json.dumps({"name": "a", "description": "x", "path": "in"}), encoding="utf-8")
    list_file.write_text(json.dumps([{"name": n, "description": "x"} for n in "bc"]), encoding="utf-8-sig")
    cards = gather([str(single_file), list_file])
    assert [card.name for card in cards] == ["a", "b", "c"]
    assert cards[0].path == tmp_path / "in", "a relative path counts from the card's own folder"
    assert all(card.own for card in cards)


@pytest.mark.parametrize("content", ["{", "[1]", '"a"', "\xff\xfe", "[" * 100_000])
def test_a_broken_card_file_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=r"card\.json"):
        load_cards(file)


def test_a_missing_card_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.json"):
        gather([tmp_path / "absent.json"])


def test_a_folder_brings_its_notes(tmp_path: Path) -> None:
    folder = tmp_path / "Knee scans"
    folder.mkdir()
    assert "without a card" in card_for_folder(folder).description
    notes = "# Knees\n\n\n![logo](a.png)\n[terms](https://example.org/terms)\n<b>200</b> patients"
    (folder / "README.md").write_text(notes, encoding="utf-8")
    card = card_for_folder(folder)
    assert card.name == "Knee scans"
    assert card.own
    assert card.path == folder
    for part in ("From README.md", "terms", "200 patients"):
        assert part in card.description
    assert "example.org" not in card.description


def test_long_notes_are_cut(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("word " * 100_000, encoding="utf-8")
    assert len(card_for_folder(tmp_path).description) < NOTE_LIMIT + 100


@given(st.text())
def test_tidying_never_adds(text: str) -> None:
    assert len(tidy(text)) <= len(text)


def test_no_such_folder_and_two_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing-here"):
        gather([tmp_path / "nothing-here"])
    for place in ("one", "two"):
        (tmp_path / place / "chest").mkdir(parents=True)
    with pytest.raises(DataError, match="both called"):
        gather([tmp_path / "one" / "chest", tmp_path / "two" / "chest"])


def test_cards_and_mappings_are_taken_as_they_are(tmp_path: Path) -> None:
    card = Card("x", "about", tmp_path)
    cards = gather([card, {"name": "y", "description": "about"}])
    assert cards[0] is card
    assert (cards[1].name, cards[1].own, cards[1].path) == ("y", True, None)


def test_notes_are_shown_without_comments_and_link_targets() -> None:
    text = tidy("# Title\n<!--\nhidden [a](http://b)\n-->\nSee [the page](https://x.org/y) ![badge](b.png)\n\n\nEnd")
    assert text == "# Title\nSee the page \nEnd"


def test_placeholders_in_notes_are_no_tags() -> None:
    text = tidy(
        "<p align='center'><b>Names</b></p>\n`<patient>_<side>.png` in {train,test}/<grade>/, see <https://x.org/y>"
    )
    assert text == "Names\n`<patient>_<side>.png` in {train,test}/<grade>/, see"


@pytest.mark.parametrize("text", ["<!--", "![", "[", "[a](b", "![a](", "[]", "<", "\n "])
def test_notes_are_tidied_in_linear_time(text: str) -> None:
    began = time.process_time()
    tidy(text * (80_000 // len(text)))
    assert time.process_time() - began < 2, "less than a tenth of a second of this machine's; 80 kB took up to a minute"


def test_notes_without_comments_images_and_targets() -> None:
    note = "<!-- a -->One ![x](y.png) [two](https://x.org/a_(b)) <b>three</b> <!-- open [four](five"
    assert tidy(note) == "One  two) three <!-- open [four](five"
