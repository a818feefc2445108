"""The adapters with the real programs, where they are installed: a scripted model answers in the form that each expects.

`M3B_OUTSIDE_PATH` names further folders for programs, as PATH does; each program may have an environment of its own.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from program_kill_kit import KillingModel
from program_replies import REPLIES
from test_systems import DELIVER

from m3b.bench.systems import CellJob, CellOutcome
from m3b.bench.systems.external_systems import EXTERNAL_SYSTEMS
from m3b.errors import SandboxError
from m3b.isolation.sandbox import choose_sandbox
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import llm_error, say

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

ACTIONS = {"mlzero": 12}
"""Requests that a program needs for its first model, if more than 8."""


@pytest.fixture(params=REPLIES)
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
    model = ScriptedModel(REPLIES[name](DELIVER + PROBE), repeat=True)
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


def count_replies(model: ScriptedModel) -> int:
    """Replies in the first request; aider sends examples in any case."""
    return sum(message.role == "assistant" for message in model.requests[0][0])


def test_whether_a_killed_run_goes_on(name: str, tmp_path: Path) -> None:
    """A program that goes on needs fewer requests than a new run, or sends what the model has answered before."""
    folders = [tmp_path / "whole", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    whole = ScriptedModel(REPLIES[name](DELIVER), repeat=True)
    assert run(name, folders[0], whole, ACTIONS.get(name, 8)).status == "completed"
    killed = KillingModel(REPLIES[name](DELIVER), folders[1], kill_at=2)
    run(name, folders[1], killed, ACTIONS.get(name, 8))
    assert killed.kill_count > 0
    assert len(killed.requests) == 2, "it is dead"
    again = ScriptedModel(REPLIES[name](DELIVER), repeat=True)
    assert run(name, folders[1], again, ACTIONS.get(name, 8), restart=True).status == "completed"
    remembers = count_replies(again) > count_replies(whole)
    goes_on = remembers or len(again.requests) < len(whole.requests)
    assert EXTERNAL_SYSTEMS[name].is_resumable is goes_on


def test_the_budget_ends_it(name: str, tmp_path: Path) -> None:
    # AIDE plans its steps by the budget; it asks oftener where a reply holds no code
    steps = [say("I think.")] if name in ("aide", "crea", "meddle", "mlzero") else REPLIES[name](None)[:1]
    ended = run(name, tmp_path, ScriptedModel(steps, repeat=True), 3)
    assert ended.status == "out_of_budget", ended.reason
    assert ended.usage["actions"] == 3
    assert "all 3 requests are used; there is no folder Deliver" in ended.reason


def test_it_gives_up(name: str, tmp_path: Path) -> None:
    giving = {"mini-swe-agent": REPLIES["mini-swe-agent"](None), "smolagents": REPLIES["smolagents"](None)[1:],
              "aider": [say("I cannot do this.")]}  # fmt: skip
    model = ScriptedModel(giving.get(name) or REPLIES[name](None), repeat=True)
    ended = run(name, tmp_path, model, ACTIONS.get(name, 4))
    assert (ended.status, ended.kind) == ("failed", "")
    assert "no folder Deliver" in ended.reason


def test_no_model_answers(name: str, tmp_path: Path) -> None:
    ended = run(name, tmp_path, ScriptedModel([llm_error()], repeat=True), 3)
    assert (ended.status, ended.kind) == ("failed", "provider"), ended.reason
