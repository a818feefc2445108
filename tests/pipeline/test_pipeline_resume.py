"""Going on with a run: after a failure, after a kill, elsewhere, twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from pipeline_kit import (
    REQUEST,
    TRAIN,
    actor,
    check_end,
    choice,
    copy_run,
    journal,
    left_running,
    m3b_command,
    of_kind,
    play,
    plugin,
    script,
    wait_until,
)  # fmt: skip

from m3b import Pipeline, resume
from m3b.errors import LLMError, UsageError
from m3b.run.result import Result
from m3b.testing.scripted_model import llm_error


def test_accepted_work_is_not_done_again(finish) -> None:
    model = actor(play())
    result: Result = finish(llm=model)
    events = check_end(result, "completed")
    artifacts = [e["data"]["artifact"] for e in events if e["kind"] == "artifact"]
    assert artifacts == ["selection", "index", "module", "model"], "each once"
    assert [e["kind"] for e in events].count("run_started") == 2
    assert len(model.requests) == 2, "only the last role was asked"
    assert result.usage["actions"] == 5
    assert result.roles["task_manager"]["status"] == "done"


def test_the_conversation_goes_on_where_it_stopped(build) -> None:
    """The model fails in the middle of a role; after that the model sees what it had done."""
    acts = [script("echo first"), script("echo second"), llm_error(LLMError, "The line is dead.")]
    first = build(index=acts)
    check_end(first, "failed", "The line is dead.")
    model = actor(play(index=[*acts[:2], *play()["index"]], module=[llm_error(LLMError, "Enough.")]))
    second = resume(first.run_dir, model)
    check_end(second, "failed", "Enough.")
    message_texts = [message.text for message in model.requests[0][0]]
    assert any("first" in text for text in message_texts)
    assert any("second" in text for text in message_texts)
    prompts = of_kind(Path(first.run_dir), "prompt", "data_engineer")
    assert len(prompts) == 1, "no second briefing"
    calls = [c["arguments"].get("command") for c in of_kind(Path(first.run_dir), "call", "data_engineer")]
    assert calls.count("echo first") == calls.count("echo second") == 1


def test_a_run_that_has_ended_well_is_returned_as_it_is(finish) -> None:
    first: Result = finish()
    before = (Path(first.run_dir) / "journal.jsonl").read_bytes()
    again = resume(first.run_dir, actor({}))
    assert again == first
    assert (Path(first.run_dir) / "journal.jsonl").read_bytes() == before


def test_a_moved_run_knows_where_it_is(finish, tmp_path: Path) -> None:
    result: Result = finish()
    assert Path(result.run_dir) == tmp_path / "copy"
    assert Path(str(result.model_dir)).is_relative_to(tmp_path / "copy")


def test_one_agent_goes_on_too(build) -> None:
    first = build(roles="single", module=[llm_error(LLMError, "Gone.")])
    prompts = of_kind(Path(first.run_dir), "prompt")
    assert [bool(p["system"]) for p in prompts] == [True, False, False]
    sizes = [e["usage"]["input_tokens"] for e in of_kind(Path(first.run_dir), "reply")]
    assert sizes == sorted(sizes), "one conversation, which only grows"
    check_end(first, "failed", "Gone.")
    model = actor(play())
    second = resume(first.run_dir, model)
    check_end(second, "completed")
    starts = [m.text for m in model.requests[-1][0] if m.role == "user" and m.text.startswith("Stage: ")]
    assert [text.splitlines()[0] for text in starts] == [
        "Stage: selection", "Stage: index", "Stage: module", "Stage: model",
    ]  # fmt: skip


def test_the_budget_goes_on_too(build) -> None:
    first = build(index=[script("echo 1"), script("echo 2"), llm_error(LLMError, "Gone.")], max_actions=3)
    second = resume(first.run_dir, actor(play(index=[script(f"echo {n}") for n in range(3, 9)])))
    check_end(second, "out_of_budget", "3 actions")
    assert second.usage["actions"] == 3


def test_a_model_that_was_an_object_has_to_be_given_again(halfway_run: Path, tmp_path: Path) -> None:
    place = copy_run(halfway_run, tmp_path / "copy")
    with pytest.raises(UsageError, match="scripted"):
        resume(place)
    assert json.loads((place / "run.json").read_text())["status"] == "failed", "nothing is changed by the attempt"


def test_there_is_no_such_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    with pytest.raises(UsageError, match="no run nowhere"):
        resume("nowhere")
    with pytest.raises(UsageError, match="no runs"):
        resume("last")


def test_a_run_that_another_process_works_on(spots: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(actor(play(index=[script("sleep 600")])), data=[spots], out=tmp_path / "run")
    events = pipeline.iter(REQUEST)
    try:
        next(event for event in events if event.kind == "call")
        with pytest.raises(UsageError, match="at work in another process"):
            resume(tmp_path / "run", actor())
    finally:
        events.close()


# --- killed ------------------------------------------------------------------------------------------------------

KILLED = """
GO = Path({go!r})
def patient(command):
    return script(command if GO.exists() else f"echo begun; sleep 987 # {{command}}")
acts = play(**{{"module": [llm_error(LLMError, "Enough.")], {stage!r}: {steps} }})
"""


@pytest.mark.parametrize(
    ("stage", "steps"),
    [
        ("index", "[lambda m, t: combine_calls(write({'m.py': MAKE_INDEX}), patient('python m.py')), "
                  "lambda m, t: patient('python m.py'), say('Indexed.')]"),
        ("model", f"[lambda m, t: patient({TRAIN!r}), lambda m, t: patient({TRAIN!r}), say('Done.')]"),
    ],
)  # fmt: skip
def test_kill_and_resume(tmp_path: Path, spots: Path, halfway_run: Path, stage: str, steps: str) -> None:
    """SIGKILL while a script runs: nothing is left running, the journal is whole, and the next process finishes."""
    go = tmp_path / "go"
    env = plugin(tmp_path / "plugin", KILLED.format(go=str(go), stage=stage, steps=steps))
    run = tmp_path / "run"
    if stage == "model":
        copy_run(halfway_run, run)
        command = m3b_command("resume", run, "--llm", "played:x")
    else:
        command = m3b_command("run", REQUEST, "--llm", "played:x", "--data", spots, "--out", run)
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: any("sleep 987" in line for line in left_running(run)), 60, "the script runs")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    wait_until(lambda: not left_running(run), 10, "the script has gone with m3b")
    assert journal(run)[-1]["kind"] == "call"
    assert json.loads((run / "run.json").read_text())["status"] == "working"
    with (run / "journal.jsonl").open("ab") as stream:
        stream.write(b'{"kind": "reply", "role": "data_eng')  # a torn line, as a crash of the machine leaves it
    go.touch()
    ended = subprocess.run(
        m3b_command("resume", run, "--json", "--llm", "played:x"), env=env, cwd=tmp_path, capture_output=True, text=True
    )
    result = Result.from_json(json.loads(ended.stdout))
    events = check_end(result, *(("failed", "Enough.") if stage == "index" else ("completed",)))
    assert ended.returncode == (stage == "index"), ended.stderr
    artifacts = [e["data"]["artifact"] for e in events if e["kind"] == "artifact"]
    assert artifacts == ["selection", "index", "module", "model"][: 2 if stage == "index" else 4]
    assert len([e for e in events if e["kind"] == "prompt"]) == len(artifacts) + (stage == "index"), (
        "each role briefed once"
    )
    assert stage == "index" or result.integrity == "clean"


def test_a_kill_between_run_json_and_the_first_event(tmp_path: Path, spots: Path) -> None:
    """A run folder without a journal is a run that has not begun: it can be resumed."""
    first = Pipeline(actor(play(index=[llm_error(LLMError, "Gone.")])), data=[spots], out=tmp_path / "run").run(REQUEST)
    run = Path(first.run_dir)
    (run / "journal.jsonl").unlink()
    record = json.loads((run / "run.json").read_text())
    record.update(status="working", reason="", result=None)
    (run / "run.json").write_text(json.dumps(record))
    second = resume(run, actor(play(selection=[choice("spots")], module=[llm_error(LLMError, "Enough.")])))
    check_end(second, "failed", "Enough.")
    assert os.listdir(run / "work" / "Datapath")


LONG = """
import re
STEPS = '''
import json, sys, time
from pathlib import Path
place = Path("Logout/checkpoint-7")
if "--resume" in sys.argv:
    print("goes on from step", json.loads((place / "state.json").read_text())["step"])
else:
    place.mkdir(parents=True)
    (place / "state.json").write_text('{"step": 7}')
    (place / "complete.json").write_text("{}")
    time.sleep(987)
'''
def as_told(messages, tools):
    return script(re.search(r"`(python train[.]py --resume[^`]*)`", messages[-1].text)[1])
acts = play(model=[combine_calls(write({"train.py": STEPS + TRAIN_PY}), script(TRAIN)), as_told, say("Done.")])
"""


def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path: Path, halfway_run: Path) -> None:
    """The agent is told of the checkpoint and of the command that goes on from it."""
    env = plugin(tmp_path / "plugin", LONG)
    run = copy_run(halfway_run, tmp_path / "run")
    command = m3b_command("resume", run, "--json", "--llm", "played:x")
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (run / "work/Logout/checkpoint-7/complete.json").exists(), 120, "the checkpoint is there")
    finally:
        process.kill()
        process.wait()
    ended = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    result = Result.from_json(json.loads(ended.stdout))
    check_end(result, "completed")
    script_outputs = [event["text"] for event in of_kind(run, "result", "model_trainer")]
    assert "A checkpoint is there (Logout/checkpoint-7)" in script_outputs[-2]
    assert "goes on from step 7" in script_outputs[-1]
    assert [event["name"] for event in of_kind(run, "call", "model_trainer")] == [
        "write_files",
        "run_script",
        "run_script",
    ]
