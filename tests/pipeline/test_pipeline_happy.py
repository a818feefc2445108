"""A run that succeeds, and everything that it leaves behind."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_kit import REQUEST, actor, check_end, draw, of_kind, play, texts

from m3b import Pipeline, load_model
from m3b.errors import LLMError
from m3b.llm import LLMRequest
from m3b.models import check_deliverable
from m3b.run.folder import RunFolder
from m3b.run.result import STATUSES, Result
from m3b.run.state import RunState
from m3b.testing.scripted_model import llm_error

CANARIES = {
    "ANTHROPIC_API_KEY": "sk-canary-one-9f3a",
    "OPENAI_API_KEY": "sk-canary-two-77b1",
    "MY_TOKEN": "canary-3-e4",
}


UNPICKLED: list[str] = []
"""Names that a pickle was resolved to in this process while `watching`."""
watching: list[bool] = []


def _note_pickles(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "pickle.find_class":
        UNPICKLED.append(".".join(map(str, arguments)))


sys.addaudithook(_note_pickles)


@pytest.fixture(scope="module")
def run_result(tmp_path_factory: pytest.TempPathFactory, spots: Path) -> Result:
    """One complete run, with keys in the environment, looked at by the tests below."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CANARIES.items():
            patch.setenv(name, value)
        watching.append(True)
        try:
            return Pipeline(actor(), data=[spots], out=tmp_path_factory.mktemp("whole") / "run").run(REQUEST)
        finally:
            watching.clear()


def test_no_pickle_is_loaded_in_this_process(run_result: Result) -> None:
    assert run_result.ok
    assert UNPICKLED == []
    watching.append(True)
    assert pickle.loads(pickle.dumps(Path("x"))) == Path("x")
    watching.clear()
    assert UNPICKLED.pop() == "pathlib.PosixPath", "the hook hears of it"


def test_the_result(run_result: Result) -> None:
    events = check_end(run_result, "completed", "auroc")
    assert run_result.ok
    assert run_result.integrity == "clean"
    assert run_result.task == "diagnosis"
    assert run_result.data_card == "spots"
    assert run_result.request == REQUEST
    handed_over = [e["data"]["artifact"] for e in events if e["kind"] == "artifact"]
    assert handed_over == ["selection", "index", "module", "model"]
    assert {tally["status"] for tally in run_result.roles.values()} == {"done"}
    assert sum(tally["actions"] for tally in run_result.roles.values()) == run_result.usage["actions"] == 5
    assert set(run_result.usage) == {
        "actions", "iterations", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cached_share",
        "cost_usd", "wall_s",
    }  # fmt: skip
    primary = run_result.primary
    assert primary is not None
    assert primary.low is not None
    assert primary.high is not None
    assert primary.low <= primary.value <= primary.high
    assert primary.n == 20
    assert run_result.metrics["auroc"]["value"] == primary.value


def test_the_figure_is_that_of_the_predictions(run_result: Result) -> None:
    """Recomputed here from the stored probabilities: the share of pairs in the right order."""
    rows = json.loads((Path(run_result.run_dir) / "locked" / "predictions.json").read_text())
    sick = [r["probabilities"]["spot"] for r in rows if r["labels"] == ["spot"]]
    well = [r["probabilities"]["spot"] for r in rows if r["labels"] == ["plain"]]
    pairs = [(a > b) + 0.5 * (a == b) for a in sick for b in well]
    assert run_result.primary is not None
    assert run_result.primary.value == pytest.approx(sum(pairs) / len(pairs))


def test_the_model_is_whole_and_predicts(run_result: Result, tmp_path: Path) -> None:
    folder = Path(str(run_result.model_dir))
    assert check_deliverable(folder) == []
    for name in ("predict.py", "config.json", "model.safetensors", "requirements.txt", "README.md", "metrics.json",
                 "provenance.json"):  # fmt: skip
        assert (folder / name).stat().st_size > 0
    moved = folder.rename(folder.with_name("moved"))
    try:
        random = np.random.default_rng(7)
        files = []
        for number in range(12):
            files.append(tmp_path / f"{number}.png")
            draw(number % 2 == 1, random).save(files[-1])
        answers = load_model(moved).predict(files)
    finally:
        moved.rename(folder)
    right = sum(a.prediction == (("plain", "spot")[number % 2],) for number, a in enumerate(answers))
    assert right >= 8
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["integrity"] == "clean"
    assert provenance["request"] == REQUEST
    assert json.loads((folder / "metrics.json").read_text())
    assert "auroc" in (folder / "README.md").read_text().lower()


def test_no_model_was_told_the_test_figure(run_result: Result) -> None:
    assert run_result.primary is not None
    figure = run_result.primary.value
    assert 0.5 < figure < 1, "a figure that could not be told from others proves nothing"
    spellings = {repr(figure), f"{figure:.3f}", f"{figure:.4f}", f"{figure:.1%}"}
    for text in texts(Path(run_result.run_dir)):
        assert not [s for s in spellings if s in text]
    for file in (Path(run_result.run_dir) / "work").rglob("*"):
        if file.is_file() and "data" not in file.parts and "resources" not in file.parts:
            content = file.read_bytes()
            assert not [s for s in spellings if s.encode() in content], file


def test_the_agents_never_hear_of_this_machine(run_result: Result) -> None:
    for text in texts(Path(run_result.run_dir)):
        assert str(run_result.run_dir) not in text


def test_no_key_is_in_any_file(run_result: Result) -> None:
    run = Path(run_result.run_dir)
    files = [file for file in run.rglob("*") if file.is_file() and not file.is_symlink()]
    assert len(files) > 20
    for file in files:
        content = file.read_bytes()
        assert not [name for name, value in CANARIES.items() if value.encode() in content], file


def test_closing_words_of_a_role_that_saw_test_labels_reach_no_role_that_trains(run_result: Result) -> None:
    briefings = {
        role: of_kind(Path(run_result.run_dir), "prompt", role)[0]["text"]
        for role in ("module_architect", "model_trainer")
    }
    assert not any("Indexed." in text for text in briefings.values())
    assert "Indexed." in (Path(run_result.run_dir) / "report.html").read_text(encoding="utf-8")
    assert "The Module Architect said: The project is in place." in briefings["model_trainer"]
    history = RunState.from_events(RunFolder(Path(run_result.run_dir)).read_events())
    assert history.closing_remarks["data_engineer"] == ["Indexed."], (
        "the same from the journal, for a run that is resumed"
    )


def test_run_json(run_result: Result) -> None:
    record = json.loads((Path(run_result.run_dir) / "run.json").read_text())
    assert record["request"] == REQUEST
    assert record["llm"] == {"default": "scripted"}
    assert record["options"]["max_actions"] == 100
    assert record["seed"] == 0
    assert "python" in record["versions"]
    assert record["sandbox"]["name"]
    assert Result.from_json(record["result"]) == run_result
    assert (Path(run_result.run_dir)).stat().st_mode & 0o077 == 0


def test_the_report(run_result: Result) -> None:
    page = Path(str(run_result.report)).read_text(encoding="utf-8")
    assert REQUEST in page
    assert "completed" in page.lower()
    assert "<script src" not in page
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_models_by_role_and_a_plain_function(build) -> None:
    """Any Python function is a model, and each role can have its own."""
    default_model = actor(play(module=[llm_error(LLMError, "Far enough.")]))

    def somebody(messages, tools):
        return default_model.ask(LLMRequest(messages, tools))

    special = actor(play(), name="special")
    result = build(llm={"default": somebody, "data_engineer": special})
    check_end(result, "failed", "Far enough.")
    model_names = {e["title"]: e["llm"] for e in of_kind(Path(result.run_dir), "role_started")}
    assert model_names["Data Engineer"] == "special"
    assert "somebody" in model_names["Task Manager"]
    assert len(special.requests) == 2
    assert len(default_model.requests) == 2


def test_statuses_are_the_documented_ones() -> None:
    assert STATUSES == (
        "completed", "below_range", "no_dataset", "rejected_data", "undecided", "out_of_budget", "failed", "cancelled",
    )  # fmt: skip
