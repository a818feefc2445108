"""Named external test sets: measured with the delivered model after everything else, and never a reason to fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pipeline_kit import (
    FEATURES,
    PROJECT,
    REQUEST,
    actor,
    combine_calls,
    copy_run,
    make_spots,
    of_kind,
    play,
    say,
    script,
    write,
)

from m3b import Pipeline, Result, UsageError, resume, verify
from m3b.cli.output import format_result
from m3b.run.external_sources import parse_external_arguments
from m3b.run.model_validation import FAILED_OUTPUT_FILE


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, spots: Path) -> dict[str, Path]:
    """A second hospital, of whose images training had some; one with classes of another kind; a folder without images."""
    top = tmp_path_factory.mktemp("elsewhere")
    north = make_spots(top / "north", patients=44, seed=5)
    foreign = make_spots(top / "foreign", patients=20, seed=6)
    for name in ("plain", "spot"):
        (foreign / name).rename(foreign / f"{name}ish_thing")
    (top / "empty").mkdir()
    (top / "empty" / "notes.txt").write_text("nothing here")
    for file in sorted((spots / "spot").iterdir())[:9]:
        shutil.copy(file, north / "spot" / f"again_{file.name}")
    return {"north": north, "foreign": foreign, "empty": top / "empty"}


@pytest.fixture(scope="module")
def run_result(tmp_path_factory: pytest.TempPathFactory, spots: Path, places: dict[str, Path]) -> Result:
    top = tmp_path_factory.mktemp("external")
    sets: dict[str, Any] = dict(places)
    return Pipeline(actor(play()), data=[spots], out=top / "run", external=sets).run(REQUEST)


def test_the_status_is_that_of_the_run_alone(run_result: Result) -> None:
    assert run_result.status == "completed"
    assert run_result.integrity == "clean"
    assert list(run_result.external) == ["north", "foreign", "empty"]


def test_a_second_place_gets_figures_with_intervals(run_result: Result) -> None:
    north = run_result.external["north"]
    assert north.is_measured, north.reason
    assert north.primary is not None
    assert north.primary.name == "auroc"
    assert north.cases == north.primary.n
    assert north.primary.low is not None
    assert north.primary.low < north.primary.value <= 1
    assert north.primary.value > 0.7
    assert set(north.metrics) >= {"auroc", "accuracy"}


def test_what_cannot_be_measured_says_why(run_result: Result) -> None:
    for name, words in (("foreign", "plain"), ("empty", "read")):
        external_result = run_result.external[name]
        assert not external_result.is_measured
        assert words in external_result.reason, external_result.reason
    assert "Give a manifest" in run_result.external["foreign"].reason


def test_images_that_training_had_are_left_out(run_result: Result, places: dict[str, Path]) -> None:
    north = run_result.external["north"]
    learnt = json.loads((Path(run_result.run_dir) / "locked/Datapath/train.json").read_text())
    names = {f"again_{Path(case['image_path']).name}" for case in learnt}
    both = [file for file in (places["north"] / "spot").iterdir() if file.name in names]
    assert 0 < len(both) < 9
    assert north.cases == 53 - len(both)
    assert any(f"{len(both)} cases are left out: training had the same pixels" in note for note in north.notes)


def test_it_stands_wherever_the_figure_stands(run_result: Result) -> None:
    north = run_result.external["north"]
    assert north.primary is not None
    value_text = f"{north.primary.value:.3f}"
    assert any(line.startswith("external north: auroc") and value_text in line for line in format_result(run_result))
    assert Result.from_json(json.loads(json.dumps(run_result.to_json()))).external == run_result.external
    model = Path(str(run_result.model_dir))
    stored = {
        external_set["name"]: external_set
        for external_set in json.loads((model / "metrics.json").read_text())["external"]
    }
    assert stored["north"]["primary"]["value"] == north.primary.value
    card = (model / "README.md").read_text()
    assert "### External test sets" in card
    assert f"| north | {north.cases} | {north.patients or 'unknown'} | auroc | {value_text}" in card
    assert "foreign: not measured" in card
    page = (Path(run_result.run_dir) / "report.html").read_text()
    assert "External test sets" in page
    assert value_text in page
    assert str(run_result.external["north"].summary.partition(": ")[2])[:20] in run_result._repr_html_()


def test_no_agent_and_no_training_saw_it(run_result: Result, places: dict[str, Path]) -> None:
    prompts = [event["text"] for event in of_kind(Path(run_result.run_dir), "prompt")]
    assert not any("north" in text or "foreign" in text for text in prompts)
    assert not (Path(run_result.run_dir) / "locked/data/external-north").exists()
    assert "external" not in (Path(run_result.run_dir) / "work/Datapath/train.json").read_text()


def test_the_figures_are_computed_once_more_by_verify(run_result: Result, tmp_path: Path) -> None:
    run = copy_run(Path(run_result.run_dir), tmp_path / "copy")
    states = {comparison.subject: comparison.state for comparison in verify(run).comparisons}
    assert states["the figures on the external set north, computed once more"] == "same"
    answers = run / "locked/external/north/predictions.json"
    predictions = json.loads(answers.read_text())
    for row in predictions["rows"]:
        row["probabilities"] = {"plain": 0.5, "spot": 0.5}
    answers.write_text(json.dumps(predictions))
    changed = {comparison.code for comparison in verify(run).comparisons if comparison.state == "changed"}
    assert changed == {"recorded_files", "external_figures"}


def test_output_of_a_failed_predict_is_kept_for_the_user_alone(tmp_path: Path, spots: Path) -> None:
    """It was quoted in the model card, which is delivered."""
    large = make_spots(tmp_path / "large", patients=20, seed=7)
    for file in large.rglob("*.png"):
        with Image.open(file) as picture:
            picture.resize((40, 40)).save(file)
    features = FEATURES.replace(
        "        small =", "        assert image.size == (24, 24), 'malignant' + '7'\n        small ="
    )
    module = [
        combine_calls(write({**PROJECT, "features.py": features}), script("python plan.py")),
        say("In place."),
    ]
    result = Pipeline(actor(play(module=module)), data=[spots], out=tmp_path / "run", external={"large": large}).run(
        REQUEST
    )
    assert result.status == "completed", result.reason
    run, reason = Path(result.run_dir), result.external["large"].reason
    assert "AssertionError" in reason
    file = f"locked/external/large/{FAILED_OUTPUT_FILE}"
    assert file in reason
    assert "malignant7" in (run / file).read_text()
    for public_file in (run / "run.json", run / "journal.jsonl", run / "report.html", run / "model/README.md"):
        assert "malignant7" not in public_file.read_text()


@pytest.mark.slow
def test_a_run_that_is_taken_up_measures_them_too(halfway_run: Path, places: dict[str, Path], tmp_path: Path) -> None:
    copied = copy_run(halfway_run, tmp_path / "copy")
    record = json.loads((copied / "run.json").read_text())
    record["external"] = {"north": [str(places["north"]), None], "gone": [str(tmp_path / "gone"), None]}
    (copied / "run.json").write_text(json.dumps(record))
    result = resume(copied, actor(play()))
    assert result.status == "completed"
    assert result.external["north"].is_measured, result.external["north"].reason
    assert "not there any more" in result.external["gone"].reason


@pytest.mark.parametrize(
    ("make_external", "words"),
    [
        (lambda spots: {"a b": spots}, "cannot name an external set"),
        (lambda spots: {"x": spots / "nowhere"}, "no folder"),
        (lambda spots: {"x": spots}, "lie in each other"),
        (lambda spots: {"x": spots / "plain"}, "lie in each other"),
        (lambda spots: {"x": spots.parent}, "lie in each other"),
    ],
)
def test_what_is_refused_before_a_run(
    make_external: Callable[[Path], Any], words: str, spots: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        Pipeline(actor(), data=[spots], external=make_external(spots)).run(REQUEST, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_on_the_command_line(tmp_path: Path) -> None:
    spec = tmp_path / "manifest.json"
    spec.write_text("{}")
    assert parse_external_arguments([f"a={tmp_path}", f"a={spec}", "b=/x"]) == {
        "a": (str(tmp_path), str(spec)),
        "b": ("/x", None),
    }
    for arguments, words in ((["a"], "NAME=DIR"), ([f"a={spec}"], "is a manifest"), (["a=/x", "a=/y"], "twice")):
        with pytest.raises(UsageError, match=words):
            parse_external_arguments(arguments)
