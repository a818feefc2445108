"""What is seen of results, predictions, models and runs in a console and in a notebook."""

from __future__ import annotations

import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b.display import format_file_name, make_html_table, shorten
from m3b.events import PromptSent, ReplyReceived, RoleStarted, RunEnded, ToolCalled
from m3b.measure import Measure
from m3b.messages import Usage
from m3b.models import DetectedBox, Model, Prediction
from m3b.progress import NotebookProgress, is_in_notebook, make_progress_watcher
from m3b.run.result import Result

FIGURE = Measure("auroc", 0.8667, 0.625, 1.0, 16, 0.5)
PRIMARY = FIGURE.to_dict()
DONE = Result("completed", "auroc is good", "find <it>", "diagnosis", "ours", FIGURE, run_dir="r", model_dir="r/model")


def test_a_result_in_one_line() -> None:
    assert repr(DONE) == "<Result completed: auroc 0.867 (95 % CI 0.625-1.000, n = 16), model: r/model>"
    failed = Result("failed", "No index " + "was written. " * 40, "x", run_dir="r")
    assert len(repr(failed)) < 170
    assert repr(failed).startswith("<Result failed: No index was written.")
    unsure = replace(DONE, primary=replace(FIGURE, low=None, high=None))
    assert "auroc 0.867 (no interval, n = 16)" in repr(unsure)


@pytest.mark.parametrize(
    ("prediction", "shown"),
    [
        (
            Prediction("a/x.png", probabilities={"clear": 0.092, "opacity": 0.908}, prediction=("opacity",)),
            "<Prediction x.png: opacity; opacity 0.908, clear 0.092>",
        ),
        (
            Prediction("x.png", probabilities={"a": 0.1, "b": 0.2}),
            "<Prediction x.png: none of the classes; b 0.200, a 0.100>",
        ),
        (Prediction("x.png", error="It is no image."), "<Prediction x.png: error: It is no image.>"),
        (Prediction(("s/1.dcm", "s/2.dcm"), mask=Path("o/m.nii.gz")), "<Prediction 1.dcm and 1 more: mask o/m.nii.gz>"),
        (
            Prediction(
                "x.png", boxes=(DetectedBox("nodule", (1, 2, 3, 4), 0.5), DetectedBox("mass", (1, 2, 3, 4), 0.9))
            ),
            "<Prediction x.png: 2 boxes, the surest mass 0.900>",
        ),
        (Prediction("x.png", boxes=(), anomaly_score=0.25), "<Prediction x.png: 0 boxes; anomaly score 0.250>"),
        (Prediction("x.png", findings="The heart is normal."), '<Prediction x.png: "The heart is normal.">'),
        (Prediction("x.png"), "<Prediction x.png: nothing>"),
    ],
)
def test_a_prediction_in_one_line(prediction: Prediction, shown: str) -> None:
    assert repr(prediction) == shown
    strictly(prediction._repr_html_())


def test_of_many_classes_the_likeliest_are_shown() -> None:
    probabilities = {f"class {n}": n / 100 for n in range(40)}
    text = repr(Prediction("x.png", probabilities=probabilities, prediction=("class 39",)))
    assert "class 39 0.390, class 38 0.380, class 37 0.370>" in text


def test_a_model_in_one_line() -> None:
    model = Model(Path("/m"), ("clear", "opacity"), False, "diagnosis", {}, "# card", {"primary": PRIMARY})
    assert repr(model) == "<Model diagnosis: clear, opacity; auroc 0.867 (95 % CI 0.625-1.000, n = 16); /m>"
    assert repr(replace(model, metrics={})) == "<Model diagnosis: clear, opacity; /m>"
    assert "opacity" in strictly(model._repr_html_())


class _Strict(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "strong", "table", "tr", "th", "td")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def strictly(page: str) -> str:
    return _Strict(page).text


def test_a_result_in_a_notebook() -> None:
    text = strictly(DONE._repr_html_())
    for words in ("completed", "auroc is good", "find <it>", "auroc 0.867", "r/model"):
        assert words in text


@given(st.text(), st.text())
def test_nothing_breaks_out_of_the_table(title: str, value: str) -> None:
    strictly(make_html_table(title, [("name", value)]))
    assert "\n" not in shorten(value)
    assert len(format_file_name(value)) <= 60


# --- the line of a run -------------------------------------------------------------------------------------------


class Page:
    """A place of a notebook's page."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def update(self, mime_bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.states.append(mime_bundle["text/plain"])


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """IPython as a notebook's kernel has it."""
    place = Page()

    def display(mime_bundle: dict[str, str], *, raw: bool, display_id: bool) -> Page:
        assert display_id
        assert not place.states, "one line, which is overwritten"
        place.update(mime_bundle, raw=raw)
        return place

    shell = type("ZMQInteractiveShell", (), {})()
    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    displays.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return place


def test_a_notebook_has_a_line_that_is_overwritten(page: Page) -> None:
    line = make_progress_watcher()
    assert isinstance(line, NotebookProgress)
    line(RoleStarted("Model Trainer", "rules"))
    line(ReplyReceived("", usage=Usage(input_tokens=1200, output_tokens=34)))
    line(ToolCalled("a", "run_script", {"command": "python train.py"}))
    line(PromptSent("", ""))
    line(RunEnded({"status": "completed", "reason": "auroc is good"}))
    assert len(page.states) == 4, "a prompt moves nothing"
    assert page.states[2].endswith("Model Trainer · 1 action · 1,234 tokens · run_script python train.py")
    assert page.states[3].endswith("completed · 1 action · 1,234 tokens · auroc is good")


def test_elsewhere_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_in_notebook()
    make_progress_watcher()(ToolCalled("a", "run_script", {}))
    terminal = ModuleType("IPython")
    terminal.get_ipython = lambda: type("TerminalInteractiveShell", (), {})()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not is_in_notebook()
