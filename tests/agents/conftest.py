from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from m3b.agents.budget import Budget
from m3b.agents.check_result import CheckResult, accept
from m3b.agents.conversation import Conversation
from m3b.agents.loop import Agent
from m3b.events import Event, PromptSent
from m3b.isolation.sandbox import Limits, choose_sandbox
from m3b.llm import ModelFacts
from m3b.testing import ScriptedModel
from m3b.tools import TOOLS, Roots, Toolbox


@dataclass
class Stage:
    """One agent with a scripted model and real tools, and everything that it let out."""

    agent: Agent
    llm: ScriptedModel
    work: Path
    events: list[Event] = field(default_factory=list)

    def run(self, check: Callable[[str], CheckResult] | None = None) -> CheckResult:
        return self.agent.run(check or (lambda text: accept(text)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]

    def sent_messages(self) -> list[str]:
        """What m3b said to the model after the briefing."""
        return [data["text"] for data in self.of("message")]

    def results(self) -> list[str]:
        return [data["text"] for data in self.of("result")]

    def restored(self) -> Conversation:
        return Conversation.from_events(self.events)


MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    boxes: list[Toolbox] = []

    def make(
        *steps: Any,
        budget: Budget | None = None,
        reflection: str = "",
        allowed: Sequence[str] = tuple(TOOLS),
        facts: ModelFacts | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        conversation: Conversation | None = None,
        llm: ScriptedModel | None = None,
        **script: Any,
    ) -> Stage:
        work = tmp_path / f"work{len(boxes)}"
        work.mkdir()
        (work / "notes.txt").write_text("a line\n")
        box = Toolbox(Roots(work, {}), sandbox=choose_sandbox(), limits=Limits(wall_s=60), is_cancelled=cancelled)
        boxes.append(box)
        llm = llm or ScriptedModel(steps, facts=facts, **script)
        events: list[Event] = []
        agent = Agent(
            llm=llm,
            tools=box,
            allowed_tools=allowed,
            budget=budget or Budget(),
            emit=lambda event: events.append(event.with_role("role")),
            reflection=reflection,
            is_cancelled=cancelled,
            conversation=conversation,
        )
        if conversation is None:
            events.append(PromptSent("You are an agent.", "Stage: test", role="role"))
            agent.conversation = Conversation.from_events(events)
        return Stage(agent, llm, work, events)

    yield make
    for box in boxes:
        box.close()
