"""What is refused before a run begins: with the reason, no folder made, no language model asked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_kit import REQUEST

from m3b import Pipeline, TrainingOverrides
from m3b.errors import DataError, M3bError, UsageError
from m3b.messages import Message, Reply, ToolSpec
from m3b.run.precheck import check_request, find_ordered_tasks


class Deaf:
    """A language model that must not be asked."""

    name = "deaf"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        self.asked += 1
        return Reply("{}")


def refused(tmp_path: Path, request: str = REQUEST, *, out: Path | None = None, kind: type[M3bError] = UsageError,
            match: str = "", **options: Any) -> None:  # fmt: skip
    """The run is refused in words, and neither a file nor a question is left behind."""
    before = sorted(tmp_path.rglob("*"))
    deaf = Deaf()
    with pytest.raises(kind, match=match):
        Pipeline(deaf, out=out or tmp_path / "run", **options).run(request)
    assert deaf.asked == 0
    assert sorted(tmp_path.rglob("*")) == before, "something was made for a run that was refused"


def test_a_setting_of_another_task_than_the_request_names(tmp_path: Path, spots: Path) -> None:
    """Whatever the labels are: what is told of a whole image has no Dice and no U-Net."""
    for name, value in (("metric", "dice"), ("network", "unet")):
        training = TrainingOverrides(**{name: value})
        refused(tmp_path, "Tell spots from plain images", data=spots, training=training, match=f"{name} {value}")


# --- requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    ["", " \n", "123 ?!"],
)
def test_a_request_without_words(request_: str, tmp_path: Path, spots: Path) -> None:
    refused(tmp_path, request_, data=spots, match="what the model shall tell from which images")


@pytest.mark.parametrize(
    ("request_", "tasks"),
    [
        ("Segment the liver and write a report", ["segmentation", "report"]),
        ("Tell pneumonia from normal on chest X-rays, and segment the lungs", ["diagnosis", "segmentation"]),
        ("Segmentiere die Leber und schreibe einen Bericht", ["segmentation", "report"]),
        ("Classify the images, then generate a radiology report for each", ["diagnosis", "report"]),
        ("Write a report for each chest X-ray and classify the findings", ["report", "diagnosis"]),
        ("Train a model to classify scans and to segment the lesions", ["diagnosis", "segmentation"]),
        ("Segment and classify nuclei", ["segmentation"]),
        ("Classify; do not segment", ["diagnosis"]),
    ],
)
def test_the_tasks_of_one_request(request_: str, tasks: list[str]) -> None:
    """The decision serves one of them, and what is not served stands with the assumptions."""
    assert find_ordered_tasks(request_) == tasks


@pytest.mark.parametrize(
    "request_",
    [
        "pneumonia vs normal",
        "segment it",
        "Klassifiziere",
        "肺炎",
        "Segmentation of the liver",
        "Segment and classify nuclei",
        "Detect and outline lesions",
        "Detect nodules, classify them as benign or malignant",
        "Classify; do not segment",
        "Classify knees whose cartilage was segmented",
        "Classify chest X-rays and write a report on the accuracy",
        "Classify scans; then generate a PDF report",
        "Segment the tumour and tell me the volume from the mask",
        "Generate reports, segmentation is not needed",
        "Erstelle ein Modell, das eine Lungenentzündung auf Röntgenbildern des Thorax erkennt",
        "Construye un modelo que detecte neumonía en radiografías de tórax",
        "Write a report for each X-ray: findings and impression",
        "Tell whether weather changes the joint, on knee MRI",
        "Does this patient have a fracture?",
    ],
)
def test_requests_that_are_let_through(request_: str) -> None:
    check_request(request_)


@given(st.text())
def test_any_text_is_let_through_or_refused_in_words(request_: str) -> None:
    assert len(find_ordered_tasks(request_)) <= 3
    with contextlib.suppress(UsageError):
        check_request(request_)


# --- places ------------------------------------------------------------------------------------------------------


def test_a_run_folder_inside_the_data(tmp_path: Path) -> None:
    data = tmp_path / "scans"
    (data / "a").mkdir(parents=True)
    (data / "a" / "1.png").write_bytes(b"x")
    refused(tmp_path, data=data, out=data / "runs" / "one", match=r"inside the data.*--out")
    refused(tmp_path, data=data, out=data, match="inside the data")
    (tmp_path / "link").symlink_to(data)
    refused(tmp_path, data=data, out=tmp_path / "link" / "run", match="inside the data")


def test_a_data_folder_of_links_to_folders(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.png").write_bytes(b"x")
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "shared").symlink_to(tmp_path / "store")
    refused(tmp_path, data=tmp_path / "scans", match=r"scans/shared leads to .*/store.*--data")


def test_the_usual_place_of_runs_inside_the_data(tmp_path: Path, spots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cd` into the data, then `m3b run ... --data .`: `runs/` would lie among the images."""
    data = tmp_path / "scans"
    data.mkdir()
    monkeypatch.chdir(data)
    monkeypatch.delenv("M3B_RUNS", raising=False)
    with pytest.raises(UsageError, match=r"inside the data.*--out"):
        Pipeline(Deaf(), data=".").run(REQUEST)
    assert os.listdir(data) == []


def test_data_inside_the_run_folder(tmp_path: Path) -> None:
    data = tmp_path / "all" / "scans"
    data.mkdir(parents=True)
    refused(tmp_path, data=data, out=tmp_path / "all", match="inside the run folder")


# --- cards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"task": "surgery"}, "`task` .* is 'surgery'; m3b builds models for diagnosis"),
        ({"task": "classification"}, "Did you mean 'diagnosis'"),
        ({"task": "segmentaton"}, "Did you mean 'segmentation'"),
        ({"metric": "beauty"}, "`metric` .* is 'beauty'"),
        ({"task": "segmentation", "metric": "auroc"}, "a segmentation model is measured by one of: dice"),
        ({"task": "diagnosis", "metric": "auroc", "acceptable": [80, 95]}, "auroc lies between 0 and 1"),
    ],
)
def test_a_card_with_facts_that_cannot_be(facts: dict[str, Any], match: str, tmp_path: Path, spots: Path) -> None:
    card = {"name": "spots", "description": "x", "path": str(spots), **facts}
    refused(tmp_path, data=[card], kind=DataError, match=match)


def test_other_spellings_of_task_and_metric_are_those_of_m3b(spots: Path) -> None:
    card = {"name": "spots", "description": "x", "path": str(spots), "task": "Diagnosis", "metric": "ROC AUC"}
    parsed_card = Pipeline(Deaf(), data=[card]).workspace.cards["spots"]
    assert (parsed_card.task, parsed_card.metric) == ("diagnosis", "auroc")
