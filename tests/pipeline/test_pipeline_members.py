"""Whole runs whose plans ask for folds or a refit: what m3b measures on held-out cases, and what is delivered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import target_kit as kit

from m3b import Pipeline, load_model
from m3b.llm.rules import RulesLLM
from m3b.messages import ToolCall
from m3b.run.result import Result

STEPS = "max_steps=40"


class Asking(RulesLLM):
    """The rules, which make their plan with settings besides."""

    def __init__(self, *settings: str) -> None:
        self.settings = " ".join(f"'{setting}'" for setting in settings)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        reply = super().ask(*args, **kwargs)
        return replace(reply, calls=tuple(self._with_settings(call) for call in reply.calls))

    def _with_settings(self, call: ToolCall) -> ToolCall:
        command = str(call.arguments.get("command", ""))
        if not command.startswith("python plan.py"):
            return call
        return replace(call, arguments={**call.arguments, "command": f"{command} --set {self.settings}"})


def whole_run(data: Path, request: str, out: Path, *settings: str) -> tuple[Result, dict[str, Any]]:
    """The result, and config.json of the deliverable."""
    result = Pipeline(Asking(*settings), data=[data], out=out, train_minutes=1).run(request)
    assert result.status in ("completed", "below_range"), result.reason
    assert result.integrity == "clean"
    place = Path(str(result.model_dir))
    plan = json.loads((Path(result.run_dir) / "work/plan.json").read_text())
    assert plan["why_folds"] == "set by --set"
    return result, json.loads((place / "config.json").read_text())


def weights(result: Result) -> list[str]:
    return sorted(file.name for file in Path(str(result.model_dir)).glob("model*.safetensors"))


def held_out(result: Result, share: float = 1.0) -> dict[int, int]:
    """Cases of each fold, by valid_predictions.json; this share of the training cases is held out, each once."""
    work = Path(result.run_dir) / "work"
    rows = json.loads((work / "Logout/valid_predictions.json").read_text())
    cases = len(json.loads((work / "Datapath/train.json").read_text()))
    assert len(rows) == pytest.approx(share * cases, abs=0 if share == 1 else 2)
    assert len({json.dumps(row["image"]) for row in rows}) == len(rows)
    return {fold: sum(row["fold"] == fold for row in rows) for fold in {row["fold"] for row in rows}}


def last_validation_value(result: Result) -> float:
    """What the trainer heard of validation cases."""
    lines = (Path(result.run_dir) / "journal.jsonl").read_text().splitlines()
    records = [json.loads(line)["data"] for line in lines if '"artifact"' in line or '"kind": "check"' in line]
    values = [value for value in map(_validation, records) if value is not None]
    return values[-1]


def _validation(data: Any) -> float | None:
    if isinstance(data, dict):
        if isinstance(data.get("validation"), dict) and "value" in data["validation"]:
            return float(data["validation"]["value"])
        return next((value for value in map(_validation, data.values()) if value is not None), None)
    return None


@pytest.mark.slow
def test_a_grader_of_three_folds(tmp_path: Path) -> None:
    data = kit.brightened(tmp_path / "films")
    request = "Grade the bone density 0 to 3 on wrist X-rays"
    result, config = whole_run(data, request, tmp_path / "run", STEPS, "folds=3")
    assert weights(result) == [f"model-{k}-of-3.safetensors" for k in (1, 2, 3)]
    assert not config["refit"]
    assert set(held_out(result)) == {0, 1, 2}
    assert -1 <= last_validation_value(result) <= 1


@pytest.mark.slow
def test_an_estimator_trained_on_every_case(tmp_path: Path) -> None:
    """Its interval comes from networks like it that had not seen the cases, and the card says that it has no figure."""
    data = kit.brightened(tmp_path / "films")
    request = "Predict the bone density in g on wrist X-rays"
    result, config = whole_run(data, request, tmp_path / "run", STEPS, "folds=3", "refit=true")
    assert (config["refit"], weights(result)) == (True, ["model.safetensors"])
    assert config["interval"]["reach"] > 0
    assert set(held_out(result)) == {0, 1, 2}
    assert last_validation_value(result) > 0
    card = (Path(str(result.model_dir)) / "README.md").read_text()
    assert "have no validation figure of their own" in card
    [answer] = load_model(str(result.model_dir)).predict([next((data / "films").glob("*.png"))])
    assert answer.error == ""


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True], ids=["delivered together", "trained anew on all"])
def test_masks_of_two_folds(tmp_path: Path, refit: bool) -> None:
    data = kit.outlined(tmp_path / "slides")
    settings = (STEPS, "folds=2", f"refit={str(refit).lower()}")
    result, config = whole_run(data, "Segment the nuclei on microscopy slides", tmp_path / "run", *settings)
    assert config["refit"] is refit
    assert len(weights(result)) == (1 if refit else 2)
    assert set(held_out(result)) == {0, 1}
    assert 0 < last_validation_value(result) <= 1
    [answer] = load_model(str(result.model_dir)).predict([data / "images/slide_000.png"], out=tmp_path / "out")
    assert Path(answer.mask).is_file()


@pytest.mark.slow
def test_masks_of_two_folds_that_hold_out_a_part_of_five_each(tmp_path: Path) -> None:
    data = kit.outlined(tmp_path / "slides")
    request = "Segment the nuclei on microscopy slides"
    result, config = whole_run(data, request, tmp_path / "run", STEPS, "folds=2", "parts=5")
    assert (config["refit"], len(weights(result))) == (False, 2)
    assert set(held_out(result, share=2 / 5)) == {0, 1}
    assert 0 < last_validation_value(result) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True], ids=["delivered together", "trained anew on all"])
def test_boxes_of_two_folds(tmp_path: Path, refit: bool) -> None:
    data = kit.voc(tmp_path / "smears")
    settings = (STEPS, "folds=2", f"refit={str(refit).lower()}")
    request = "Find round and square cells in blood smears, with boxes"
    result, config = whole_run(data, request, tmp_path / "run", *settings)
    assert config["refit"] is refit
    assert len(weights(result)) == (1 if refit else 2)
    assert set(held_out(result)) == {0, 1}
    [answer] = load_model(str(result.model_dir)).predict([data / "JPEGImages/smear_000.png"])
    assert answer.boxes is not None


@pytest.mark.slow
def test_lesion_masks_of_one_network_trained_anew(tmp_path: Path) -> None:
    """With one fold a part is held out to choose by; then all cases are learnt from."""
    data = kit.lesions(tmp_path / "flair")
    result, config = whole_run(data, "Detect lesions on brain MRI", tmp_path / "run", "max_steps=16", "refit=true")
    assert (config["refit"], weights(result)) == (True, ["model.safetensors"])
    rows = json.loads((Path(result.run_dir) / "work/Logout/valid_predictions.json").read_text())
    assert {row["fold"] for row in rows} == {0}
    assert len(config["thresholds"]) == len(config["classes"])
