"""The MCP server, driven by the SDK's own client: in this process, as a subprocess over standard input, and over HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from m3b.data.synthetic import make_chest
from m3b.errors import UsageError

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters

from m3b.serve.mcp_server import make_server
from m3b.serve.tools import ServerSettings, Tools, scrub_values

TOOLS = {
    "look_at_data", "start_run", "poll_run", "get_result", "cancel_run", "resume_run", "list_runs", "list_models", "predict"
}  # fmt: skip
TOKEN = "a-token-of-the-test-suite"  # nosec B105


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and runs; the user's list of runs is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    make_chest(tmp_path / "data/xrays", patients=40)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def use(server: Any, steps: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return what the steps of a client return."""

    async def run() -> Any:
        async with Client(server) as client:
            return await steps(client)

    return anyio.run(run)


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """Return the structured values that a tool returns."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    values = result.structured_content
    return values["result"] if isinstance(values, dict) and set(values) == {"result"} else values


def test_tools_have_descriptions_and_schemas(place: Path) -> None:
    tools = use(make_server(ServerSettings([place / "data"])), lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.description for tool in tools)


def test_data_is_looked_at(place: Path) -> None:
    async def steps(client: Client) -> Any:
        return [
            await call(client, "look_at_data", folder="xrays"),
            await call(client, "look_at_data", folder="xrays", request="Detect lung opacities on chest X-rays"),
        ]

    survey, reading = use(make_server(ServerSettings([place / "data"])), steps)
    assert any("finding" in line for line in survey["lines"])
    assert (reading["task"], reading["decision"], reading["manifest"]["task"]) == ("diagnosis", "proposed", "diagnosis")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("look_at_data", {"folder": "../elsewhere"}),
        ("look_at_data", {"folder": "/"}),
        ("start_run", {"request": "Detect opacities", "folder": "link"}),
        ("start_run", {"request": " ", "folder": "xrays"}),
        ("start_run", {"request": "Detect opacities", "folder": "xrays", "manifest": {"task": "cooking"}}),
        ("poll_run", {"run": "20200101-000000-abcd"}),
        ("get_result", {"run": "../../x"}),
        ("cancel_run", {"run": "last"}),
        ("predict", {"model": "elsewhere", "images": ["xrays"]}),
        ("look_at_data", {"folder": "xrays", "request": "lungs " * 1000}),
        ("look_at_data", {"folder": ""}),
        ("look_at_data", {"folder": "xr\0ays"}),
        ("start_run", {"request": "Detect opacities", "folder": "xrays", "train_minutes": -1}),
        ("predict", {"model": "last", "images": []}),
    ],
)
def test_what_cannot_be_is_refused_in_words(place: Path, tool: str, arguments: dict[str, Any]) -> None:
    (place / "data/link").symlink_to(place / "elsewhere")
    server = make_server(ServerSettings([place / "data"]))
    result = use(server, lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    text = result.content[0].text
    assert "Traceback" not in text
    assert not text.endswith(f"Error executing tool {tool}"), "the reason is told"
    assert not list((place / "runs").glob("*/run.json"))


def test_files_of_other_folders_are_not_read_as_runs(place: Path) -> None:
    other_run = place / "elsewhere/run"
    other_run.mkdir()
    (other_run / "run.json").write_text(json.dumps({"status": "hidden status", "reason": "hidden reason"}))
    server = make_server(ServerSettings([place / "data"]))
    texts = []
    for path in (other_run, place / "nowhere"):
        arguments = {"model": str(path), "images": ["xrays"]}
        result = use(server, lambda client, arguments=arguments: client.call_tool("predict", arguments))
        texts.append(result.content[0].text.replace(str(path), "PATH"))
    assert texts[0] == texts[1]


def test_masks_change_texts_alone() -> None:
    values = {"bytes": 17179869184, "note": "Call Dr. Anna Lindqvist", "items": ["a", {"b": None}]}
    masked = scrub_values(values)
    assert (masked["bytes"], masked["items"]) == (17179869184, ["a", {"b": None}])
    assert "Lindqvist" not in masked["note"]


def test_cases_of_several_images_are_resolved(place: Path) -> None:
    tools, root = Tools(ServerSettings([place / "data"])), place / "data/xrays/unseen"
    name = sorted(root.iterdir())[0].name
    relative_path, full_path = f"xrays/unseen/{name}", str(root / name)
    assert tools._resolve_case({"image": [relative_path, relative_path], "age": 61}, set()) == {
        "image": [full_path, full_path],
        "age": 61,
    }
    assert tools._resolve_case({"t1": relative_path}, {"t1", "t2"}) == {"t1": full_path}
    for case in ({"t3": relative_path}, {"t1": "../elsewhere"}, 7):
        with pytest.raises(UsageError):
            tools._resolve_case(case, {"t1", "t2"})


def test_names_of_persons_are_masked(place: Path) -> None:
    (place / "data/xrays/README.md").write_text("Collected by Dr. Anna Lindqvist, anna@clinic.example. Chest X-rays.")

    async def steps(client: Client) -> Any:
        return await call(client, "look_at_data", folder="xrays")

    assert "Lindqvist" not in json.dumps(use(make_server(ServerSettings([place / "data"])), steps))


@pytest.fixture
def address(place: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "m3b", "mcp", "--data", str(place / "data"), "--http", "--port", "0"]
    env = {**os.environ, "M3B_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        match = re.search(r"http://\S+", line)
        assert match, line
        yield match[0]
        process.terminate()


def test_http_answers_nobody_without_the_token(address: str) -> None:
    for header in ({}, {"Authorization": "Bearer another"}):
        request = urllib.request.Request(address, b"{}", {"Content-Type": "application/json", **header})
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request)
        assert refusal.value.code == 401
    other_host = {"Authorization": f"Bearer {TOKEN}", "Host": "evil.example", "Content-Type": "application/json"}
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(urllib.request.Request(address, b"{}", other_host))
    assert refusal.value.code in (403, 421)


def test_http_serves_a_client_with_the_token(address: str) -> None:
    from httpx2 import AsyncClient
    from mcp.client.streamable_http import streamable_http_client

    async def run() -> set[str]:
        headers = {"Authorization": f"bearer {TOKEN}"}
        async with (
            AsyncClient(headers=headers) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            return {tool.name for tool in (await client.list_tools()).tools}

    assert anyio.run(run) == TOOLS


@pytest.mark.slow
def test_a_client_builds_a_model_and_uses_it(place: Path) -> None:
    command = ["-m", "m3b", "mcp", "--data", str(place / "data"), "--llm", "rules", "--send-images"]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    messages: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    async def steps(client: Client) -> Any:
        started = await call(
            client, "start_run", request="Detect lung opacities on chest X-rays", folder="xrays", train_minutes=0.3
        )
        status: dict[str, Any] = {"status": "working"}
        while status["status"] == "working":
            result = await client.call_tool(
                "poll_run", {"run": started["run"], "wait_seconds": 30}, progress_callback=note
            )
            status = result.structured_content or {}
        result = await call(client, "get_result", run=started["run"])
        models = await call(client, "list_models")
        answer = await client.call_tool("predict", {"model": started["run"], "images": ["xrays/unseen"]})
        return started, status, result, models, await call(client, "list_runs"), answer

    started, status, result, models, runs, answer = use(server, steps)
    assert status["status"] == result["status"]
    assert result["primary"]["value"] > 0.5
    assert messages
    assert [model["run"] for model in models] == [started["run"]] == [run["id"] for run in runs]
    assert models[0]["task"] == "diagnosis"
    entries = json.loads(answer.content[0].text)
    assert len(entries) == 4
    assert all(sum(entry["probabilities"].values()) == pytest.approx(1, abs=0.01) for entry in entries)
    assert [part.mime_type for part in answer.content[1:]] == ["image/png"] * 4


@pytest.mark.slow
def test_a_run_is_stopped_and_goes_on(place: Path) -> None:
    async def steps(client: Client) -> Any:
        started = await call(client, "start_run", request="Detect lung opacities", folder="xrays", train_minutes=0.3)
        run = started["run"]
        assert (await client.call_tool("resume_run", {"run": run})).is_error, "it is at work"
        progress: dict[str, Any] = {}
        while not progress.get("actions"):
            progress = await call(client, "poll_run", run=run, wait_seconds=1)
        settings._processes.clear()  # as a server that was started later
        stopped = await call(client, "cancel_run", run=run)
        await call(client, "resume_run", run=run)
        while progress["status"] == "working":
            progress = await call(client, "poll_run", run=run)
        return stopped, progress

    settings = ServerSettings([place / "data"], llm="rules")
    server = make_server(settings)
    stopped, ended = use(server, steps)
    assert stopped["status"] == "cancelled"
    assert ended["status"] not in ("cancelled", "working", "interrupted")
