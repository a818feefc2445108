"""Choosing data by real selection briefings: what fits is taken, what does not is declined, in any language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.agents.briefing import build_selection_briefing
from m3b.agents.checks.selection import check_selection
from m3b.data.cards import parse_card
from m3b.facts import Answer, DatasetOption, Rejection, SelectionBrief, SurveySummary, TaskProposal
from m3b.llm import LLMRequest
from m3b.llm.rules import RulesLLM
from m3b.llm.rules.selection import _matches_request, is_beyond_images
from m3b.messages import Message, ToolCall
from m3b.request_words import extract_words, find_anatomy, find_modality
from m3b.tasks import find_requested_task
from m3b.workspace import Workspace

SHIPPED = list(Workspace.default().cards.values())


@pytest.fixture
def chest(make_room: Callable[..., Any]) -> Any:
    """A folder with a note on chest radiographs, beside two other data sets."""
    room = make_room("chest-films")
    room.images("NORMAL/{}.png", 3)
    room.images("PNEUMONIA/{}.png", 3)
    room.write("README.md", "Frontal chest radiographs of children, with and without pneumonia.")
    for name, about in (("knees", "MRI volumes of knees with torn menisci."), ("moles", "Dermoscopy of skin lesions.")):
        folder = room.top / "raw" / name
        folder.mkdir()
        raw = {"name": name, "description": about, "path": str(folder)}
        room.others.append(parse_card(raw, base=room.top, own=True))
    return room


@pytest.mark.parametrize(
    ("request_text", "card"),
    [
        ("Build a model that detects pneumonia on chest X-rays", "chest-films"),
        ("Erstelle ein Modell, das eine Lungenentzündung auf Röntgenbildern des Thorax erkennt", "chest-films"),
        ("Construire un modèle qui détecte la pneumonie sur des radiographies thoraciques", "chest-films"),
        ("Construye un modelo que detecte neumonía en radiografías de tórax", "chest-films"),
        ("建立一个在胸部X光片上检测肺炎的模型", "chest-films"),
        ("Does this knee have a meniscus tear?", "knees"),
        ("Finde Meniskusrisse in MRT-Aufnahmen des Kniegelenks", "knees"),
        ("Reconnaître les lésions du ménisque du genou à l'IRM", "knees"),
        ("Melanom der Haut erkennen", "moles"),
        ("classify melanoma against other skin lesions", "moles"),
        ("Predict the stock market", None),
        ("Übersetze diesen Text", None),
        ("Detect brain tumours on MRI", None),
        ("Detect tumours of the prostate", None),
        ("Detect pneumonia on chest CT", None),
        ("Segment the lungs on chest X-rays", None),
        ("Segmentiere die Lunge auf Röntgenbildern", None),
        ("Segmenter les poumons", None),
        ("Segmentación de los pulmones en radiografías", None),
        ("请在胸片上分割肺", None),
        ("Write a radiology report for each chest X-ray", None),
        ("Rédige un compte-rendu pour chaque radiographie thoracique", None),
        ("为每张胸片生成报告", None),
        ("Draw bounding boxes around pneumonia on chest X-rays", None),
    ],
)
def test_what_fits_is_chosen(chest: Any, request_text: str, card: str | None) -> None:
    answer = chest.select(request_text, shipped=[c for c in SHIPPED if not c.path])
    assert answer["data_card"] == card
    assert answer["reason"]
    cards = {c.name: c for c in (chest.card(), *chest.others, *SHIPPED)}
    assert check_selection(json.dumps(answer), cards).is_accepted == (card is not None)


def test_labels_that_come_from_reports_are_no_report_task() -> None:
    assert find_requested_task("Classify chest X-rays; the labels were taken from reports") == ""
    assert find_requested_task("Find out whether the mask of the ventilator is worn") == ""


def test_the_only_folder_that_the_user_named_needs_no_words(make_room: Callable[..., Any]) -> None:
    room = make_room("xq")
    room.images("a/{}.png", 3)
    room.images("b/{}.png", 3)
    for request in ("Classify these images", "Detect cells", "Sort them"):
        assert room.select(request)["data_card"] == "xq"


@pytest.mark.parametrize(
    "request_text",
    [
        "Detect pneumonia on chest X-rays",
        "Find tumours on brain CT",
        "Find atrial fibrillation in twelve-lead ECG recordings",
        "Predict whether knee cartilage is lost within five years",
    ],
)
def test_the_only_folder_that_the_user_named_is_declined_for_a_contradiction(
    make_room: Callable[..., Any], request_text: str
) -> None:
    room = make_room("xq")
    room.images("a/{}.png", 3)
    room.images("b/{}.png", 3)
    room.write("README.md", "MRI of knees.")
    assert room.select(request_text)["data_card"] is None


@pytest.mark.parametrize("task", ["detection", "diagnosis"])
def test_the_reading_that_look_shows_decides_the_task(make_room: Callable[..., Any], task: str) -> None:
    from m3b.agents.briefing import build_task_options

    request = "Detect cells"
    proposal = TaskProposal(
        task=task, title="p{number}.png", score=0.8, target="boxes" if task == "detection" else "labels"
    )
    card = DatasetOption(name="few", named=True, read=SurveySummary(chosen=proposal))
    brief = SelectionBrief(request=request, cards=(card,), tasks=build_task_options(request))
    reply = json.loads(RulesLLM().ask(LLMRequest([Message("user", "", facts=(brief.to_json(),))])).text)
    assert (reply["data_card"], reply["task"]) == ("few", task)
    assert reply["metric"] == {"detection": "map_50", "diagnosis": "auroc"}[task]


@pytest.mark.parametrize(("readable", "card"), [((True, False), "first"), ((True, True), None), ((False, False), None)])
def test_of_several_folders_without_words_the_only_readable_one_is_taken(
    readable: tuple[bool, bool], card: str | None
) -> None:
    from m3b.agents.briefing import build_task_options

    request = "Detect cells"
    cards = tuple(
        DatasetOption(
            name=name,
            named=True,
            read=SurveySummary(
                chosen=TaskProposal(
                    task="detection",
                    title="p.png",
                    score=0.8,
                    target="boxes",
                    decision="proposed" if clear else "refuse",
                    insufficient="" if clear else "which",
                )
            ),
        )
        for name, clear in zip(("first", "second"), readable, strict=True)
    )
    brief = SelectionBrief(request=request, cards=cards, tasks=build_task_options(request))
    reply = json.loads(RulesLLM().ask(LLMRequest([Message("user", "", facts=(brief.to_json(),))])).text)
    assert reply["data_card"] == card


@pytest.mark.parametrize(
    "request_text",
    [
        "What is the weather in Paris?",
        "Who is this person in the row?",
        "How tall is the Eiffel tower?",
        "Wie ist das Wetter in Berlin?",
        "Quel est le nom de la capitale ?",
    ],
)
def test_words_that_say_nothing_are_nothing_in_common(make_room: Callable[..., Any], request_text: str) -> None:
    """Of a folder that nobody named for the request."""
    room = make_room("xq")
    room.images("a/{}.png", 3)
    room.write(
        "README.md", "What is in here: a row a picture, in the column, das Bild est un. The person is anonymous."
    )
    brief = build_selection_briefing(request_text, [replace(room.card(), own=False)], room.look)
    reply = json.loads(RulesLLM().ask(LLMRequest([Message("user", "", facts=(brief.facts.to_json(),))])).text)
    assert reply["data_card"] is None


def test_short_requests_serve(chest: Any) -> None:
    for text in ("pneumonia vs normal", "pneumonia?", "meniscus tear", "melanoma or not"):
        assert chest.select(text)["data_card"], text


def test_a_card_of_another_task_is_not_taken(make_room: Callable[..., Any]) -> None:
    room = make_room("films")
    raw = {
        "name": "boxes",
        "description": "Chest radiographs with pneumonia.",
        "path": str(room.raw),
        "task": "detection",
    }
    room.others.append(parse_card(raw, base=room.top, own=True))
    room.write("README.md", "Knee films.")
    assert room.select("Detect pneumonia on chest X-rays")["data_card"] is None


def test_the_rules_do_not_argue(chest: Any) -> None:
    brief = build_selection_briefing("x", [chest.card()], chest.look)
    messages = [
        Message("user", brief.text, facts=(brief.facts.to_json(),)),
        Message("assistant", "{}"),
        Message("user", "", facts=(Rejection(faults=("x",)).to_json(),)),
    ]
    assert json.loads(RulesLLM().ask(LLMRequest(messages)).text)["data_card"] is None


@pytest.mark.parametrize(
    ("request_text", "answer", "card", "reason"),
    [
        ("Detect brain tumours on MRI", "use chest-films.", "chest-films", "named"),
        ("Detect brain tumours on MRI", "the chest films, please", "chest-films", "named"),
        ("Detect brain tumours on MRI", "the blue one", None, "find no data set in the answer 'the blue one'"),
        ("Segment the lungs", "use chest-films.", None, "chest-films does not show what a segmentation model needs"),
    ],
)
def test_a_data_set_that_the_user_names_is_taken(
    chest: Any, request_text: str, answer: str, card: str | None, reason: str
) -> None:
    brief = build_selection_briefing(request_text, [chest.card(), *chest.others], chest.look)
    messages = [
        Message("user", "", facts=(brief.facts.to_json(),)),
        Message("assistant", '{"data_card": null}'),
        Message("user", "", facts=(Answer(text=answer).to_json(),)),
    ]
    reply = json.loads(RulesLLM().ask(LLMRequest(messages)).text)
    assert reply["data_card"] == card
    assert reason in reply["reason"]


# --- any text ----------------------------------------------------------------------------------------------------

STAGES = st.sampled_from(["selection", "index", "module", "model", "other", ""])
PIECE = st.one_of(
    st.text(max_size=30),
    st.sampled_from([
        "Request of the user:\n", "## Data on this machine\n", "# x (diagnosis; data at data/x)\n", "## Data card\n",
        "## Preview of data/x\n", "data/x/t.csv: 1 KiB, table, comma-separated, utf-8, 10 rows x 2 columns\n",
        "  columns, of all rows:\n", "    image: text, 10 distinct\n", "    label: text, 2 distinct: a x 5, b x 5\n",
        "  first rows:\n", "    a.png,a\n", "data/x/t.json: 1 KiB, JSON: list of 10 items\n", "    each item: object\n",
        "      image: text: 10 distinct, such as 'a.png'\n", "folders (files below):\n", "  a/ 3\n", "    b/ 3\n",
        "  train/ 3 in 2 folders\n", "data/x/a.npz: 1 KiB, NPZ archive\n", "  train_images: 3\n  train_labels: 3\n",
        "0 normal, 1 sick.", "\n\n", "exit code 1", "job 3 still running", "The check does not accept", "\x00", "(((",
    ]),
)  # fmt: skip
TEXT = st.lists(PIECE, max_size=14).map("".join)
TURN = st.one_of(
    TEXT.map(lambda text: Message("user", text)),
    TEXT.map(lambda text: Message("assistant", text)),
    st.builds(
        lambda name, command: Message("assistant", "", (ToolCall("1", name, {"command": command}),)),
        st.sampled_from(["run_script", "copy_files"]), TEXT,
    ),
    st.builds(lambda text, bad: Message("tool", text, call_id="1", is_error=bad), TEXT, st.booleans()),
)  # fmt: skip


@given(STAGES, TEXT, st.lists(TURN, max_size=4))
def test_no_text_makes_them_raise(stage: str, text: str, turns: list[Message]) -> None:
    messages = [Message("system", "m3b"), Message("user", f"Stage: {stage}\n\n{text}"), *turns]
    reply = RulesLLM().ask(LLMRequest(messages))
    assert reply.text or reply.calls
    assert reply.stop == ("tools" if reply.calls else "end")
    again = RulesLLM().ask(LLMRequest(messages))
    assert (again.text, again.calls) == (reply.text, reply.calls)


@given(st.text())
def test_words_of_any_text(text: str) -> None:
    assert find_anatomy(text) <= {
        "chest",
        "brain",
        "knee",
        "breast",
        "eye",
        "skin",
        "abdomen",
        "heart",
        "spine",
        "prostate",
        "bone",
    }
    assert all(extract_words(text))
    find_modality(text)
    find_requested_task(text)


def test_an_empty_conversation() -> None:
    assert RulesLLM().ask(LLMRequest([])).text
    assert RulesLLM().ask(LLMRequest([Message("user", "hello")])).stop == "end"


def test_they_know_no_data_set_by_name() -> None:
    """Nothing in the rules may single out a data set: no name of a shipped card stands in their source."""
    source = ""
    for file in (Path(__file__).resolve().parents[2] / "src" / "m3b" / "llm" / "rules").glob("*.py"):
        source += file.read_text(encoding="utf-8")
    source_letters = re.sub(r"[^a-z0-9]", "", source.lower())
    names = [re.sub(r"[^a-z0-9]", "", card.name.lower()) for card in SHIPPED]
    assert [name for name in names if name in source_letters] == []


@pytest.mark.parametrize(
    "request_",
    [
        "Predict from a video of a patient's walk whether a knee replacement will be needed within five years.",
        "Build a model that finds atrial fibrillation in twelve-lead ECG recordings.",
        "From chest X-rays, predict how many months a patient with lung cancer will live.",
        "Sage das Überleben aus CT-Bildern der Lunge voraus",
    ],
)
def test_other_signals_and_the_future_are_beyond_images_with_labels(request_: str) -> None:
    assert is_beyond_images(request_, "Chest X-rays with findings of each image; CT of lung and kidney.")
    assert not is_beyond_images("Detect pneumonia on chest X-rays", "Chest X-rays")


@pytest.mark.parametrize(("columns", "is_match"), [(("os_months", "os_status"), True), (("size", "finding"), False)])
def test_survival_is_read_where_columns_tell_of_it(columns: tuple[str, str], is_match: bool) -> None:
    from m3b.agents.briefing import build_task_options
    from m3b.facts import ColumnSummary, TableSummary

    request = "Predict overall survival from chest CT"
    summaries = [ColumnSummary(name=name, type="number", distinct=60) for name in columns]
    card = DatasetOption(name="lungs", files=(TableSummary(columns=tuple(summaries)),))
    brief = SelectionBrief(request=request, cards=(card,), tasks=build_task_options(request))
    assert _matches_request(brief, card) is is_match


def test_a_card_that_speaks_of_survival_may_be_asked_for_it() -> None:
    assert not is_beyond_images("Predict survival from brain MRI", "BraTS: MRI with survival in days")
