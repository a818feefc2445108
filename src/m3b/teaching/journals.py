"""Journals of runs as trajectories of a role, for a small local model: what it was told, called and answered, with the
verdicts of m3b's own checks as the reward."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from m3b.agents.conversation import Conversation
from m3b.agents.roles import SINGLE, STAGES
from m3b.errors import DataError, WrongUse
from m3b.events import Called, Checked, Event, Replied, Returned, RoleStarted, Told
from m3b.llm.tokens import of_request
from m3b.messages import Message, ToolSpec
from m3b.run.folder import Run
from m3b.teaching.chats import ChatRecord, messages_json, tool_json
from m3b.tools.base import TOOLS
from m3b.tools.schema import spec_of
from m3b.writing import replace_text

COMPLETED = "completed"
ROLES = {role.name: role for role in (*STAGES, SINGLE)}


@dataclass(frozen=True)
class ChecksReward:
    """What the checks' verdicts are worth: nothing where no hand-over was accepted, else `accepted` less what follows.

    Args:
        accepted: of a hand-over that a check accepted.
        rejection: cost of each one that it rejected before.
        warning: cost of each warning of the verdict that accepted.
        fault: cost of each call that failed.

    Raises:
        WrongUse: a weight is negative or not finite.
    """

    accepted: float = 1.0
    rejection: float = 0.15
    warning: float = 0.05
    fault: float = 0.02

    def __post_init__(self) -> None:
        for weight_field in fields(self):
            weight = getattr(self, weight_field.name)
            if not math.isfinite(weight) or weight < 0:
                raise WrongUse(f"The weight {weight_field.name} is {weight}; a number from 0 on is needed.")

    def of(self, verdicts: Sequence[Checked], faults: int) -> float:
        """The reward of a role's work.

        Args:
            verdicts: in their order; the last accepted one counts.
        """
        accepted = [check for check in verdicts if check.accepted]
        if not accepted:
            return 0.0
        rejections = sum(not check.accepted for check in verdicts)
        cost = self.rejection * rejections + self.warning * len(accepted[-1].warnings) + self.fault * faults
        return max(0.0, self.accepted - cost)


@dataclass
class RoleTrajectories:
    """The trajectories of a role in runs.

    Args:
        role: its name.
        every: also runs that did not complete, whose reward says so.
        max_tokens: longer conversations are left out (an estimate); None for no limit.
        left_out: filled while they are read: why runs gave none, with counts.

    Raises:
        WrongUse: there is no such role.
    """

    role: str
    every: bool = False
    max_tokens: int | None = None
    reward: ChecksReward = field(default_factory=ChecksReward)
    left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise WrongUse(f"There is no role {self.role!r}. Roles: {', '.join(ROLES)}.")

    def of(self, runs: Iterable[Run]) -> list[ChatRecord]:
        """A trajectory of each run that has one."""
        chats = []
        for run in runs:
            try:
                chat = self._of(run)
            except WrongUse as error:
                self.left_out[f"cannot be read: {error}"] += 1
                continue
            if isinstance(chat, ChatRecord):
                chats.append(chat)
            else:
                self.left_out[chat] += 1
        return chats

    def _of(self, run: Run) -> ChatRecord | str:
        """The trajectory, or why there is none."""
        record = run.load()
        status = str(record.get("status", "?"))
        if status == "working":
            return "not ended"
        if status != COMPLETED and not self.every:
            return f"ended as {status}"
        events = [event for event in run.events() if event.role == self.role]
        tools = tuple(spec_of(TOOLS[name]) for name in TOOLS if name in ROLES[self.role].tools)
        foreign_tools = {event.name for event in events if isinstance(event, Called)} - set(TOOLS)
        messages = _whole(Conversation.restore(events).messages)
        if not any(message.role == "assistant" for message in messages):
            return f"no {self.role} at work"
        if foreign_tools:
            return f"uses tools that are not m3b's ({', '.join(sorted(foreign_tools))})"
        return self._make_chat(run, record, events, messages, tools)

    def _make_chat(
        self,
        run: Run,
        record: dict[str, Any],
        events: Sequence[Event],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> ChatRecord | str:
        size = of_request(messages, tools)
        if self.max_tokens is not None and size > self.max_tokens:
            return f"longer than {self.max_tokens:,} tokens"
        checks = [event for event in events if isinstance(event, Checked)]
        results = [event for event in events if isinstance(event, Returned)]
        faults = sum(event.is_error for event in results)
        learn = learnt(events)[: sum(message.role == "assistant" for message in messages)]
        facts = {
            "run": run.id, "role": self.role, "status": str(record.get("status")), "request": str(record.get("request", "")),
            "llm": next((event.llm for event in events if isinstance(event, RoleStarted)), ""),
            "verdicts": [
                {"accepted": check.accepted, "faults": list(check.faults), "warnings": list(check.warnings)} for check in checks
            ],
            "calls": len(results), "failed_calls": faults, "tokens": size, "learn": learn,
        }  # fmt: skip
        reward = round(self.reward.of(checks, faults), 6)
        tool_schemas = tuple(tool_json(tool) for tool in tools)
        return ChatRecord(f"{run.id}/{self.role}", messages_json(messages), tool_schemas, (), reward, facts)


def learnt(events: Sequence[Event]) -> list[bool]:
    """For each reply whether it is an example: not where a call of it failed, a check rejected it, or m3b could not use it."""
    examples: list[bool] = []
    for event in events:
        match event:
            case Replied():
                examples.append(True)
            case Returned(is_error=True) | Checked(accepted=False) | Told(reason="unusable" | "circle") if examples:
                examples[-1] = False
    return examples


def write_role(chats: Sequence[ChatRecord], found: RoleTrajectories, out: Path) -> dict[str, Any]:
    """Write trajectories to `train.jsonl` in a folder, with `summary.json` beside it.

    Args:
        out: new or empty.

    Returns:
        The summary.

    Raises:
        WrongUse: the folder holds something, or cannot be written.
        DataError: there is no trajectory; the message says why.
    """
    reasons = dict(found.left_out.most_common())
    if not chats:
        reasons_text = "; ".join(f"{reason} ({count})" for reason, count in reasons.items()) or "there is no run"
        raise DataError(f"No run has a trajectory of the role {found.role}: {reasons_text}.")
    rewards = [chat.reward for chat in chats]
    summary = {
        "role": found.role, "trajectories": len(chats), "left_out": reasons, "weights": asdict(found.reward),
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
            raise WrongUse(f"{out} exists and is not an empty folder. Name another one.")
        out.mkdir(parents=True, exist_ok=True)
        replace_text(out / "train.jsonl", "".join(chat.line(out) for chat in chats), private=True)
        replace_text(out / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False))
    except OSError as error:
        raise WrongUse(f"{out} cannot be written: {error}.") from error
    return summary


def _whole(messages: Sequence[Message]) -> list[Message]:
    """Up to the assistant's last turn that calls nothing more: what comes after was never answered."""
    kept_messages = list(messages)
    while kept_messages and (kept_messages[-1].role != "assistant" or kept_messages[-1].calls):
        kept_messages.pop()
    return kept_messages
