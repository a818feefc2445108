"""Outside systems: each adapter with a fake program that speaks its command line, the relay, and the plain ReAct agent."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from m3b.bench import published_results
from m3b.bench.relay import Relay, UsageMeter
from m3b.bench.relay.loopback import ask_relay
from m3b.bench.relay.server import read_messages, read_tools, to_completion
from m3b.bench.systems import CellJob, get_system, list_systems
from m3b.bench.systems.command import CommandSystem, parse_command, read_claim
from m3b.bench.systems.external_systems import AIDE, AIDER, CREA, MEDDLE, MINI_SWE_AGENT, MLZERO, REACT, SMOLAGENTS
from m3b.bench.systems.react_agent import parse_reply
from m3b.errors import UsageError
from m3b.llm.conversation import validate_conversation
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, llm_error, overflow_error, say

DELIVER = """
import json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
out = Path(sys.argv[1] if len(sys.argv) > 1 else "Deliver")
out.mkdir(parents=True, exist_ok=True)
save_file({"w": np.zeros(1, np.float32)}, out / "model.safetensors")
(out / "config.json").write_text(json.dumps({"task": "diagnosis", "classes": ["a", "b"], "multi_label": False}))
(out / "predict.py").write_text("print('no')\\n")
(out / "README.md").write_text("# x\\n")
(out / "requirements.txt").write_text("numpy\\n")
"""

FAKE = """#!{python}
import json, os, sys, urllib.request
from pathlib import Path
Path("seen.json").write_text(json.dumps({{"argv": sys.argv[1:], "cwd": os.listdir("."), "keys": sorted(
    name for name in os.environ if name.endswith("_API_KEY")), "model": os.environ["M3B_MODEL"]}}))
body = json.dumps({{"model": "x", "messages": [{{"role": "user", "content": "What now?"}}]}}).encode()
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                 {{"Content-Type": "application/json"}})
answer = json.loads(urllib.request.urlopen(request).read())
Path("told.txt").write_text(answer["choices"][0]["message"]["content"])
sys.argv = ["x", {place!r}]
exec({deliver!r})
"""


def fake(folder: Path, name: str, place: str = "Deliver") -> None:
    """A program on the PATH that notes what it was told, asks the model once and delivers."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(FAKE.format(python=sys.executable, deliver=DELIVER, place=place))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def job(tmp_path: Path) -> CellJob:
    data = tmp_path / "spots"
    data.mkdir()
    (data / "table.csv").write_text("image,label\na.png,1\n")
    card = {"name": "Spots", "description": "Invented.", "path": str(data)}
    options = {"max_actions": 7, "train_minutes": 1.0}
    return CellJob(tmp_path / "cell", "Tell spots apart.", [card], "anthropic:some-model", options)


def run(system: CommandSystem, job: CellJob, *steps: Any) -> Any:
    model = ScriptedModel([*steps, say("Go on.")], repeat=True)
    return replace(system, connect=lambda spec: model).run(job)


@pytest.mark.parametrize(
    ("system", "program", "place", "needed"),
    [
        (AIDER, "aider", "Deliver", ["--model", "openai/some-model", "--message-file", "PROMPT.md", "--yes-always"]),
        (
            MINI_SWE_AGENT,
            "mini",
            "Deliver",
            ["-m", "openai/relay", "-y", "--exit-immediately", "environment.timeout=3600"],
        ),
        (SMOLAGENTS, "smolagent", "Deliver", ["--model-id", "openai/relay", "--tools"]),
        (
            AIDE,
            "aide",
            "workspaces/m3b/working/Deliver",
            ["desc_file=PROMPT.md", "agent.code.model=relay", "agent.steps=3", "generate_report=False"],
        ),
        *(
            (system, system.name, "workspaces/0-m3b/working/Deliver", ["agent.steps=3", "agent.feedback.model=relay"])
            for system in (CREA, MEDDLE)
        ),
        (MLZERO, "mlzero", "Deliver", ["-i", "data/spots", "-c", "mlzero.yaml", "-n", "7"]),
    ],
    ids=["aider", "mini", "smolagents", "aide", "crea", "meddle", "mlzero"],
)
def test_adapters(
    system: CommandSystem,
    program: str,
    place: str,
    needed: list[str],
    job: CellJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "s3cret")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake(tmp_path / "bin", program, place)
    assert system.explain_missing() == ""
    ended = run(system, job)
    assert ended.status == "completed", ended.reason
    work = Path(ended.work)
    recorded = json.loads((work / "seen.json").read_text())
    for word in needed:
        assert word in recorded["argv"]
    assert recorded["keys"] == ["OPENAI_API_KEY"], "no key of this machine gets in"
    assert {"data", "resources", "PROMPT.md"} <= set(recorded["cwd"]), "the same workspace as m3b's own agents"
    assert (work / "told.txt").read_text() == "Go on."
    assert ended.usage["actions"] == 1
    assert ended.usage["input_tokens"] > 0
    assert ended.integrity == "clean"
    assert (Path(ended.model) / "predict.py").is_file()


def test_the_prompt_is_the_combined_one(job: CellJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    fake(tmp_path / "bin", "agent")
    ended = run(parse_command("command:agent --task {prompt_file} --model {model}"), job)
    prompt = (Path(ended.work) / "PROMPT.md").read_text()
    for words in ("Task Manager", "Data Engineer", "Module Architect", "Model Trainer", "Tell spots apart.", "Spots",
                  "data at data/spots", "7 requests", "datacards.md", "DECLINED.txt"):  # fmt: skip
        assert words in prompt
    recorded = json.loads((Path(ended.work) / "seen.json").read_text())
    assert recorded["argv"] == ["--task", "PROMPT.md", "--model", "some-model"]


def test_what_is_not_installed_says_what_to_install(job: CellJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name, package in (("aider", "aider-chat"), ("mini-swe-agent", "mini-swe-agent"), ("aide", "aideml")):
        system = get_system(name)
        if not system.explain_missing():
            continue
        assert f"pip install {package}" in system.explain_missing()
        ended = system.run(job)
        assert (ended.status, ended.kind) == ("failed", "not_installed")


@pytest.mark.parametrize(
    ("text", "claimed"),
    [
        ('{"metric": "auroc", "value": 0.91}', {"name": "auroc", "value": 0.91}),
        ('{"metric": "auroc", "value": "0.91"}', {"name": "auroc", "value": 0.91}),
        ('{"metric": "auroc", "value": NaN}', None),
        ('{"metric": "auroc"}', None),
        ("[" * 100_000, None),
        ("[1, 2]", None),
        ("auroc 0.91", None),
        ('"' + "x" * 70_000 + '"', None),
    ],
    ids=["number", "text", "nan", "incomplete", "deep", "list", "prose", "large"],
)
def test_claims_are_read_with_care(text: str, claimed: dict[str, Any] | None, tmp_path: Path) -> None:
    (tmp_path / "Deliver").mkdir()
    assert read_claim(tmp_path / "Deliver") is None
    (tmp_path / "CLAIM.json").write_text(text)
    assert read_claim(tmp_path / "Deliver") == claimed
    (tmp_path / "CLAIM.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "CLAIM.json").symlink_to(tmp_path / "elsewhere.json")
    assert read_claim(tmp_path / "Deliver") is None, "a link may lead outside the run"


def test_a_claim_and_a_second_start(job: CellJob, tmp_path: Path) -> None:
    code = "\n".join(
        [
            "import os, pathlib",
            "if not pathlib.Path('half').exists():",
            "    pathlib.Path('half').write_text('x')",
            "    raise SystemExit(9)",
            DELIVER,
            "pathlib.Path('CLAIM.json').write_text(json.dumps({'metric': 'auroc', 'value': 0.93}))",
        ]
    )
    system = replace(CommandSystem("twice", ("{python}", "-c", code)), connect=lambda spec: ScriptedModel())
    first = system.run(job)
    assert (first.status, first.claimed) == ("failed", None)
    second = system.restart(job)
    assert second.status == "completed", second.reason
    assert second.claimed == {"name": "auroc", "value": 0.93}
    with pytest.raises(OSError):
        system.restart(replace(job, folder=tmp_path / "nowhere"))


def test_a_deliverable_outside_the_run_is_none(job: CellJob, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "make.py").write_text(DELIVER)
    link = f"import os; os.symlink({str(outside)!r}, 'best')"
    subprocess.run([sys.executable, "make.py"], cwd=outside, check=True)
    system = CommandSystem("linked", ("{python}", "-c", link), deliverable="best/Deliver")
    ended = run(system, job)
    assert ended.status == "failed"
    assert not ended.model


def test_a_refusal_a_crash_and_nothing(job: CellJob, tmp_path: Path) -> None:
    shell = "command:sh -c"
    ended = run(parse_command(f"{shell} 'echo no fitting data > DECLINED.txt' {{prompt_file}}"), job)
    assert (ended.status, ended.reason) == ("no_dataset", "no fitting data")
    again = CellJob(tmp_path / "two", job.request, job.cards, job.model, job.options)
    ended = run(parse_command(f"{shell} 'echo boom; exit 9' {{prompt_file}}"), again)
    assert (ended.status, ended.kind) == ("failed", "crashed")
    assert "boom" in ended.reason
    third = CellJob(tmp_path / "three", job.request, job.cards, job.model, {**job.options, "max_wall": 2})
    ended = run(parse_command(f"{shell} 'sleep 100' {{prompt_file}}"), third)
    assert (ended.status, ended.kind) == ("out_of_budget", "timeout")


@pytest.mark.confined
def test_a_command_cannot_write_the_data(job: CellJob) -> None:
    ended = run(parse_command("command:sh -c 'echo x >> data/spots/table.csv; true' {prompt_file}"), job)
    assert ended.integrity == "clean"
    assert Path(str(job.cards[0]["path"]), "table.csv").read_text() == "image,label\na.png,1\n"


def test_react_works_in_its_loop(job: CellJob) -> None:
    def turn(action: str, **arguments: str) -> Any:
        return say(f"Reflection: x\nThought: y\nAction: {action}\nAction Input: {json.dumps(arguments)}")

    steps = [
        turn("List Files", path="."),
        say("I forgot the format."),
        turn("Write File", path="make.py", text=DELIVER),
        turn("Run Command", command=f"{sys.executable} make.py && ls Deliver"),
        turn("Final Answer", answer="done"),
    ]
    ended = run(REACT, job, *steps)
    assert ended.status == "completed", ended.reason
    assert ended.usage["actions"] == 5


def test_react_ends_when_the_budget_does(job: CellJob) -> None:
    ended = run(REACT, CellJob(job.folder, job.request, job.cards, job.model, {**job.options, "max_tokens": 10}))
    assert ended.status == "out_of_budget"
    assert ended.usage["actions"] == 1


def test_react_reads_replies() -> None:
    assert parse_reply('Thought: t\nAction: Run Command\nAction Input: {"command": "ls"}\nObservation: none') == (
        "run command", {"command": "ls"})  # fmt: skip
    for bad in ("", "Action: x", "Action: x\nAction Input: no", "Action: x\nAction Input: [1]"):
        with pytest.raises(ValueError):
            parse_reply(bad)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}).encode()


def test_the_relay_counts_and_refuses(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "go", "description": "d", "parameters": {"type": "object"}}}
    meter = UsageMeter(max_requests=4)
    model = ScriptedModel([say("Hello."), call("go", x=1), overflow_error(), llm_error(), say("never")])
    with Relay(tmp_path, model, meter):
        status, answer = ask_relay(tmp_path, body())
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "Hello.")
        status, answer = ask_relay(tmp_path, body(tools=[tool]))
        function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert (function["name"], json.loads(function["arguments"])) == ("go", {"x": 1})
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        status, answer = ask_relay(tmp_path, body())
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert meter.failure == ""
        assert ask_relay(tmp_path, body())[0] == 502
        assert ask_relay(tmp_path, body())[0] == 401, "403 is tried again for minutes by some programs"
        assert ask_relay(tmp_path, b"no json")[0] == 401
    assert (meter.requests, meter.refusal, meter.failed_in_a_row) == (4, "all 4 requests are used", 4)
    assert model.requests[1][1][0].name == "go"
    assert list(tmp_path.iterdir()) == []


def test_the_relay_reads_whole_conversations() -> None:
    request = {"messages": [
        {"role": "developer", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    ]}  # fmt: skip
    messages = read_messages(request)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[1].text == "a\nb"
    assert messages[2].calls[0].arguments == {"x": 1}
    assert messages[3].call_id == "c1"


def test_the_relay_puts_conversations_in_order() -> None:
    alone = {"messages": [{"role": "system", "content": "s"}]}
    assert [item.role for item in read_messages(alone)] == ["user"]
    forced = {**alone, "tool_choice": {"type": "function", "function": {"name": "review"}}}
    assert [item.role for item in read_messages(forced)] == ["system", "user"]
    assert "`review`" in read_messages(forced)[1].text
    late = {"messages": [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "user", "system")]}
    for request in (alone, forced, late):
        validate_conversation(read_messages(request))
    tools = [{"type": "function", "function": {"name": "go"}}]
    assert [item.name for item in read_tools({"tools": tools})] == ["go"]
    assert read_tools({"tools": tools, "tool_choice": "none"}) == []


def test_the_relay_keeps_stop_words() -> None:
    for stop, expected in (
        ("</code>", "a"),
        (["Observation:", "</code>"], "a"),
        (None, "a</code> Observation: b"),
        (["c:"], None),
    ):
        completion = to_completion(say("a</code> Observation: b" if expected else "c: d"), {"stop": stop}, 1)
        assert completion["choices"][0]["message"]["content"] == expected


def test_who_asks_in_vain_is_stopped(job: CellJob) -> None:
    asks = (
        "import os, time, urllib.request\nwhile True:\n    try:\n        urllib.request.urlopen(urllib.request.Request("
        "os.environ['M3B_BASE_URL'] + '/chat/completions', b'{\"messages\": []}'))\n    except OSError:\n        time.sleep(0.01)"
    )
    endless = CommandSystem("endless", ("{python}", "-c", asks))
    ended = run(endless, CellJob(job.folder, job.request, job.cards, job.model, {"max_actions": 0}))
    assert ended.status == "out_of_budget"


def test_names() -> None:
    assert {"m3b", "m3b-single", "m3b-no-debug", "m3b-no-reflect", "m3b-no-examples", "aider", "mini-swe-agent",
            "smolagents", "aide", "crea", "meddle", "mlzero", "react", "autoresearch",
            "role:data_engineer"} <= set(list_systems())  # fmt: skip
    assert {"Cursor Composer", "Windsurf Cascade", "Copilot Edits"} <= {
        row.name for row in published_results.load_systems()
    }
    for name, words in (("Cursor", "no headless form"), ("nobody", "There is no system"), ("role:cook", "no role"),
                        ("command:", "needs a program")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            get_system(name)
