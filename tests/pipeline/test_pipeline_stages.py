"""Stages of the user's own: in a whole run, taken up again, and what is refused of them before a run begins."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pipeline_kit import (
    PROJECT,
    REQUEST,
    TRAIN,
    actor,
    call,
    check_end,
    combine_calls,
    journal,
    of_kind,
    play,
    say,
    script,
)
from typer.testing import CliRunner

from m3b import DataError, Pipeline, Role, Stage, UsageError, Workspace
from m3b.agents.artifacts import DataIndex, TrainingModule
from m3b.agents.check_result import CheckResult, accept, reject
from m3b.cli.app import app
from m3b.errors import LLMError
from m3b.llm.ledger import read_ledger
from m3b.run.services import RunServices
from m3b.run.stages import ModelStage, ModuleStage
from m3b.run.state import RunState
from m3b.testing.scripted_model import llm_error

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
from docs_kit import blocks

EXAMPLE = next(block for block in blocks("python") if "IndexReviewer" in block.text)
"""What docs/extending.md shows of stages."""
namespace: dict[str, Any] = {"__name__": __name__, "Pipeline": lambda *args, **options: options["stages"]}
exec(
    EXAMPLE.text.replace("from m3b import Pipeline, Role, Stage", "from m3b import Role, Stage"), namespace
)  # Pipeline is ours
Review, Sheet, IndexReviewer, OwnProject, SheetWriter = (
    namespace[name] for name in ("Review", "Sheet", "IndexReviewer", "OwnProject", "SheetWriter")
)


@dataclass(frozen=True)
class Luck:
    is_complete: bool


class Unlucky(Stage[Luck]):
    """Never done, and none needs it."""

    role = Role("unlucky", "Unlucky")
    artifact = Luck
    required = False

    def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
        return reject("No luck today.")


FOUR = ("task_manager", "data_engineer", "module_architect", "model_trainer")
NAMES = ("task_manager", "data_engineer", "index_reviewer", "own_project", "model_trainer", "unlucky", "sheet_writer")
REVIEW = [
    combine_calls(call("read_files", paths=["Datapath/test.json"]), call("read_files", paths=["Datapath/train.json"])),
    say("\n".join("abcdefghijkl")),
    say("One picture a patient.\nNothing else."),
]


def test_stages_of_the_users_in_a_run_that_is_taken_up_again(
    tmp_path: Path, spots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the documentation, and one that fails."""
    monkeypatch.chdir(tmp_path)
    for name, text in PROJECT.items():
        (tmp_path / "my-project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my-project" / name).write_text(text, encoding="utf-8")
    *before, sheet = namespace["pipeline"]
    order = (*before, Unlucky(), sheet)
    remarks: list[tuple[str, ...]] = []
    options: dict[str, Any] = {
        "stages": order,
        "checks": {"index_reviewer": lambda handed_over, work: remarks.append(handed_over.remarks)},
    }

    acts = play(index_reviewer=REVIEW, model=[script(TRAIN), llm_error(LLMError, "The line is dead.")])
    first = Pipeline(actor(acts), data=[spots], out=tmp_path / "run", **options).run(REQUEST)
    check_end(first, "failed", "The line is dead.")
    run = Path(first.run_dir)
    _check_agents(run)
    assert remarks == [("One picture a patient.", "Nothing else.")]

    with pytest.raises(UsageError, match=r"index_reviewer.*; given are task_manager, data_engineer, module.*stages=\["):
        Pipeline.resume(run, actor(play()), checks=options["checks"])
    reordered_stages = (*order[:2], order[3], order[2], *order[4:])
    with pytest.raises(UsageError, match="with the stages task_manager, data_engineer, index_reviewer, own_project"):
        Pipeline.resume(run, actor(play()), **{**options, "stages": reordered_stages})
    assert json.loads((run / "run.json").read_text())["status"] == "failed", "nothing is changed by the attempts"

    model = actor(play())
    result = Pipeline.resume(run, model, **options)
    check_end(result, "completed")
    assert len(model.requests) == 1, "only the Model Trainer was asked"
    handed_over = [entry["artifact"] for entry in of_kind(run, "artifact")]
    assert handed_over == ["selection", "index", "review", "module", "model", "sheet"]
    assert {name: entry["status"] for name, entry in result.roles.items()} == {
        **dict.fromkeys(NAMES, "done"), "unlucky": "failed",
    }  # fmt: skip
    assert any("goes on without Unlucky" in entry["text"] for entry in of_kind(run, "note"))
    _check_shown(run)


def _check_agents(run: Path) -> None:
    """What the agents were told and did."""
    (briefing,) = of_kind(run, "prompt", "index_reviewer")
    assert briefing["system"].endswith("You review an index. Reply with your remarks, one a line.")
    assert briefing["text"].startswith("Stage: index_reviewer\n\nThe index has 40 cases for training. train: ")
    looks = of_kind(run, "result", "index_reviewer")
    assert [event["is_error"] for event in looks] == [True, False], (
        "test cases are out of sight once the index is accepted"
    )
    assert [event["accepted"] for event in of_kind(run, "check", "index_reviewer")] == [False, True]
    (briefed,) = of_kind(run, "prompt", "model_trainer")
    assert "The Index Reviewer said: One picture a patient." in briefed["text"]
    assert not of_kind(run, "prompt", "own_project")
    assert {line["role"] for line in read_ledger(run / "ledger.jsonl")} == {*FOUR, "index_reviewer"} - {
        "module_architect"
    }


def _check_shown(run: Path) -> None:
    """The file of the last stage, the report page and `m3b show`."""
    sheet = (run / "DATASHEET.md").read_text(encoding="utf-8").splitlines()
    assert sheet[1:] == ["40 train cases", "20 test cases", "One picture a patient.", "Nothing else."]
    page = (run / "report.html").read_text(encoding="utf-8")
    for words in ("Index Reviewer", "Own Project", "Data Sheet", "One picture a patient.", "DATASHEET.md"):
        assert words in page
    output = CliRunner().invoke(app, ["show", str(run)]).stdout
    assert "== Index Reviewer (scripted)" in output
    assert "== Own Project (Python)" in output
    assert "[handed over] review" in output


def test_what_a_stage_of_the_users_raises_ends_the_run_in_a_result(build: Any) -> None:
    class Broken(Stage[Luck]):
        role = Role("broken", "Broken")
        artifact = Luck

        def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
            return accept(state.get_artifact(DataIndex))

    class WrongAnswer(Broken):
        def check(self, state: RunState, services: RunServices, closing_text: str) -> CheckResult:
            return "fine"  # type: ignore[return-value]

    for stage, words in ((Broken(), "`stages: broken.check`"), (WrongAnswer(), "returned 'fine'; return accept")):
        result = build(stages=[stage, *NAMES[:2], "module_architect", "model_trainer"], out=type(stage).__name__)
        check_end(result, "failed", words)
    assert "no stage has handed over a DataIndex yet" in build(stages=[Broken(), *FOUR], out="again").reason


def test_one_agent_takes_the_users_parts_too(build: Any) -> None:
    acts = play(index_reviewer=[say("By patient.")], module=[say('{"given_up": "Enough."}')])
    result = build(llm=actor(acts), roles="single", stages=[*FOUR[:2], IndexReviewer(), *FOUR[2:]])
    events = check_end(result, "failed", "Enough.")
    prompts = [e["data"] for e in events if e["kind"] == "prompt"]
    assert [bool(prompt["system"]) for prompt in prompts] == [True, False, False, False]
    assert "# Index Reviewer\nYou review an index." in prompts[0]["system"]
    assert [e["role"] for e in journal(Path(result.run_dir)) if e["kind"] == "artifact"] == [
        *FOUR[:2],
        "index_reviewer",
    ]


class PatientArchitect(ModuleStage):
    role = Role("own_architect", "Own Architect", ("copy_files", "run_script"), prompt="You set projects up.")


# --- what is refused ----------------------------------------------------------------------------------------------


def make_stage(name: str, base: type[Stage[Any]] = SheetWriter, **parts: Any) -> Stage[Any]:
    """A stage with another name, and other parts."""
    return type("Own", (base,), {"role": Role(name, "Own"), "required_artifacts": (), "required": True, **parts})()


class Unheld:
    pass


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((), "give all stages in their order"),
        ("data_engineer", "give all stages in their order"),
        ((*FOUR[:3], "trainer"), "names 'trainer'; m3b's own are task_manager"),
        ((*FOUR, IndexReviewer), r"holds the class IndexReviewer; give an object of it: IndexReviewer\(\)"),
        ((*FOUR, print), "m3b.Stage objects"),
        ((*FOUR, "task_manager"), "task_manager twice"),
        ((*FOUR, make_stage("one"), make_stage("two")), "one and two both make a Sheet"),
        ((IndexReviewer(), *FOUR), "index_reviewer needs a DataIndex, .*: put it behind data_engineer"),
        ((*FOUR, SheetWriter()), "sheet_writer needs a Review, .*: no stage makes one"),
        ((FOUR[1], FOUR[0], *FOUR[2:]), "data_engineer needs a Selection, .*: put it behind task_manager"),
        (FOUR[:3], "No stage makes a TrainedModel"),
        ((*FOUR[:2], FOUR[3]), "needs a TrainingModule, .*: no stage makes one"),
        ((*FOUR[:2], make_stage("own", artifact=TrainingModule), FOUR[3]), "derive Own from m3b.run.stages.ModuleStage"),
        ((*FOUR[:3], make_stage("own", ModelStage, required=False)), "no run can do without"),
        ((*FOUR, make_stage("Own")), "called 'Own'; take small letters"),
        ((*FOUR, make_stage("single")), "none of default, common, single"),
        ((*FOUR, make_stage("own", role=None)), "has no role"),
        ((*FOUR, make_stage("own", artifact=Unheld)), "neither a dataclass nor a pydantic model"),
        ((*FOUR, make_stage("own", artifact=dataclass(type("Bad", (), {"__annotations__": {"x": Unheld}})))), "cannot hold"),
        ((*FOUR, make_stage("own", artifact=dataclass(type("Model", (), {})))), "rename the class"),
        ((*FOUR, make_stage("own", role=Role("own", "Own", ("open_door",)))), "has the tools open_door; known are list_files"),
        ((*FOUR, make_stage("own", IndexReviewer, required_artifacts=())), "The agent of own has no prompt"),
        ((make_stage("own", IndexReviewer, role=Role("own", "Own", ("run_script",), prompt="x")), *FOUR),
         "before a data set is chosen"),
        ((*FOUR, make_stage("maybe", required=False), make_stage("own", artifact=Review, required_artifacts=(Sheet,))),
         "but maybe, which makes it, is not required"),
    ],
)  # fmt: skip
def test_stages_that_do_not_fit_are_refused(stages: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pipeline(actor({}), stages=stages)


def test_a_role_of_the_users_can_have_model_check_and_prompt(tmp_path: Path) -> None:
    stages = [*FOUR, IndexReviewer()]
    (tmp_path / "index_reviewer.md").write_text("Look at the patients.")
    workspace = Workspace(prompts=tmp_path)
    user_model = lambda messages, tools: ""  # noqa: E731
    pipeline = Pipeline({"default": "rules", "index_reviewer": user_model}, workspace=workspace, stages=stages)
    assert set(pipeline.llms) == {"default", "index_reviewer"}
    with pytest.raises(DataError, match=r"index_reviewer.md; prompts are added to common"):
        Pipeline("rules", workspace=workspace)
    with pytest.raises(UsageError, match="roles reviewer; known are data_engineer, default, index_reviewer"):
        Pipeline({"default": "rules", "reviewer": user_model}, stages=stages)
    with pytest.raises(UsageError, match=r"names the roles reviewer; known are .*index_reviewer"):
        Pipeline("rules", checks={"reviewer": lambda artifact, work: []}, stages=stages)
    with pytest.raises(UsageError, match=r"rules play m3b's own roles only. Name a model for index_reviewer"):
        Pipeline("rules", stages=stages)
    Pipeline("rules", stages=[*FOUR[:2], PatientArchitect(), FOUR[3]])  # makes what they know
