"""What the pages say of the code, compared with the code: layers, roles, tools, numbers, statuses, kinds of event."""

from __future__ import annotations

import re
import sys

import pytest
from docs_kit import ROOT

from m3b.agents.roles import BUILTIN_ROLES
from m3b.data.kinds import names
from m3b.dataset.audit import audit_index
from m3b.dataset.audit.patients import FEW_PATIENTS, MIN_CASES, MIN_PATIENTS
from m3b.dataset.similarity import THUMBNAIL_SIDE, VOLUME_GRID
from m3b.events import EVENT_KINDS, UNJOURNALED_KINDS, ArtifactChecked, ReplyReceived
from m3b.run.options import Options
from m3b.run.result import FINAL_STATUSES, STATUSES
from m3b.tools import TOOLS

sys.path.insert(0, str(ROOT / "tests"))

TASKS = names()
WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}


def page(name: str) -> str:
    """A page as one line, so that a sentence may be wrapped anywhere."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_picture_of_the_layers_is_that_of_the_code() -> None:
    """`python docs/refresh.py` draws it anew."""
    sys.path.insert(0, str(ROOT / "docs"))
    import picture

    svg = (ROOT / "docs/architecture.svg").read_text(encoding="utf-8")
    assert svg == picture.draw()
    parts = {place.stem for place in (ROOT / "src/m3b").iterdir() if place.is_dir() or place.suffix == ".py"}
    assert {name for row in picture.layers() for name in row} == parts - {"__init__", "__main__", "__pycache__"}
    assert all(f">{name}</text>" in svg for row in picture.layers() for name in row)


def test_what_the_architecture_page_names_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text[text.index("## Where to add what") : text.index("## What the figures")]
    for place in re.findall(r"`(m3b/[\w/.]+|resources/[\w/.]+)`", text):
        assert (ROOT / ("src" if place.startswith("m3b") else "") / place).exists(), place
    for thing in ("task family", "metric", "provider", "tool", "check", "stage", "way to find targets"):
        assert re.search(rf"^\| an? {thing}\b", table, re.MULTILINE), thing


def test_the_stages_are_those_of_the_code() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    artifacts = ("Selection", "DataIndex", "TrainingModule", "TrainedModel")
    for role, artifact in zip(BUILTIN_ROLES, artifacts, strict=True):
        assert re.search(rf"-> {role.title} +-> {artifact} ", text), role.title
        assert f"| {artifact} |" in text


def test_the_tools_are_those_of_the_code() -> None:
    section = re.search(r"## The tools (.+?) A tool is", page("docs/architecture.md"))
    assert section
    assert re.findall(r"`(\w+)`", section.group(1)) == [*TOOLS, "view_image"]


@pytest.mark.parametrize(
    ("page_name", "sentence", "value"),
    [
        ("docs/architecture.md", r"(\d+) actions \(tool calls\) for the run by default", Options().max_actions),
        ("docs/architecture.md", r"comes back with what went wrong; (\w+) a role", Options().max_iterations),
        ("docs/architecture.md", r"goes on with those words, at most (\w+) times", Options().max_iterations),
        ("docs/architecture.md", r"builds models of (\w+) kinds: diagnosis", len(TASKS)),
        ("README.md", r"It builds models of (\w+) kinds", len(TASKS)),
        ("docs/data.md", r"too few cases \(diagnosis and reports (\d+);", MIN_CASES),
        ("docs/data.md", r"masks and boxes (\d+) patients\)", MIN_PATIENTS),
        ("docs/data.md", r"fewer than (\d+) patients; values", FEW_PATIENTS),
        (
            "docs/data.md",
            r"opens images for at most (\w+) minutes",
            (audit_index.__kwdefaults__ or {})["max_seconds"] / 60,
        ),
        ("docs/data.md", r"small versions of the images \((\d+) x \d+ and", THUMBNAIL_SIDE),
        ("docs/data.md", r"of volumes (\d+) x \d+ x \d+\) minus", VOLUME_GRID[0]),
    ],
)
def test_numbers_are_those_of_the_code(page_name: str, sentence: str, value: float) -> None:
    match = re.search(sentence, page(page_name))
    assert match, f"{page_name} does not say so any more: fix the sentence or the test"
    assert WORDS.get(match.group(1), match.group(1)) in (value, str(value))


def test_the_kinds_of_task_are_named_as_in_the_code() -> None:
    kinds = re.search(
        r"builds models of \w+ kinds: (.+?), which are the paper's, (.+?)\.", page("docs/architecture.md")
    )
    assert kinds
    assert set(re.findall(r"\w+", f"{kinds[1]} {kinds[2]}")) - {"and"} == set(TASKS)


def test_what_a_resumed_run_does_is_what_the_code_does() -> None:
    match = re.search(
        r"A run that ended as (.+?) is returned unchanged; one that ended as (.+?) goes on", page("docs/python.md")
    )
    assert match
    given_back, goes_on = (re.findall(r"`(\w+)`", part) for part in match.groups())
    assert tuple(given_back) == FINAL_STATUSES
    assert set(goes_on) == set(STATUSES) - set(FINAL_STATUSES)


def test_what_the_journal_leaves_out_is_what_the_code_leaves_out() -> None:
    match = re.search(r"only what shows progress \((.+?)\) is not kept", page("docs/architecture.md"))
    assert match
    assert set(re.findall(r"`(\w+)`", match.group(1))) == set(UNJOURNALED_KINDS) <= set(EVENT_KINDS)
    lines = (ROOT / "docs/python.md").read_text(encoding="utf-8").splitlines()
    unkept = [
        re.findall(r"`(\w+)`", line)[0] for line in lines if line.startswith("|") and "not in the journal" in line
    ]
    assert sorted(unkept) == sorted(UNJOURNALED_KINDS)


def test_the_fields_of_an_event_are_those_that_are_emitted() -> None:
    rows = re.findall(r"^\| (`.+?`) \| (.+) \|$", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.MULTILINE)
    table = {kinds.strip("`"): description for kinds, description in rows}
    for event in (ArtifactChecked(True), ReplyReceived("")):
        for name in event.data:
            assert f"`{name}`" in table[event.kind], f"{event.kind}: {name}"


def test_prompts_promise_no_check_that_is_none() -> None:
    """The probe of a project runs batches and a few steps; predictions are checked at the next hand-over."""
    text = (ROOT / "resources/prompts/module_architect.md").read_text(encoding="utf-8")
    assert "end to end" not in text
    assert (ROOT / "src/m3b/agents/checks/probe.py").is_file()
