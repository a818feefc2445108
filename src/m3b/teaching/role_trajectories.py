"""Trajectories of a role from the journals of runs, to train a small local model; m3b's own checks give the reward."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from m3b.agents.conversation import Conversation
from m3b.agents.roles import BUILTIN_ROLES, SINGLE_AGENT
from m3b.errors import DataError, UsageError
from m3b.events import ArtifactChecked, Event, MessageSent, ReplyReceived, RoleStarted, ToolCalled, ToolReturned
from m3b.llm.tokens import estimate_request_tokens
from m3b.messages import Message, ToolSpec
from m3b.run.folder import RunFolder
from m3b.teaching.chats import ChatRecord, messages_to_chat, tool_to_chat
from m3b.tools.schema import make_tool_spec
from m3b.tools.toolbox import TOOLS
from m3b.writing import write_text_atomically

COMPLETED_STATUS = "completed"
ROLE_BY_NAME = {role.name: role for role in (*BUILTIN_ROLES, SINGLE_AGENT)}


@dataclass(frozen=True)
class ChecksReward:
    """The reward of check results: 0 if no artifact was accepted, else `accepted` minus the costs.

    Args:
        accepted: for an artifact that a check accepted.
        rejection: cost of each artifact that was rejected before.
        warning: cost of each warning of the accepting check result.
        fault: cost of each call that failed.

    Raises:
        UsageError: a weight is negative or not finite.
    """

    accepted: float = 1.0
    rejection: float = 0.15
    warning: float = 0.05
    fault: float = 0.02

    def __post_init__(self) -> None:
        for weight_field in fields(self):
            weight = getattr(self, weight_field.name)
            if not math.isfinite(weight) or weight < 0:
                raise UsageError(f"The weight {weight_field.name} is {weight}; a number from 0 on is needed.")

    def compute(self, checks: Sequence[ArtifactChecked], faults: int) -> float:
        """Return the reward of a role's work.

        Args:
            checks: in their order; the last accepted one counts.
        """
        accepted = [check for check in checks if check.accepted]
        if not accepted:
            return 0.0
        rejections = sum(not check.accepted for check in checks)
        cost = self.rejection * rejections + self.warning * len(accepted[-1].warnings) + self.fault * faults
        return max(0.0, self.accepted - cost)


@dataclass
class RoleTrajectories:
    """The trajectories of a role in runs.

    Args:
        role: its name.
        include_incomplete: also runs that did not complete, whose reward reflects that.
        max_tokens: longer conversations are excluded (an estimate); None for no limit.
        exclusions: filled while runs are read: why runs gave none, with counts.

    Raises:
        UsageError: there is no such role.
    """

    role: str
    include_incomplete: bool = False
    max_tokens: int | None = None
    reward: ChecksReward = field(default_factory=ChecksReward)
    exclusions: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.role not in ROLE_BY_NAME:
            raise UsageError(f"There is no role {self.role!r}. Roles: {', '.join(ROLE_BY_NAME)}.")

    def collect(self, runs: Iterable[RunFolder]) -> list[ChatRecord]:
        """Return a trajectory of each run that has one."""
        chats = []
        for run in runs:
            try:
                chat = self._read_run(run)
            except UsageError as error:
                self.exclusions[f"cannot be read: {error}"] += 1
                continue
            if isinstance(chat, ChatRecord):
                chats.append(chat)
            else:
                self.exclusions[chat] += 1
        return chats

    def _read_run(self, run: RunFolder) -> ChatRecord | str:
        """Return the trajectory, or the reason why there is none."""
        record = run.load_record()
        status = str(record.get("status", "?"))
        if status == "working":
            return "not ended"
        if status != COMPLETED_STATUS and not self.include_incomplete:
            return f"ended as {status}"
        events = [event for event in run.read_events() if event.role == self.role]
        tools = tuple(make_tool_spec(TOOLS[name]) for name in TOOLS if name in ROLE_BY_NAME[self.role].tools)
        foreign_tools = {event.name for event in events if isinstance(event, ToolCalled)} - set(TOOLS)
        messages = _cut_unanswered(Conversation.from_events(events).messages)
        if not any(message.role == "assistant" for message in messages):
            return f"no {self.role} at work"
        if foreign_tools:
            return f"uses tools that are not m3b's ({', '.join(sorted(foreign_tools))})"
        return self._make_chat(run, record, events, messages, tools)

    def _make_chat(
        self,
        run: RunFolder,
        record: dict[str, Any],
        events: Sequence[Event],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> ChatRecord | str:
        size = estimate_request_tokens(messages, tools)
        if self.max_tokens is not None and size > self.max_tokens:
            return f"longer than {self.max_tokens:,} tokens"
        checks = [event for event in events if isinstance(event, ArtifactChecked)]
        results = [event for event in events if isinstance(event, ToolReturned)]
        faults = sum(event.is_error for event in results)
        learn = find_learnt_replies(events)[: sum(message.role == "assistant" for message in messages)]
        facts = {
            "run": run.id, "role": self.role, "status": str(record.get("status")), "request": str(record.get("request", "")),
            "llm": next((event.llm for event in events if isinstance(event, RoleStarted)), ""),
            "verdicts": [
                {"accepted": check.accepted, "faults": list(check.faults), "warnings": list(check.warnings)} for check in checks
            ],
            "calls": len(results), "failed_calls": faults, "tokens": size, "learn": learn,
        }  # fmt: skip
        reward = round(self.reward.compute(checks, faults), 6)
        tool_schemas = tuple(tool_to_chat(tool) for tool in tools)
        return ChatRecord(f"{run.id}/{self.role}", messages_to_chat(messages), tool_schemas, (), reward, facts)


def find_learnt_replies(events: Sequence[Event]) -> list[bool]:
    """Return for each reply whether it is an example.

    It is none if a call of it failed, a check rejected it, or it was unusable.
    """
    examples: list[bool] = []
    for event in events:
        match event:
            case ReplyReceived():
                examples.append(True)
            case (
                ToolReturned(is_error=True)
                | ArtifactChecked(accepted=False)
                | MessageSent(reason="unusable" | "circle")
            ) if examples:
                examples[-1] = False
    return examples


def write_role_trajectories(chats: Sequence[ChatRecord], source: RoleTrajectories, out: Path) -> dict[str, Any]:
    """Write trajectories to `train.jsonl` in a folder, together with `summary.json`.

    Args:
        out: new or empty.

    Returns:
        The summary.

    Raises:
        UsageError: the folder is not empty, or cannot be written.
        DataError: there is no trajectory; the message says why.
    """
    reasons = dict(source.exclusions.most_common())
    if not chats:
        reasons_text = "; ".join(f"{reason} ({count})" for reason, count in reasons.items()) or "there is no run"
        raise DataError(f"No run has a trajectory of the role {source.role}: {reasons_text}.")
    rewards = [chat.reward for chat in chats]
    summary = {
        "role": source.role, "trajectories": len(chats), "left_out": reasons, "weights": asdict(source.reward),
        "mean_reward": round(sum(rewards) / len(rewards), 6),
        "accepted_at_once": sum(
            bool(chat.facts["verdicts"]) and chat.facts["verdicts"][0]["accepted"] for chat in chats
        ),
        "calls": sum(chat.facts["calls"] for chat in chats),
        "failed_calls": sum(chat.facts["failed_calls"] for chat in chats),
        "longest_tokens": max(chat.facts["tokens"] for chat in chats),
    }  # fmt: skip
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists and is not an empty folder. Name another one.")
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(out / "train.jsonl", "".join(chat.to_line(out) for chat in chats), is_private=True)
        write_text_atomically(out / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False))
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error}.") from error
    return summary


def _cut_unanswered(messages: Sequence[Message]) -> list[Message]:
    """Return the messages up to the assistant's last turn without calls: later ones were never answered."""
    answered = list(messages)
    while answered and (answered[-1].role != "assistant" or answered[-1].calls):
        answered.pop()
    return answered
