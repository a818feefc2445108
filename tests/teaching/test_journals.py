"""Journals of runs as trajectories of a role, with the checks' verdicts as their reward."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from m3b.errors import DataError, UsageError
from m3b.events import (
    ArtifactChecked,
    Event,
    MessageSent,
    PromptSent,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    ToolCalled,
    ToolReturned,
)
from m3b.journal import Journal
from m3b.messages import ToolCall
from m3b.run.folder import list_runs
from m3b.teaching.chats import ChatRecord, read_chats
from m3b.teaching.role_trajectories import ChecksReward, RoleTrajectories, find_learnt_replies, write_role_trajectories

JOURNALS = Path(__file__).parents[1] / "run" / "journals"
ROLE = "data_engineer"


def work(*, second: bool = True) -> list[Event]:
    """A role that misses a file, is rejected once, and is accepted with a warning."""
    first, again = ToolCall("c1", "list_files", {"path": "dta"}), ToolCall("c2", "list_files", {"path": "data"})
    accepted: list[Event] = [
        MessageSent(text="The check does not accept this yet: no index", reason="rejected"),
        ReplyReceived(text="Done at last."),
        ArtifactChecked(accepted=True, warnings=("few cases",)),
    ]
    return [
        RoleStarted(title="Data Engineer", llm="small"),
        PromptSent(system="You index data.", text="Index this."),
        ReplyReceived(text="", calls=(first,)),
        ToolCalled(id="c1", name="list_files", arguments=first.arguments),
        ToolReturned(id="c1", name="list_files", text="There is no dta.", is_error=True),
        ReplyReceived(text="I see.", calls=(again,)),
        ToolCalled(id="c2", name="list_files", arguments=again.arguments),
        ToolReturned(id="c2", name="list_files", text="images/"),
        ReplyReceived(text="Done."),
        ArtifactChecked(accepted=False, faults=("no index",), reasons=("no index",)),
        *(accepted if second else []),
        RoleEnded(status="done"),
    ]


def a_run(root: Path, name: str, events: Sequence[Event], status: str = "completed") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format": 2, "status": status, "request": "find spots", "started": 1.0})
    )
    journal = Journal(folder / "journal.jsonl", fsync=False)
    for event in events:
        journal.write(event.with_role(ROLE))
    journal.close()
    return folder


def trajectories(root: Path, role: str = ROLE, every: bool = False) -> tuple[list[ChatRecord], RoleTrajectories]:
    collector = RoleTrajectories(role, include_incomplete=every)
    return collector.collect(list_runs(root)), collector


def test_a_whole_run_gives_what_its_role_was_told_and_did(tmp_path: Path) -> None:
    a_run(tmp_path, "r1", work())
    (chat,), _ = trajectories(tmp_path)
    assert [message["role"] for message in chat.messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert chat.messages[4]["tool_calls"][0]["function"] == {"name": "list_files", "arguments": {"path": "data"}}
    assert chat.messages[5]["name"] == "list_files"
    names = {tool["function"]["name"] for tool in chat.tools}
    assert {"run_script", "list_files", "preview_dirs"} <= names
    assert chat.facts["llm"] == "small"
    assert [verdict["accepted"] for verdict in chat.facts["verdicts"]] == [False, True]


def test_the_reward_follows_from_the_verdicts(tmp_path: Path) -> None:
    """Accepted 1, less a rejection 0.15, a warning 0.05 and a failed call 0.02."""
    a_run(tmp_path, "r1", work())
    (chat,), _ = trajectories(tmp_path)
    assert chat.reward == pytest.approx(0.78)
    verdicts = [event for event in work() if isinstance(event, ArtifactChecked)]
    assert ChecksReward(rejection=0.5, warning=0.0, fault=0.1).compute(verdicts, 1) == pytest.approx(0.4)
    assert ChecksReward(rejection=2.0).compute(verdicts, 0) == 0
    assert ChecksReward().compute(verdicts[:1], 0) == 0, "nothing was accepted"
    with pytest.raises(UsageError):
        ChecksReward(fault=-1.0)


def test_turns_that_failed_are_not_learnt(tmp_path: Path) -> None:
    assert find_learnt_replies(work()) == [False, True, False, True]
    a_run(tmp_path, "r1", work())
    (chat,), _ = trajectories(tmp_path)
    assert chat.facts["learn"] == [False, True, False, True]


def test_runs_that_did_not_complete_are_left_out_and_said(tmp_path: Path) -> None:
    a_run(tmp_path, "failed", work(second=False), "failed")
    a_run(tmp_path, "working", work(), "working")
    a_run(tmp_path, "other", [])
    chats, collector = trajectories(tmp_path)
    assert chats == []
    assert collector.exclusions == {"ended as failed": 1, "not ended": 1, f"no {ROLE} at work": 1}
    with pytest.raises(DataError, match=r"ended as failed \(1\)"):
        write_role_trajectories(chats, collector, tmp_path / "out")
    (chat,), _ = trajectories(tmp_path, every=True)
    assert chat.reward == 0
    assert chat.messages[-1]["role"] == "assistant"


def test_a_role_that_never_said_that_it_was_done_gives_nothing(tmp_path: Path) -> None:
    a_run(tmp_path, "cut", work()[:6], "failed")
    chats, collector = trajectories(tmp_path, every=True)
    assert chats == []
    assert collector.exclusions == {f"no {ROLE} at work": 1}


def test_tools_of_the_users_own_are_told(tmp_path: Path) -> None:
    call = ToolCall("c9", "ask_pacs", {})
    events = [*work()[:2], ReplyReceived(text="", calls=(call,)), ToolCalled(id="c9", name="ask_pacs", arguments={}),
           ToolReturned(id="c9", name="ask_pacs", text="no"), *work()[8:]]  # fmt: skip
    a_run(tmp_path, "own", events)
    _, collector = trajectories(tmp_path)
    assert collector.exclusions == {"uses tools that are not m3b's (ask_pacs)": 1}


def test_a_damaged_journal_is_left_out_and_said(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "r1", work())
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join([*lines[:3], b"{broken}\n", *lines[4:]]))
    chats, collector = trajectories(tmp_path)
    assert chats == []
    assert "line 4" in next(iter(collector.exclusions))


def test_long_conversations_can_be_left_out(tmp_path: Path) -> None:
    a_run(tmp_path, "r1", work())
    collector = RoleTrajectories(ROLE, max_tokens=10)
    assert collector.collect(list_runs(tmp_path)) == []
    assert collector.exclusions == {"longer than 10 tokens": 1}


@pytest.mark.parametrize("role", ["task_manager", "data_engineer", "module_architect", "model_trainer"])
def test_a_real_journal_gives_a_trajectory_of_every_role(tmp_path: Path, role: str) -> None:
    shutil.copytree(JOURNALS / "format-1-whole", tmp_path / "runs" / "whole")
    chats, collector = trajectories(tmp_path / "runs", role)
    summary = write_role_trajectories(chats, collector, tmp_path / "out")
    assert summary["trajectories"] == summary["accepted_at_once"] == 1
    (chat,) = read_chats(tmp_path / "out")
    assert chat.reward == 1
    assert len(chat.facts["learn"]) == sum(message["role"] == "assistant" for message in chat.messages)
    with pytest.raises(UsageError, match="not an empty folder"):
        write_role_trajectories(chats, collector, tmp_path / "out")


def test_a_role_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="Roles: task_manager, data_engineer"):
        RoleTrajectories("data_enginer")
