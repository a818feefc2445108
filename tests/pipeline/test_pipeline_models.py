"""Models that misbehave: the run ends in the right status, says what happened, and leaves everything in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_kit import (
    PROJECT,
    REQUEST,
    actor,
    call,
    check_end,
    check_left,
    choice,
    combine_calls,
    of_kind,
    play,
    say,
    script,
    write,
)

from m3b.errors import Authentication, BadRequest, ContextOverflow, LLMError
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import (
    llm_error,
    malformed_call,
    nonsense_reply,
    overflow_error,
    refusal_reply,
    transient_error,
    truncated_reply,
    unknown_tool,
)

STOP = "Far enough for this test."
HALT = [llm_error(LLMError, STOP)]


def test_nonsense_and_nothing_else(build) -> None:
    result = build(llm=ScriptedModel([nonsense_reply()], repeat=True), max_iterations=3)
    check_end(result, "failed", "No data set was chosen", "did not answer in the form")
    assert "data_card" not in result.reason
    assert result.usage["iterations"] == 3
    assert result.roles["task_manager"]["status"] == "failed"


def test_nonsense_once_does_no_harm(build) -> None:
    result = build(selection=[nonsense_reply(), choice("spots")], index=HALT)
    check_end(result, "failed", STOP)
    assert result.data_card == "spots"
    assert result.usage["iterations"] == 1


def test_an_unknown_tool(build) -> None:
    result = build(selection=[unknown_tool(), choice("spots")], index=HALT)
    check_end(result, "failed", STOP)
    (answer,) = of_kind(Path(result.run_dir), "result", "task_manager")
    assert answer["is_error"]
    assert "launch_rocket" in answer["text"]
    assert "preview_dirs" in answer["text"], "it names the tools that there are"


def test_a_tool_of_another_role(build) -> None:
    """The Task Manager has no scripts."""
    result = build(selection=[script("touch escaped"), choice("spots")], index=HALT)
    check_end(result, "failed", STOP)
    (answer,) = of_kind(Path(result.run_dir), "result", "task_manager")
    assert answer["is_error"]
    assert not (Path(result.run_dir) / "work" / "escaped").exists()


def test_unknown_tools_for_ever(build) -> None:
    result = build(selection=[unknown_tool()])
    check_end(result, "failed", "round in circles")
    assert result.usage["actions"] < 20


def test_broken_json_for_ever(build) -> None:
    result = build(index=[malformed_call("write_files")])
    check_end(result, "failed", "round in circles", "write_files")
    assert result.usage["actions"] <= 6, "one warning after three, the end soon after"
    assert not (Path(result.run_dir) / "work" / "train.py").exists()


def test_broken_json_once_does_no_harm(build) -> None:
    result = build(selection=[malformed_call("preview_dirs"), choice("spots")], index=HALT)
    check_end(result, "failed", STOP)
    (answer,) = of_kind(Path(result.run_dir), "result", "task_manager")
    assert answer["is_error"]
    assert "JSON" in answer["text"]


def test_wrong_arguments(build) -> None:
    result = build(selection=[call("read_files", file=3), choice("spots")], index=HALT)
    check_end(result, "failed", STOP)
    (answer,) = of_kind(Path(result.run_dir), "result", "task_manager")
    assert answer["is_error"]
    assert "paths" in answer["text"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [(say(""), "empty"), (refusal_reply(), "refused"), (truncated_reply(), "cut off")],
    ids=["empty", "refusal", "cut"],
)
def test_unusable_replies(build, reply, words: str) -> None:
    check_end(build(llm=ScriptedModel([reply], repeat=True)), "failed", words)


def test_one_that_never_finishes(build) -> None:
    steps = iter(range(10_000))

    result = build(index=[lambda m, t: script(f"echo {next(steps)}")], max_actions=7)
    check_end(result, "out_of_budget", "7 actions")
    assert result.usage["actions"] == 7


def test_done_when_it_is_not(build) -> None:
    """Each role in turn says that it is done and has done nothing."""
    result = build(index=[say("All index files are written and perfect.")], max_iterations=2)
    check_end(
        result, "failed", "could not be made into an index", "No index was written", "written and perfect", "README"
    )
    assert "Datapath" not in result.reason, "the path is the agent's affair"
    result = build(module=[say("The project is in place, I promise.")], max_iterations=1, out="second")
    check_end(result, "failed", "plan.json", "train.py", "is incomplete")
    assert "Copy the template" not in result.reason


def test_done_with_training_when_it_is_not(finish) -> None:
    result = finish([say("The model reaches an AUROC of 0.999.")])
    check_end(result, "failed", "Training left no model behind")
    assert result.model_dir is None
    assert result.primary is None


def test_a_deliverable_that_predicts_nonsense(finish) -> None:
    bad = PROJECT["deliver/predict.py"].replace('"probabilities": {names[0]: 1 - p, names[1]: p}', '"probabilities": 1')
    assert bad != PROJECT["deliver/predict.py"]
    result = finish(
        [combine_calls(write({"deliver/predict.py": bad}), script("python train.py && python export.py")), say("Done.")]
    )
    check_end(result, "failed", "predict.py", "probabilities")
    assert result.model_dir is None


def test_a_deliverable_that_crashes(finish) -> None:
    bad = "import torchvision_that_is_not_there\n"
    result = finish(
        [combine_calls(write({"deliver/predict.py": bad}), script("python train.py && python export.py")), say("Done.")]
    )
    check_end(result, "failed", "torchvision_that_is_not_there", "clean process")


def test_a_deliverable_that_wants_the_raw_data(finish, spots: Path) -> None:
    """It looks its answers up in the index: out of its reach where it is judged."""
    spy = PROJECT["deliver/predict.py"].replace(
        "def predict(paths):", f"import os\nos.listdir({str(spots)!r})\ndef predict(paths):"
    )
    result = finish(
        [combine_calls(write({"deliver/predict.py": spy}), script("python train.py && python export.py")), say("Done.")]
    )
    check_end(result, "failed")
    assert result.model_dir is None


def test_a_project_that_does_not_run(build) -> None:
    broken = {
        **PROJECT,
        "Model/network.py": "def build_model(plan):\n    raise ValueError('no such network: resnet0')\n",
    }
    result = build(module=[write(broken), say("In place.")], max_iterations=0)
    check_end(result, "failed", "Model/network.py", "no such network: resnet0")


def test_a_script_that_fails_for_ever(build) -> None:
    steps = iter(range(1000))
    result = build(index=[lambda m, t: script(f"echo try {next(steps)}; exit 3")], max_iterations=2)
    check_end(result, "failed", "2 debug iterations are spent")
    assert result.usage["iterations"] == 2
    answers = of_kind(Path(result.run_dir), "result", "data_engineer")
    assert {answer["data"]["exit_code"] for answer in answers} == {3}


def test_no_second_try_without_debugging(build) -> None:
    result = build(index=[script("exit 3"), script("exit 4")], debug=False)
    check_end(result, "failed")
    assert len(of_kind(Path(result.run_dir), "result", "data_engineer")) == 1


@pytest.mark.parametrize("error", [LLMError, Authentication, BadRequest])
def test_a_provider_that_fails(build, error: type[LLMError]) -> None:
    check_end(build(selection=[llm_error(error, "The provider said no.")]), "failed", "The provider said no.")


def test_trouble_that_passes_costs_no_action(build) -> None:
    moods = iter([transient_error(7.0), transient_error(), choice("spots")])
    model = actor(play(selection=[lambda m, t: next(moods)], index=HALT))
    result = build(llm=model)
    check_end(result, "failed", STOP)
    assert result.usage["actions"] == 0
    assert model.waits[0][1] >= 7, "the provider asked for seven seconds"
    assert of_kind(Path(result.run_dir), "waiting") == [], "waiting is shown, and not kept"


def test_a_window_that_is_too_small(build) -> None:
    check_end(build(selection=[overflow_error()]), "failed", "too long")
    assert issubclass(ContextOverflow, LLMError)


def test_a_model_of_the_users_that_raises(build, tmp_path: Path) -> None:
    """A fault of the user's own function ends the run as failed, and is named; the run is closed properly."""

    def failing_model(messages, tools):
        raise ZeroDivisionError("in my own code")

    result = build(llm=failing_model, request=REQUEST)
    assert result.status == "failed"
    assert "in my own code" in result.reason
    check_left(tmp_path / "run", "failed")
