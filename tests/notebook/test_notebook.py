"""What is seen of results, predictions, models and runs in a console and in a notebook."""

from __future__ import annotations

import base64
import json
import math
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from m3b import Pipeline
from m3b.display import (
    MAX_PICTURES,
    PATIENT_NOTE,
    format_file_name,
    make_html_pictures,
    make_html_table,
    shorten,
)
from m3b.events import PromptSent, ReplyReceived, RoleStarted, RunEnded, ToolCalled
from m3b.facts import ManifestProposal
from m3b.measure import Measure
from m3b.messages import Usage
from m3b.models import DetectedBox, Model, Prediction
from m3b.models.image_jobs import ExampleCase
from m3b.progress import NotebookProgress, is_in_notebook, make_progress_watcher
from m3b.run.dataset_preview import DatasetPreview
from m3b.run.decision import Decision
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
    ("prediction", "expected_line"),
    [
        (
            Prediction("a/x.png", probabilities={"clear": 0.092, "opacity": 0.908}, prediction=("opacity",)),
            "<Prediction x.png: opacity; opacity: 0.908, clear: 0.092>",
        ),
        (
            Prediction("x.png", probabilities={"a": 0.1, "b": 0.2}),
            "<Prediction x.png: none of the classes; b: 0.200, a: 0.100>",
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
def test_a_prediction_in_one_line(prediction: Prediction, expected_line: str) -> None:
    assert repr(prediction) == expected_line
    strictly(prediction._repr_html_())


def test_a_prediction_is_shown_on_its_image() -> None:
    """As far as it can be drawn; its values are the same with and without the picture."""
    prediction = Prediction("a/x.png", probabilities={"clear": 0.9}, prediction=("clear",))
    painted_prediction = prediction.with_painter(lambda item: PNG if item.probabilities else b"")
    assert painted_prediction == prediction
    assert _Strict(painted_prediction._repr_html_()).images == 1
    assert _Strict(prediction.with_painter(lambda item: b"")._repr_html_()).images == 0
    assert _Strict(replace(painted_prediction, error="It is no image.")._repr_html_()).images == 0


def test_numbers_of_a_prediction_have_four_digits() -> None:
    curve = [[month, 1 - month / 37] for month in range(36)]
    prediction = Prediction(
        "a.png", extra={"value": 112.48140716552734, "interval": [99.0228, 125.9399], "survival": curve, "median": None}
    )
    page = prediction._repr_html_()
    assert ">112.5<" in page
    assert ">[99.02, 125.9]<" in page
    assert "[1, 0.973]" in page
    assert "[35, " not in page, "long lists are cut"
    assert "median" not in page
    assert "value 112.5; interval [99.02, 125.9]" in repr(prediction)


def test_of_many_classes_the_likeliest_are_shown() -> None:
    probabilities = {f"class {n}": n / 100 for n in range(40)}
    text = repr(Prediction("x.png", probabilities=probabilities, prediction=("class 39",)))
    assert "class 39: 0.390, class 38: 0.380, class 37: 0.370>" in text


def test_a_model_in_one_line() -> None:
    model = Model(Path("/m"), ("clear", "opacity"), False, "diagnosis", {}, "# card", {"primary": PRIMARY})
    assert repr(model) == "<Model diagnosis: clear, opacity; auroc 0.867 (95 % CI 0.625-1.000, n = 16); /m>"
    assert repr(replace(model, metrics={})) == "<Model diagnosis: clear, opacity; /m>"
    assert "opacity" in strictly(model._repr_html_())


SAFE_TAGS = {"div", "strong", "table", "tr", "th", "td", "a", "small", "br", "progress"}
SAFE_TAGS |= {"figure", "figcaption", "img", "svg", "line", "circle"}


class _Strict(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.images = 0
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in SAFE_TAGS
        self.images += tag == "img"
        if tag not in ("img", "br"):
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


JPEG = b"\xff\xd8\xff drawn"
PNG = b"\x89PNG\r\n\x1a\n drawn"


def test_a_result_shows_its_metrics_its_pictures_and_its_report(tmp_path: Path) -> None:
    cases = [
        {"key": f"case <{n}>", "split": "test", "labels": "polyp", "jpeg": base64.b64encode(JPEG).decode()}
        for n in range(9)
    ]
    pictures = {"tests": cases, "examples": [], "legend": []}
    (tmp_path / "pictures.json").write_text(json.dumps({"version": 1, "source": "", "pictures": pictures}))
    metrics = {"auroc": PRIMARY, "accuracy": {**PRIMARY, "name": "accuracy", "value": 0.75}}
    result = replace(DONE, run_dir=str(tmp_path), metrics=metrics, report=str(tmp_path / "report.html"))
    page = _Strict(result._repr_html_())
    assert page.images == MAX_PICTURES
    for words in ("case <0>: polyp", "accuracy", "0.750", "report", PATIENT_NOTE):
        assert words in page.text
    assert f"{tmp_path.as_uri()}/report.html" in result._repr_html_()


def test_a_measure_is_a_table_with_its_interval_drawn() -> None:
    page = FIGURE._repr_html_()
    for words in ("auroc", "0.867", "0.625 to 1.000", "16", "0.500"):
        assert words in strictly(page)
    assert "<svg" in page
    assert "<svg" not in replace(FIGURE, name="mae", value=3.2)._repr_html_(), "not on a scale from 0 to 1"
    assert "undefined" in strictly(Measure("auroc", math.nan, None, None, 3)._repr_html_())


def test_a_pipeline_shows_model_data_and_what_was_set(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    pipeline = Pipeline("rules", data=tmp_path / "scans", train_minutes=2)
    text = strictly(pipeline._repr_html_())
    for words in ("rules", str(tmp_path / "scans"), "train_minutes", "2"):
        assert words in text
    assert "max_actions" not in text, "a default"
    assert "rules" in repr(pipeline)
    assert "object at" not in repr(pipeline)


def test_a_preview_of_a_folder_shows_how_it_is_read(tmp_path: Path) -> None:
    proposals = tuple(
        ManifestProposal(title=title, score=0.6, evidence=("99% have one",), doubts=("few <cases>",))
        for title in ("labels from the column 'finding'", "labels from the names")
    )
    decision = Decision("proposed", "diagnosis", proposals)
    counts = {
        "train": 244,
        "test": 62,
        "patients": "known",
        "accounting": {"left_out": [{"files": 4, "reason": "no label"}]},
    }
    example = ExampleCase("one.png", "train", "clear", png=base64.b64encode(PNG).decode())
    preview = DatasetPreview("diagnosis", decision, "", counts, "Tell clear from opacity", (example,))
    page = _Strict(preview._repr_html_())
    for words in ("column 'finding'", "244", "62", "no label", "few <cases>", "2. other way", PATIENT_NOTE):
        assert words in page.text
    assert page.images == 1
    assert "244 + 62 cases" in repr(preview)
    assert strictly(DatasetPreview("diagnosis", Decision("refuse", "diagnosis"), "Nothing to read.")._repr_html_())


@given(st.binary(max_size=20), st.text())
def test_only_pictures_are_embedded(content: bytes, caption: str) -> None:
    assert make_html_pictures([(b"x" + content, caption)]) == ""
    assert _Strict(make_html_pictures([(PNG + content, caption)])).images == 1


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
        strictly(mime_bundle["text/html"])
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


def test_pictures_of_a_result_show_the_answer_beside_the_label(tmp_path: Path) -> None:
    key = "data/films/a.png"
    case = {"key": key, "split": "test", "labels": "opacity", "jpeg": base64.b64encode(JPEG).decode()}
    pictures = {"tests": [case], "examples": [], "legend": []}
    (tmp_path / "pictures.json").write_text(json.dumps({"version": 1, "source": "", "pictures": pictures}))
    row = {"image": key, "labels": ["opacity"], "probabilities": {"clear": 0.9, "opacity": 0.1}, "decided": ["clear"]}
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked/predictions.json").write_text(json.dumps([row]))
    (tmp_path / "run.json").write_text(json.dumps({"result": {"task": "diagnosis"}}))
    page = _Strict(replace(DONE, run_dir=str(tmp_path))._repr_html_())
    assert "labelled opacity; predicted clear (0.90)" in page.text
