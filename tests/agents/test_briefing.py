"""What each role is told when its stage begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.agents.artifacts import DataIndex, Selection, TrainingModule
from m3b.agents.briefing import (
    PreviewTool,
    build_index_briefing,
    build_model_briefing,
    build_module_briefing,
    build_selection_briefing,
)
from m3b.agents.proposal_text import describe_proposals, format_survey_lines
from m3b.data.cards import Card, card_for_folder
from m3b.facts import (
    ManifestProposal,
    ModuleBrief,
    PlanCandidate,
    SearchSummary,
    SelectionBrief,
    SurveySummary,
    TaskProposal,
)
from m3b.isolation.sandbox import choose_sandbox
from m3b.messages import ToolCall
from m3b.resources import get_resources_folder
from m3b.tools import Roots, Toolbox, ToolResult
from m3b.training.search_space import list_searched_keys

REQUEST = "  Tell pneumonia from normal.\nOn X-rays. "
CHOICE = Selection("Chest X-Ray", "diagnosis", "auroc", "Labels are in cases.csv.", ("normal", "pneumonia"))
DATA = DataIndex(("normal", "pneumonia"), False, {}, {}, {"train": 321, "test": 80}, {})
MODULE = TrainingModule((8, 1, 64, 64), 1_234_567, (0.7012, 0.0213))


@pytest.fixture
def card(tmp_path: Path) -> Card:
    folder = tmp_path / "secret_mount" / "chest"
    (folder / "images").mkdir(parents=True)
    for number in range(30):
        (folder / "images" / f"case_{number:03d}.png").write_bytes(b"x")
    rows = "\n".join(f"case_{number:03d}.png,p{number},{number % 2}" for number in range(30))
    (folder / "cases.csv").write_text(f"image,patient,finding\n{rows}\n")
    (folder / "many").mkdir()
    for number in range(9):
        (folder / "many" / f"{number}.npz").write_bytes(b"x")
    (folder / ".hidden.csv").write_text("a,b\n")
    return Card("Chest X-Ray", "Radiographs of adults.", folder, metric="auroc", patient_key="patient")


@pytest.fixture
def look(card: Card, tmp_path: Path) -> Iterator[PreviewTool]:
    work = tmp_path / "work"
    work.mkdir()
    assert card.path is not None
    with Toolbox(Roots(work, {f"data/{card.root}": card.path}), sandbox=choose_sandbox()) as box:

        def look(tool: str, arguments: Mapping[str, object]) -> ToolResult:
            return box.call(ToolCall("look", tool, dict(arguments)), (tool,))

        yield look


def briefings(card: Card, look: PreviewTool) -> dict[str, str]:
    resources = get_resources_folder()
    other_card = Card("KneeMRI", "Ligaments.", task="diagnosis", modality="MRI")
    return {
        "selection": build_selection_briefing(REQUEST, [card, other_card], look).text,
        "index": build_index_briefing(REQUEST, CHOICE, card, look).text,
        "module": build_module_briefing(CHOICE, DATA, "train: 321", 7.5, "2 CPU cores, no GPU", resources).text,
        "model": build_model_briefing(CHOICE, DATA, MODULE, 7.5).text,
    }


def test_the_first_line_names_the_stage(card: Card, look: PreviewTool) -> None:
    for stage, text in briefings(card, look).items():
        assert text.splitlines()[0] == f"Stage: {stage}"


def test_nothing_tells_where_on_the_machine_things_lie(card: Card, look: PreviewTool, tmp_path: Path) -> None:
    for text in briefings(card, look).values():
        assert "secret_mount" not in text
        assert str(tmp_path) not in text
        assert str(get_resources_folder()) not in text
        assert str(Path.home()) + "/" not in text


def test_selection(card: Card, look: PreviewTool) -> None:
    text = briefings(card, look)["selection"]
    assert "Request of the user:\nTell pneumonia from normal.\nOn X-rays.\n" in text
    assert "Radiographs of adults." in text
    assert "case_{000..029}.png" in text, "the preview of the folder"
    available_section, other_section = text.split("## Other data cards")
    assert "data at data/chest-x-ray" in available_section
    assert "KneeMRI" not in text, "a shipped card whose data is not here costs no line"
    assert "1 further data cards are listed in resources/datacards.md." in other_section


def test_a_card_of_the_users_own_is_named_though_its_data_is_not_here(card: Card, look: PreviewTool) -> None:
    away = Card(name="OldFilms", description="Films.", task="diagnosis", modality="X-ray", own=True)
    text = build_selection_briefing(
        REQUEST, [card, away, *(Card(name=f"s{n}", description="x") for n in range(3))], look
    ).text
    assert "- OldFilms (diagnosis, X-ray)\n3 further data cards are listed" in text


def test_what_was_read_stands_before_the_folder_and_as_data(card: Card, look: PreviewTool) -> None:
    proposals = [TaskProposal(task="diagnosis", title="cases of cases.csv", score=0.7),
             TaskProposal(task="diagnosis", title="worse", score=0.2),
             TaskProposal(task="detection", title="boxes", score=0.3, insufficient="weakly borne out")]  # fmt: skip
    read = SurveySummary(lines=("g1 images x 30: 2D picture",), readings=tuple(proposals))
    briefing = build_selection_briefing(REQUEST, [card], look, lambda data_card: read)
    start = briefing.text.index("m3b read in all files of data/chest-x-ray:")
    assert start < briefing.text.index("case_{000..029}.png")
    assert "- as diagnosis: cases of cases.csv\n" in briefing.text
    assert "- as detection: boxes; open: weakly borne out" in briefing.text
    assert "worse" not in briefing.text, "the best of each task"
    assert isinstance(briefing.facts, SelectionBrief)
    assert briefing.facts.cards[0].read == read


def test_a_long_title_leaves_the_open_question_whole(card: Card, look: PreviewTool) -> None:
    """Both shared the characters of a line, so that `open: Classes ...` was all of the question."""
    question = "Classes by {folder2} fits weakly (score 0.42). Take it as it is?"
    long_question = " ".join(f"word{number}" for number in range(90))
    for text, expected in ((question, question), (long_question, "more words)")):
        proposal = TaskProposal(task="grading", title="cases " * 90, score=0.4, insufficient=text)
        [line] = format_survey_lines(SurveySummary(readings=(proposal,)))
        title, _, caveat = line.partition("; open: ")
        assert caveat.endswith(expected)
        assert "more words)" in title
    shown, count = caveat.partition(" ... (")[0].split(), int(caveat.partition(" ... (")[2].split()[0])
    assert shown == long_question.split()[: len(shown)]
    assert len(shown) + count == 90


def test_the_trainer_is_told_what_may_be_set(card: Card, look: PreviewTool) -> None:
    text = build_model_briefing(CHOICE, DATA, MODULE, 7.5, resources=get_resources_folder()).text
    assert "## Settings of plan.json" in text
    assert "`class_weights`" in text
    assert "## Typical edits" not in text


def test_the_plan_is_the_data_engineers(card: Card, look: PreviewTool) -> None:
    text = build_module_briefing(
        CHOICE, DATA, "train: 321", 7.5, "2 CPU cores", get_resources_folder(), request=REQUEST
    ).text
    assert CHOICE.plan not in text
    assert "Request of the user: Tell pneumonia from normal. On X-rays." in text
    assert "## Typical edits" in text
    assert "## What it expects" not in text, "the index is written by then"


def test_the_architect_is_told_which_settings_a_search_compares() -> None:
    searched = list_searched_keys("diagnosis", ("network.width",))
    assert searched[:3] == ["lr", "augment", "size"]
    assert "network.name" not in searched, "it is compared on a GPU alone"
    briefing = build_module_briefing(CHOICE, DATA, "", 1, "", get_resources_folder(), searched=searched)
    assert isinstance(briefing.facts, ModuleBrief)
    assert briefing.facts.searched == tuple(searched)
    line = next(line for line in briefing.text.splitlines() if line.startswith("A search over plans follows"))
    assert re.findall("`(.*?)`", line) == searched
    assert "A search over plans" not in build_module_briefing(CHOICE, DATA, "", 1, "", get_resources_folder()).text


@pytest.mark.parametrize(("left", "has_guide"), [(0, False), (2, True)])
def test_the_settings_are_explained_after_a_search_if_candidates_may_be_proposed(left: int, has_guide: bool) -> None:
    search = SearchSummary(
        metric="auroc",
        candidates=(PlanCandidate(number=1, source="default", value=0.8),),
        value=0.8,
        proposals_left=left,
    )
    text = build_model_briefing(CHOICE, DATA, MODULE, 7.5, resources=get_resources_folder(), search=search).text
    assert ("## Settings of plan.json" in text) is has_guide


def test_selection_without_other_cards(card: Card, look: PreviewTool) -> None:
    assert "Other data cards" not in build_selection_briefing(REQUEST, [card], look).text


def test_index(card: Card, look: PreviewTool) -> None:
    text = briefings(card, look)["index"]
    assert "Plan: Labels are in cases.csv." in text
    assert '"train": ["train"]' in text, "the form of a manifest, where no proposal may be taken as it is"
    assert "Patient key: patient." in text
    assert "case_{000..029}.png" in text
    assert "data/chest-x-ray/cases.csv" in text
    assert "30" in text.split("cases.csv", 1)[1], "the table was opened"
    assert "## The form of a manifest" in text
    assert "data/chest-x-ray/.hidden.csv" not in text
    assert "data/chest-x-ray/many/" not in text, "nine archives are cases, not tables"


def test_index_of_a_folder_without_tables(tmp_path: Path, look: PreviewTool) -> None:
    folder = tmp_path / "Plain Folder"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "1.png").write_bytes(b"x")
    text = build_index_briefing(REQUEST, CHOICE, card_for_folder(folder), look).text
    assert "## Preview of data/plain-folder" in text


def test_module(card: Card, look: PreviewTool) -> None:
    text = briefings(card, look)["module"]
    assert "classes: normal, pneumonia." in text
    assert "Training time: 7.5 min on 2 CPU cores, no GPU." in text
    assert "## Template resources/templates/diagnosis" in text
    readme = (get_resources_folder() / "templates/diagnosis/README.md").read_text().strip()
    assert readme.split("## What it expects")[0] in text
    assert "## What each file does" + readme.split("## What each file does")[1] in text


def test_several_labels_are_said() -> None:
    data = DataIndex(("a", "b"), True, {}, {}, {"train": 1, "test": 1}, {})
    assert "a, b (several may apply)." in build_module_briefing(CHOICE, data, "", 1, "", get_resources_folder()).text


def test_model(card: Card, look: PreviewTool) -> None:
    text = briefings(card, look)["model"]
    assert "on one batch of 8 x 1 x 64 x 64" in text
    assert "from 0.701 to 0.021" in text
    assert "321 for training" in text
    assert "80" not in text, "the test split is nobody's business"


@pytest.mark.parametrize(
    ("plan", "is_folded"),
    [({}, False), ({"folds": 1}, False), ({"folds": 5}, True), ({"folds": 5, "cross_validation": False}, False)],
    ids=str,
)
def test_the_trainer_is_told_how_cases_are_held_out(plan: dict[str, Any], is_folded: bool) -> None:
    text = build_model_briefing(CHOICE, DATA, replace(MODULE, plan=plan), 7.5).text
    assert ("each of 5 networks" in text) is is_folded
    assert ("a validation part" in text) is not is_folded


def test_what_earlier_roles_said_is_passed_on_and_cut(card: Card) -> None:
    remarks = {"Data Engineer": "Half of it is in Hounsfield units.", "Module Architect": "so " * 500}
    text = build_model_briefing(CHOICE, DATA, MODULE, 7.5, remarks).text
    assert "The Data Engineer said: Half of it is in Hounsfield units." in text
    assert len(text) < 2000
    assert "so ..." in text
    assert "Data Engineer said" in build_module_briefing(CHOICE, DATA, "", 1, "", get_resources_folder(), remarks).text


def test_user_text_in_other_scripts_arrives_whole(card: Card, look: PreviewTool) -> None:
    request = "肺炎をX線で検出するモデル — für Kinder"
    assert request in build_selection_briefing(request, [card], look).text
    selection = Selection("x", "diagnosis", "auroc", "Plan: ä 肺", ("нет", "да"))
    assert "肺" in build_index_briefing(request, selection, card, look).text


def test_what_the_folder_says_of_itself_is_shown_beside_a_card_and_once(card: Card, look: PreviewTool) -> None:
    assert card.path is not None
    (card.path / "README.txt").write_text("Files named b_* were taken at night.\n")
    folder_card = card_for_folder(card.path)
    for data_card in (card, folder_card):
        for text in (
            build_selection_briefing(REQUEST, [data_card], look).text,
            build_index_briefing(REQUEST, CHOICE, data_card, look).text,
        ):
            assert text.count("Files named b_* were taken at night.") == 1


@pytest.mark.parametrize("sets", [1, 3])
def test_addresses_in_the_notes_of_a_folder_are_masked(
    card: Card, look: PreviewTool, tmp_path: Path, sets: int
) -> None:
    assert card.path is not None
    (card.path / "README.txt").write_text(
        "Files b_* are of the night shift; ask jane.doe@clinic.example, 555-867-5309.\n"
    )
    other_cards = [Card(f"Other {number}", "Empty.", tmp_path / "work") for number in range(sets - 1)]
    for data_card in (card, card_for_folder(card.path)):
        for text in (
            build_selection_briefing(REQUEST, [data_card, *other_cards], look).text,
            build_index_briefing(REQUEST, CHOICE, data_card, look).text,
        ):
            assert "jane.doe" not in text
            assert "867-5309" not in text


def test_the_task_manager_sees_an_image_and_its_mask(tmp_path: Path) -> None:
    folder = tmp_path / "organs"
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
        Image.fromarray(np.full((8, 9), 7, np.uint8)).save(folder / kind / "a_1.png")
    (tmp_path / "work").mkdir()
    card = card_for_folder(folder)
    with Toolbox(Roots(tmp_path / "work", {f"data/{card.root}": folder}), sandbox=choose_sandbox()) as box:
        look = lambda tool, arguments: box.call(ToolCall("look", tool, dict(arguments)), (tool,))  # noqa: E731
        text = build_selection_briefing(REQUEST, [card], look).text
    assert "data/organs/masks/a_1.png" in text
    assert "width 9 x height 8 px, 8-bit grey" in text


def test_proposals_are_described_without_repeats() -> None:
    manifest = {"task": "diagnosis", "exclude": [{"files": "b/*", "reason": "no part of this manifest: b"}]}
    first = ManifestProposal(file="1", score=0.9, evidence=("e1", "shared"), doubts=("d",), manifest=manifest)
    second = ManifestProposal(file="2", score=0.4, evidence=("shared", "e2"), doubts=("d", "d2"))
    text, question = describe_proposals([first, second], "Which one is meant?")
    assert [text.count(f'"{word}"') for word in ("e1", "shared", "e2", "d", "d2")] == [1] * 5
    assert "no part of this manifest" not in text, "what a manifest leaves out is in its file"
    assert "Which one is meant?" in question


def test_files_that_left_the_index_are_counted_beside_its_counts(card: Card, look: PreviewTool) -> None:
    data = replace(
        DATA, accounting={"files": 60, "left_out": [{"reason": "an exact copy of another image", "files": 7}]}
    )
    text = build_module_briefing(CHOICE, data, "train: 321", 1, "", get_resources_folder()).text
    assert "7 files (an exact copy of another image)" in text


def test_a_selection_of_reports_has_no_classes(card: Card, look: PreviewTool) -> None:
    for task, has_classes in (("report", False), ("diagnosis", True)):
        selection = Selection("Chest X-Ray", task, "auroc", "Labels are in cases.csv.")
        text = build_index_briefing(REQUEST, selection, card, look).text
        assert ("; classes: " in text.partition("\nPlan:")[0]) == has_classes
