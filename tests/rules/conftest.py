"""Rooms in which the rules get real briefings of real folders, and their calls are really made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from m3b.agents import briefing
from m3b.agents.artifacts import Selection, parse_give_up
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.index import check_index
from m3b.data.cards import Card, card_for_folder
from m3b.data.index import Index, read_index
from m3b.dataset.jobs import answer
from m3b.facts import IndexBrief
from m3b.isolation.sandbox import Limits, choose_sandbox
from m3b.llm import LLMRequest
from m3b.llm.rules import RulesLLM
from m3b.messages import Message, ToolCall
from m3b.resources import get_resources_folder
from m3b.run.folder import RunFolder
from m3b.run.manifest_proposals import propose_manifests
from m3b.run.manifests import execute_manifest
from m3b.run.provisioning import lay_out_run_folder
from m3b.tools import TOOLS, Toolbox, ToolResult

PLAN = Selection("x", "diagnosis", "auroc", "Read the labels where the preview shows them.", (), "")


class Room:
    """A folder of raw data `x`, a run laid out for it, and the rules."""

    def __init__(self, top: Path, name: str = "x") -> None:
        self.top, self.raw = top, top / "raw" / name
        self.raw.mkdir(parents=True)
        self.random = np.random.default_rng(2)
        self.others: list[Card] = []
        self._box: Toolbox | None = None

    def image(self, name: str, side: int = 8) -> None:
        file = self.raw / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.random.integers(0, 255, (side, side), dtype=np.uint8)).save(file)

    def images(self, pattern: str, count: int) -> None:
        for at in range(count):
            self.image(pattern.format(at, half=at // 2))

    def write(self, name: str, text: str) -> None:
        (self.raw / name).parent.mkdir(parents=True, exist_ok=True)
        (self.raw / name).write_text(text, encoding="utf-8")

    def card(self) -> Card:
        return card_for_folder(self.raw)

    @property
    def box(self) -> Toolbox:
        if self._box is None:
            self.run = RunFolder.create(self.top / "run")
            roots = lay_out_run_folder(self.run, [self.card(), *self.others], get_resources_folder())
            mounts = tuple(card.path for card in (self.card(), *self.others) if card.path)
            self._box = Toolbox(roots, sandbox=choose_sandbox(), limits=Limits(wall_s=60), mounts_read=mounts)
        return self._box

    def close(self) -> None:
        if self._box is not None:
            self._box.close()

    def look(self, tool: str, arguments: Any) -> ToolResult:
        return self.box.call(ToolCall("look", tool, dict(arguments)), (tool,))

    def select(self, request: str, shipped: list[Card] | None = None) -> dict[str, Any]:
        """The closing JSON of the rules for a request."""
        brief = briefing.build_selection_briefing(request, [self.card(), *self.others, *(shipped or [])], self.look)
        reply = RulesLLM().ask(LLMRequest([message_of(brief)]))
        assert not reply.calls
        return dict(json.loads(reply.text))

    def make_services(self, request: str = "") -> Any:
        """The services with which a run proposes and executes manifests; the reader's jobs run in this process."""
        self.box
        return SimpleNamespace(
            folder=self.run,
            request=request,
            overrides=None,
            decisions={},
            hooks=SimpleNamespace(ask=None),
            card_of=lambda selection: self.card(),
            emit=lambda event: None,
            executor=SimpleNamespace(run_job=lambda job, root: answer(job)),
        )

    def brief(self, request: str, task: str = "diagnosis") -> briefing.Briefing:
        plan = replace(PLAN, task=task)
        proposed = propose_manifests(self.make_services(request), plan)
        return briefing.build_index_briefing(
            request, plan, self.card(), self.look, proposed.proposals, proposed.text, proposed.refusal
        )

    def first(self, request: str, task: str = "diagnosis") -> str:
        """The title of the manifest that is taken, or the words with which the rules stop."""
        brief = self.brief(request, task)
        reply = RulesLLM().ask(LLMRequest([message_of(brief)]))
        if not reply.calls:
            closing = json.loads(reply.text)
            return str(closing.get("unusable") or closing.get("undecided") or parse_give_up(reply.text))
        assert [call.name for call in reply.calls] == ["copy_files"]
        assert isinstance(brief.facts, IndexBrief)
        source = reply.calls[0].arguments["source"]
        return next(proposal.title for proposal in brief.facts.readings if proposal.file == source)

    def index(self, request: str, task: str = "diagnosis") -> Index:
        """Let the rules work until they close, calls really made; the index that is left."""
        plan = replace(PLAN, task=task)
        messages = [message_of(self.brief(request, task))]
        for _ in range(9):
            reply = RulesLLM().ask(LLMRequest(messages))
            messages.append(Message("assistant", reply.text, reply.calls))
            if not reply.calls:
                verdict = execute_manifest(self.make_services(), plan, None)
                if not isinstance(verdict, CheckResult):
                    verdict = check_index(self.run.work, plan)
                if verdict.is_accepted or len(messages) > 12:
                    break
                messages.append(Message("user", "No.", facts=(verdict.to_rejection().to_json(),)))
            for call in reply.calls:
                result = self.box.call(call, tuple(TOOLS))
                facts = (result.data,) if result.data else ()
                messages.append(Message("tool", "", call_id=call.id, is_error=result.is_error, facts=facts))
        self.messages = messages
        return read_index(self.run.work, task)


def message_of(brief: briefing.Briefing) -> Message:
    """A briefing as the rules get it. Its text is left away: they plan by the data alone."""
    return Message("user", "", facts=(json.loads(json.dumps(brief.facts.to_json())),))


@pytest.fixture
def make_room(tmp_path: Path) -> Iterator[Callable[..., Room]]:
    rooms: list[Room] = []

    def make(name: str = "x") -> Room:
        rooms.append(Room(tmp_path / f"room{len(rooms)}", name))
        return rooms[-1]

    yield make
    for room in rooms:
        room.close()


@pytest.fixture
def room(make_room: Callable[..., Room]) -> Room:
    return make_room()


NOT_READ_YET = frozenset(
    {
        "test_one_class_against_the_rest",
        "test_flags_of_which_one_applies_at_most",
        "test_a_table_with_many_columns",
        "test_a_finding_without_images_spoils_nothing",
        "test_labels_too_rare_to_split_are_left_out_in_the_end",
        "test_a_request_for_one_class_is_never_answered_with_all",
        "test_an_own_split",
        "test_what_is_not_clear_is_asked",
        "test_masks_beside_images",
        "test_masks_in_folders_of_cases_and_the_sequence_that_is_asked_for",
        "test_reports_in_two_tables",
    }
)
"""Layouts that `m3b.dataset.proposals` asks about, refuses or reads otherwise; each that passes is to be removed here."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect that layouts which are not read yet fail."""
    for item in items:
        if isinstance(item, pytest.Function) and item.originalname in NOT_READ_YET:
            item.add_marker(pytest.mark.xfail(reason="not read yet", strict=False))
