"""The adapters with the real programs, where they are installed: a scripted model answers in the form that each expects.

`M3B_OUTSIDE_PATH` names further folders for programs, as PATH does; each program may have an environment of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kill_kit import KillingModel
from test_systems import DELIVER

from m3b.bench.systems import CellJob, CellOutcome
from m3b.bench.systems.external_systems import EXTERNAL_SYSTEMS
from m3b.errors import SandboxError
from m3b.isolation.sandbox import choose_sandbox
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, llm_error, say

pytestmark = pytest.mark.slow

PROBE = """
import json, os, socket
from pathlib import Path
try:
    socket.create_connection(("1.1.1.1", 80), 3)
    network = True
except OSError:
    network = False
try:
    Path("/usr/m3b-probe").write_text("x")
    outside = True
except OSError:
    outside = False
keys = sorted(name for name in os.environ if name.endswith(("_KEY", "_TOKEN", "_SECRET")))
print("probe", json.dumps({"network": network, "outside": outside, "keys": keys}))
"""
"""What the program's scripts can reach, said in their output, which goes back to the model."""

Steps = list[Callable[..., Any] | Any]


def mini(script: str | None) -> Steps:
    done = call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    return [
        call("bash", command=f"cat > make.py <<'END'\n{script}\nEND\npython make.py")
        if script
        else call("bash", command="ls"),
        done,
    ]


def smolagents(script: str | None) -> Steps:
    run = "print(subprocess.run(['python', 'make.py'], capture_output=True, text=True).stdout)"
    code = (
        f"import subprocess\nwith open('make.py', 'w') as f:\n    f.write({script!r})\n{run}" if script else "print(1)"
    )
    # a model that does not stop by itself goes on to dream what it will see
    return [say(f"Thought: I do it.\n<code>\n{code}\n</code>\nObservation: a dream"),
            say("Thought: That is all.\n<code>\nfinal_answer('done')\n</code>")]  # fmt: skip


def aider(script: str | None) -> Steps:
    def format_file(name: str, text: str) -> str:
        return f"{name}\n````\n{text.strip()}\n````\n\n"

    look = [say(f"Once more.\n\n{format_file('main.sh', f'echo look {number}; exit 1')}") for number in range(4)]
    if script is None:
        return look
    last = say("Done.\n\n" + format_file("main.sh", "python make.py"))
    final_files = format_file("make.py", script) + format_file("main.sh", "python make.py\nexit 1")
    return [*look, say("I write it.\n\n" + final_files), last]


def aide(script: str | None) -> Steps:
    run = "print(subprocess.run(['python', 'make.py', '../../Deliver'], capture_output=True, text=True).stdout)"
    code = f"import subprocess\nopen('make.py', 'w').write({script!r})\n{run}" if script else "print(1)"

    def answer(messages: Any, tools: Any) -> Any:
        if tools:
            return call("submit_review", is_bug=False, summary="It runs.", metric=0.5, lower_is_better=False)
        return say(f"I write the folder at once.\n\n```python\n{code}\n```")

    return [answer]


def mlzero(script: str | None) -> Steps:
    code = script or "print(1)"

    def answer(messages: Any, tools: Any) -> Any:
        text = messages[-1].text.lstrip()
        if text.startswith("Generate Python code to read"):
            return say("```python\nprint('a table')\n```")
        if "expert code evaluator" in text[:200]:
            return say("DECISION: FINISH\nERROR_SUMMARY: None")
        if text.startswith("As an AutoML Agent"):
            return say(f"```python\n{code}\n```")
        if "Execute the Python script: " in text:
            path = text.partition("Execute the Python script: ")[2].splitlines()[0]
            return say(f"```bash\npython {path}\n```")
        return say("Description Files:\n\nSELECTED_LIBRARY: machine learning\nEXPLANATION: It fits.")

    return [answer]


ACTIONS = {"mlzero": 12}
"""Requests that a program needs for its first model, if more than 8."""

CASES = {"mini-swe-agent": mini, "smolagents": smolagents, "aider": aider, "aide": aide, "crea": aide, "meddle": aide,
         "mlzero": mlzero}  # fmt: skip


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A system that can be started here."""
    extra_path = os.environ.get("M3B_OUTSIDE_PATH", "")
    monkeypatch.setenv("PATH", f"{extra_path}{os.pathsep}{os.environ['PATH']}" if extra_path else os.environ["PATH"])
    monkeypatch.setenv("SECRET_API_KEY", "s3cret")
    missing_reason = EXTERNAL_SYSTEMS[request.param].explain_missing()
    if missing_reason:
        pytest.skip(missing_reason)
    try:
        choose_sandbox("bubblewrap")
    except SandboxError as error:
        pytest.skip(f"outside systems need bubblewrap: {error}")
    return str(request.param)


def run(name: str, folder: Path, model: ScriptedModel, actions: int, *, restart: bool = False) -> CellOutcome:
    data = folder / "spots"
    data.mkdir(exist_ok=True)
    (data / "table.csv").write_text("image,label\na.png,1\n")
    card = {"name": "Spots", "description": "Invented.", "path": str(data)}
    options = {"max_actions": actions, "train_minutes": 1.0, "max_wall": 300, "sandbox": "bubblewrap"}
    job = CellJob(folder / "cell", "Tell spots apart.", [card], "openai:gpt-5-codex", options)
    system = replace(EXTERNAL_SYSTEMS[name], connect=lambda spec: model)
    return system.restart(job) if restart else system.run(job)


def conversation_text(model: ScriptedModel) -> str:
    return "\n".join(message.text for messages, _ in model.requests for message in messages)


def test_it_delivers(name: str, tmp_path: Path) -> None:
    model = ScriptedModel(CASES[name](DELIVER + PROBE), repeat=True)
    ended = run(name, tmp_path, model, ACTIONS.get(name, 8))
    assert ended.status == "completed", ended.reason
    assert (Path(ended.model) / "predict.py").is_file()
    assert ended.usage["actions"] == len(model.requests) <= ACTIONS.get(name, 8), (
        "each request is an action, and none is asked twice"
    )
    assert ended.usage["output_tokens"] > 0
    assert ended.integrity == "clean"
    assert "Tell spots apart." in conversation_text(model)
    probed = conversation_text(model).replace('\\"', '"').partition("probe {")[2].partition("}")[0]
    assert json.loads("{" + probed + "}") == {"network": False, "outside": False, "keys": ["OPENAI_API_KEY"]}
    assert "a dream" not in conversation_text(model), "what follows a stop word is not given back"
    assert {path.name for path in tmp_path.iterdir()} == {"spots", "cell"}, "nothing is left outside the run"
    assert [path.name for path in (tmp_path / "spots").iterdir()] == ["table.csv"]


def test_whether_a_killed_run_goes_on(name: str, tmp_path: Path) -> None:
    """A program that goes on needs fewer requests than a new run, or sends what the model has answered before."""
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    whole = ScriptedModel(CASES[name](DELIVER), repeat=True)
    assert run(name, folders[0], whole, ACTIONS.get(name, 8)).status == "completed"
    killed = KillingModel(CASES[name](DELIVER), folders[1], kill_at=2)
    run(name, folders[1], killed, ACTIONS.get(name, 8))
    assert killed.kill_count > 0
    assert len(killed.requests) == 2, "it is dead"
    again = ScriptedModel(CASES[name](DELIVER), repeat=True)
    assert run(name, folders[1], again, ACTIONS.get(name, 8), restart=True).status == "completed"
    remembers = any(message.role == "assistant" for message in again.requests[0][0])
    goes_on = remembers or len(again.requests) < len(whole.requests)
    assert EXTERNAL_SYSTEMS[name].is_resumable is goes_on


def test_the_budget_ends_it(name: str, tmp_path: Path) -> None:
    # AIDE plans its steps by the budget; it asks oftener where a reply holds no code
    steps = [say("I think.")] if name in ("aide", "crea", "meddle", "mlzero") else CASES[name](None)[:1]
    ended = run(name, tmp_path, ScriptedModel(steps, repeat=True), 3)
    assert ended.status == "out_of_budget", ended.reason
    assert ended.usage["actions"] == 3
    assert "all 3 requests are used; there is no folder Deliver" in ended.reason


def test_it_gives_up(name: str, tmp_path: Path) -> None:
    giving = {"mini-swe-agent": CASES["mini-swe-agent"](None), "smolagents": CASES["smolagents"](None)[1:],
              "aider": [say("I cannot do this.")]}  # fmt: skip
    model = ScriptedModel(giving.get(name) or CASES[name](None), repeat=True)
    ended = run(name, tmp_path, model, ACTIONS.get(name, 4))
    assert (ended.status, ended.kind) == ("failed", "")
    assert "no folder Deliver" in ended.reason


def test_no_model_answers(name: str, tmp_path: Path) -> None:
    ended = run(name, tmp_path, ScriptedModel([llm_error()], repeat=True), 3)
    assert (ended.status, ended.kind) == ("failed", "provider"), ended.reason
