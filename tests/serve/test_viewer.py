"""`m3b view` as ASGI application: who is let in, the list, the comparison, and a run that is followed from its journal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient
from typer.testing import CliRunner

from m3b.cli.app import app
from m3b.errors import UsageError
from m3b.events import (
    ArtifactChecked,
    CandidateMeasured,
    Event,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ToolCalled,
)
from m3b.journal import Journal
from m3b.run.folder import RunFolder
from m3b.serve.view import live_routes
from m3b.serve.view.app import make_view_app
from m3b.serve.view.compare_routes import compare_test_sets
from m3b.serve.view.context import ViewSettings
from m3b.serve.view.live_routes import MAX_PAST_MESSAGES, RunFollower
from m3b.serve.view.run_index import make_key

TOKEN = "a-token-of-the-test-suite"  # nosec B105
HOSTILE = "</script><img src=x onerror=window.pwned=1>\"'"
START = RunStarted("tell spots", "a-run", {"name": "bubblewrap"}, at=1000.0)
LOG = "fold,epoch,step,train_loss,auroc,seconds\n" + "".join(
    f"0,{epoch},{9 * epoch},{1 / epoch:.3f},{0.5 + epoch / 20:.3f},{4 * epoch}\n" for epoch in range(1, 6)
)


def make_measure(value: float) -> dict[str, Any]:
    return {"name": "auroc", "value": value, "low": value - 0.1, "high": value + 0.05, "n": 60, "baseline": 0.5}


def make_run(
    folder: Path,
    value: float | None = 0.9,
    status: str = "completed",
    test_digest: str = "a",
    data: str = "/data/x",
    **record: Any,
) -> RunFolder:
    """Write a run that has ended, or one that is at work or was interrupted."""
    run = RunFolder.create(folder)
    result: dict[str, Any] | None = None
    if value is not None:
        usage = {"actions": 7, "input_tokens": 1000, "output_tokens": 234, "wall_s": 65}
        result = {"status": status, "primary": make_measure(value), "task": "diagnosis", "usage": usage,
                  "metrics": {"auroc": make_measure(value), "accuracy": {"name": "accuracy", "value": 0.75}}}  # fmt: skip
    values = {"id": run.id, "request": f"tell spots in {run.id}", "status": status, "started": 1000.0, "result": result,
              "reason": f"auroc {value}", "stages": ["task_manager", "model_trainer"],
              "data": [{"name": "spots", "path": data}]}  # fmt: skip
    run.save_record({**values, **record})
    (run.locked / "hashes.json").write_text(json.dumps({"index": {"Datapath/test.json": test_digest}}))
    (run.work / "Logout").mkdir()
    (run.work / "Logout/log.csv").write_text(LOG)
    (run.work / "plan.json").write_text(json.dumps({"lr": 0.001, "batch": 4 if folder.name == "first" else 8}))
    return run


def write_events(run: RunFolder, *events: Event) -> None:
    journal = Journal(run.journal_file)
    for event in events:
        journal.write(event)
    journal.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for runs; the user's list of runs is in it and empty."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("M3B_RUNS", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def make_client(*folders: Path, with_token: bool = True, host: str = "127.0.0.1:8766") -> TestClient:
    client = TestClient(make_view_app(ViewSettings(TOKEN, folders)), base_url=f"http://{host}")
    if with_token:
        client.get(f"/static/style.css?token={TOKEN}")
    return client


# --- who is let in -----------------------------------------------------------------------------------------------


def test_the_token_moves_from_the_address_to_a_cookie(state: Path) -> None:
    client = make_client(state, with_token=False)
    answer = client.get(f"/?status=Failed&token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?status=Failed")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN.lower() not in cookie
    assert client.get("/").status_code == 200


def test_the_cookie_does_not_open_another_server_of_the_same_token(state: Path) -> None:
    client, other_client = make_client(state), make_client(state, with_token=False)
    [cookie] = client.cookies.jar
    for name, value in ((cookie.name, cookie.value), (cookie.name, TOKEN)):
        other_client.cookies.clear()
        other_client.cookies.set(name, value or "")
        assert other_client.get("/").status_code == 401
    client.cookies.clear()
    assert client.get("/", params={"token": cookie.value or ""}).status_code == 401


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/static/style.css", "/runs/x", "/nothing", "//x?token=%ff"]
)
def test_without_the_token_nothing_is_answered(state: Path, path: str) -> None:
    make_run(state / "first")
    answer = make_client(state, with_token=False).get(f"http://127.0.0.1{path}")
    assert answer.status_code == 401
    assert "first" not in answer.text


@pytest.mark.parametrize("host", ["rebound.example.org", "127.0.0.1.example.org:80", "[::1", "0.0.0.0", ""])
def test_foreign_host_names_are_refused_even_with_the_token(state: Path, host: str) -> None:
    answer = make_client(state).get(f"/?token={TOKEN}", headers={"host": host}, follow_redirects=False)
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


def test_a_redirect_never_leads_to_another_server(state: Path) -> None:
    answer = make_client(state).get(f"http://127.0.0.1//example.org/?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/example.org/"


@pytest.mark.parametrize(
    ("origin", "status"), [("http://127.0.0.1:8766", 405), ("http://127.0.0.1:9999", 403), ("", 403)]
)
def test_changes_are_taken_from_own_pages_alone(state: Path, origin: str, status: int) -> None:
    assert make_client(state).post("/", headers={"origin": origin}).status_code == status


def test_answers_forbid_foreign_and_inline_scripts(state: Path) -> None:
    client = make_client(state)
    for path in ("/", "/nothing", "/static/view.js"):
        headers = client.get(path).headers
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize("name", ["../app.py", "..%2f..%2fapp.py", "%2e%2e%2fguard.py", "uPlot.LICENSE", ""])
def test_only_static_files_of_the_pages_are_sent(state: Path, name: str) -> None:
    assert make_client(state).get(f"/static/{name}").status_code == 404


# --- the list ----------------------------------------------------------------------------------------------------


def test_the_list_shows_figures_with_intervals_and_usage(state: Path) -> None:
    key = make_key(make_run(state / "first"))
    page = make_client(state).get("/").text
    row = re.search(rf'value="{key}".*?</tr>', page, re.DOTALL)
    assert row is not None
    texts = re.sub(r"<[^>]+>", "|", row[0])
    for text in ("first", "Completed", "0.900", "0.800 to 0.950", "60 cases", "1,234", "|7|", "1 min 5 s"):
        assert text in texts, text
    assert str(state) not in page, "paths of this machine are not shown"


def test_a_run_without_a_process_is_interrupted_and_one_with_is_at_work(state: Path) -> None:
    run = make_run(state / "first", None, "working")
    client = make_client(state)
    assert "Interrupted" in client.get("/").text
    run.lock()
    page = client.get("/").text
    assert "At work" in page
    assert f"/runs/{make_key(run)}/live" in page
    run.unlock()
    assert "Interrupted" in client.get("/").text


def test_one_status_is_shown_alone(state: Path) -> None:
    make_run(state / "first")
    make_run(state / "second", None, "failed")
    page = make_client(state).get("/?status=Failed").text
    assert "/runs/" + make_key(RunFolder(state / "second")) in page
    assert "/runs/" + make_key(RunFolder(state / "first")) not in page


def test_a_changed_run_is_read_again_and_a_removed_one_is_gone(state: Path) -> None:
    run = make_run(state / "first", None, "failed")
    client = make_client(state)
    assert "Failed" in client.get("/").text
    shutil.rmtree(run.path)
    assert make_key(run) not in client.get("/").text
    make_run(state / "first")
    assert "Completed" in client.get("/").text


def test_without_folders_the_runs_of_the_user_are_listed(state: Path) -> None:
    make_run(state / "first")
    assert "no runs" in make_client().get("/").text, "it is not in the user's list"


def test_an_unreadable_record_and_hostile_names_stay_text(state: Path) -> None:
    (make_run(state / "first").path / "run.json").write_text("{")
    make_run(state / "second", request=HOSTILE)
    page = make_client(state).get("/").text
    assert "Cannot be read" in page
    assert "<img" not in page


# --- a run -------------------------------------------------------------------------------------------------------


def test_the_report_of_a_run_is_one_of_its_pages(state: Path) -> None:
    run = make_run(state / "first")
    write_events(run, START, ToolCalled("1", "run_script", {"command": "python look.py"}, role="data_engineer"))
    page = make_client(state).get(f"/runs/{make_key(run)}").text
    assert "python look.py" in page
    assert "AUROC" in page
    assert 'aria-current="page">Overview' in page
    assert "<style" not in page, "the policy of the server has no hashes"


def test_of_a_large_journal_the_report_shows_beginning_and_end(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("m3b.serve.view.run_routes.MAX_JOURNAL_BYTES", 20_000)
    run = make_run(state / "first")
    replies = [ReplyReceived(f"reply {number:03}", role="data_engineer") for number in range(200)]
    write_events(run, START, *replies, RunEnded({"status": "completed", "reason": "the end"}))
    page = make_client(state).get(f"/runs/{make_key(run)}").text
    assert ("reply 001" in page, "reply 100" in page, "reply 199" in page) == (True, False, True)
    assert "only its beginning and end" in page


@pytest.mark.parametrize("key", ["..;x", "..%2F..", "%2e%2e%2fruns", "first", "0" * 16, "x" * 5000, "%00"])
@pytest.mark.parametrize("page", ["", "/live", "/events"])
def test_no_run_is_found_by_a_path_or_name(state: Path, key: str, page: str) -> None:
    make_run(state / "first")
    assert make_client(state).get(f"/runs/{key}{page}").status_code == 404


def test_a_run_that_was_removed_while_open_is_not_found(state: Path) -> None:
    run = make_run(state / "first")
    client = make_client(state)
    assert client.get(f"/runs/{make_key(run)}").status_code == 200
    shutil.rmtree(run.path)
    for page in ("", "/live", "/events"):
        assert client.get(f"/runs/{make_key(run)}{page}").status_code == 404


# --- side by side ------------------------------------------------------------------------------------------------


def compare(client: TestClient, *runs: RunFolder) -> Any:
    return client.get("/compare", params=[("run", make_key(run)) for run in runs])


def test_runs_are_compared_with_intervals_curves_and_differing_settings(state: Path) -> None:
    runs = [make_run(state / "first"), make_run(state / "second", 0.8)]
    page = compare(make_client(state), *runs).text
    for text in ("0.800 to 0.950", "0.700 to 0.850", "Same test cases", "tell spots in first"):
        assert text in page, text
    assert re.search(r'class="differs"><th scope="row">Batch', page)
    assert not re.search(r'class="differs"><th scope="row">Optimiser', page)
    curves = json.loads(re.search(r'id="curves">(.*?)</script>', page)[1])  # type: ignore[index]
    assert [line["name"] for line in curves[0]["lines"]] == ["A", "B"]
    assert curves[0]["title"] == "training loss"


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({}, "same"),
        ({"test_digest": "b"}, "different"),
        ({"data": "/data/y"}, "other_folder"),
        ({"test_digest": ""}, "unknown"),
    ],
)
def test_figures_are_comparable_on_the_same_locked_test_cases_alone(
    state: Path, second: dict[str, str], code: str
) -> None:
    runs = [make_run(state / "first"), make_run(state / "second", **second)]  # type: ignore[arg-type]
    client = make_client(state)
    assert compare(client, *runs).status_code == 200
    from m3b.report.run_files import read_run_files
    from m3b.serve.view.compare_routes import ComparedRun

    compared = [ComparedRun(letter, run, read_run_files(run.path)) for letter, run in zip("AB", runs, strict=True)]
    assert compare_test_sets(compared)["code"] == code


def test_runs_without_anything_can_be_compared(state: Path) -> None:
    runs = [make_run(state / "first"), RunFolder.create(state / "empty")]
    (runs[1].path / "run.json").write_text("[")
    page = compare(make_client(state), *runs)
    assert page.status_code == 200
    assert "Test cases unclear" in page.text


@pytest.mark.parametrize(
    ("keys", "status"), [([0], 400), ([], 400), ([0, 0], 400), ([0, "nothing"], 404), (list("abcdefg"), 400)]
)
def test_one_run_too_many_runs_and_unknown_ones_are_refused(state: Path, keys: list[Any], status: int) -> None:
    own_key = make_key(make_run(state / "first"))
    parameters = [("run", own_key if key == 0 else key) for key in keys]
    assert make_client(state).get("/compare", params=parameters).status_code == status


# --- live --------------------------------------------------------------------------------------------------------


def list_texts(messages: list[live_routes.Message]) -> list[str]:
    return [value["text"] for name, value, _ in messages if name == "message"]


def get_state(messages: list[live_routes.Message]) -> dict[str, Any]:
    name, value, _ = messages[-1]
    assert name in ("state", "end")
    return dict(value)


def test_a_search_is_a_stage_of_its_own_and_tells_its_figures(state: Path) -> None:
    run = make_run(state / "first", None, "working")
    started = RoleStarted("Task Manager", "rules", role="task_manager")
    write_events(run, START, started, RoleEnded("done", role="task_manager"))
    candidates = [CandidateMeasured(1, 0, 60.0, 0.8123), CandidateMeasured(2, 1, 60.0, None, "no memory")]
    write_events(run, RoleStarted("Plan Search", "Python", role="plan_search"), *candidates)
    run.lock()
    messages = RunFollower(run).poll()
    assert [stage["title"] for stage in get_state(messages)["stages"]] == [
        "Task Manager",
        "Plan Search",
        "Model Trainer",
    ]
    assert list_texts(messages)[-2:] == ["1, rung 1: 0.8123 on held-out cases", "2, rung 2: no memory"]
    run.unlock()


def test_a_run_is_followed_as_its_journal_grows(state: Path) -> None:
    run = make_run(state / "first", None, "working")
    run.lock()
    write_events(run, START, RoleStarted("Task Manager", "rules", role="task_manager"))
    follower = RunFollower(run)
    messages = follower.poll()
    assert [name for name, _, _ in messages] == ["message", "message", "curves", "state"]
    assert [stage["state"] for stage in get_state(messages)["stages"]] == ["working", "waiting"]
    assert [name for name, _, _ in follower.poll()] == ["state"]
    with run.journal_file.open("ab") as stream:
        stream.write(b'{"n": 3, "kind": "rep')
    assert list_texts(follower.poll()) == [], "the line is not complete yet"
    write_events(run, RoleEnded("done", role="task_manager"), ReplyReceived("hello", role="model_trainer"))
    messages = follower.poll()
    assert list_texts(messages) == ["hello"]
    assert get_state(messages)["stages"][0]["state"] == "done"
    write_events(run, RunEnded({"status": "failed", "reason": "no room"}))
    run.save_record({**run.load_record(), "status": "failed", "reason": "no room"})
    run.unlock()
    messages = follower.poll()
    assert list_texts(messages) == ["Failed: no room"]
    assert (messages[-1][0], get_state(messages)["label"], get_state(messages)["lines"]) == (
        "end",
        "Failed",
        ["no room"],
    )


def test_a_run_of_another_process_is_followed(state: Path) -> None:
    run = make_run(state / "first", None, "working")
    code = (
        "import sys; from pathlib import Path; from m3b.run.folder import RunFolder; from m3b.journal import Journal;"
        "from m3b.events import ReplyReceived; run = RunFolder(Path(sys.argv[1])); run.lock();"
        "Journal(run.journal_file).write(ReplyReceived('from elsewhere')); print('written', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(run.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "written\n"
        follower = RunFollower(run)
        messages = follower.poll()
        assert list_texts(messages) == ["from elsewhere"]
        assert messages[-1][0] == "state"
        process.stdin.close()
    assert follower.poll()[-1][0] == "end"


def parse_events(text: str) -> list[tuple[str, int | None, Any]]:
    """Return name, id and value of server-sent events."""
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        events.append((fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])))
    return events


def test_a_broken_stream_goes_on_after_the_last_event_that_came(state: Path) -> None:
    run = make_run(state / "first")
    write_events(run, START, *(ReplyReceived(f"line {number}\nand more") for number in range(5)))
    client, path = make_client(state), f"/runs/{make_key(run)}/events"
    answer = client.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parse_events(answer.text)
    assert [name for name, _, _ in events].count("message") == 6
    assert events[-1][0] == "end"
    third_id = events[2][1]
    later_events = parse_events(client.get(path, headers={"last-event-id": str(third_id)}).text)
    assert [value["text"][:6] for name, _, value in later_events if name == "message"] == ["line 2", "line 3", "line 4"]
    for wrong_id in ("-1", "x", "9" * 30, "1e3"):
        assert len(parse_events(client.get(path, headers={"last-event-id": wrong_id}).text)) == len(events)


def test_of_a_long_journal_the_last_messages_come(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(state / "first")
    count = 2 * MAX_PAST_MESSAGES
    write_events(run, START, *(ReplyReceived(f"line {number}") for number in range(count)))
    assert list_texts(RunFollower(run).poll()) == [f"line {number}" for number in range(MAX_PAST_MESSAGES, count)]
    monkeypatch.setattr("m3b.serve.view.live_routes.MAX_JOURNAL_BYTES", 2000)
    texts = list_texts(RunFollower(run).poll())
    assert 0 < len(texts) < 20
    assert texts[-1] == f"line {count - 1}"


def test_damaged_lines_and_a_missing_journal_stop_nothing(state: Path) -> None:
    run = make_run(state / "first", None, "failed")
    assert [name for name, _, _ in RunFollower(run).poll()] == ["curves", "end"]
    write_events(
        run, START, *(ReplyReceived(text) for text in ("before", "changed", "bound to the changed line", "after"))
    )
    lines = run.journal_file.read_bytes().splitlines(keepends=True)
    run.journal_file.write_bytes(b"".join([*lines[:2], b"\xff\xfe{}\n", *lines[3:]]))
    assert list_texts(RunFollower(run).poll())[1:] == ["before", "after"]
    run.journal_file.write_bytes(b"")
    (run.path / "run.json").write_text("[")
    assert get_state(RunFollower(run).poll())["label"] == "Cannot be read"


def test_a_journal_that_is_a_link_is_not_followed(state: Path, tmp_path: Path) -> None:
    run = make_run(state / "first", None, "failed")
    write_events(make_run(tmp_path / "other"), ReplyReceived("of another run"))
    run.journal_file.symlink_to(tmp_path / "other/journal.jsonl")
    assert list_texts(RunFollower(run).poll()) == []
    assert make_client(state).get(f"/runs/{make_key(run)}").status_code == 200


def test_a_run_that_is_removed_while_it_is_followed_ends_the_stream(state: Path) -> None:
    run = make_run(state / "first", None, "working")
    run.lock()
    write_events(run, START)
    follower = RunFollower(run)
    assert follower.poll()[-1][0] == "state"
    shutil.rmtree(run.path)
    assert [(name, value["label"]) for name, value, _ in follower.poll()] == [("end", "Removed")]
    run.unlock()


def test_checks_and_warnings_are_messages(state: Path) -> None:
    run = make_run(state / "first")
    write_events(run, ArtifactChecked(False, ("fix a",), ("mind b",), ("a is wrong",), role="data_engineer"))
    assert list_texts(RunFollower(run).poll()) == ["not accepted", "a is wrong", "mind b"]


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "token", "words"),
    [
        (["nowhere"], TOKEN, "no folder nowhere"),
        (["--port", "99999"], TOKEN, "--port"),
        ([], "short", "16 or more"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    state: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], token: str, words: str
) -> None:
    monkeypatch.setenv("M3B_SERVE_TOKEN", token)
    outcome = CliRunner().invoke(app, ["view", *arguments])
    assert outcome.exit_code != 0
    assert isinstance(outcome.exception, UsageError)
    assert words in str(outcome.exception)
