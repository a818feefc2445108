"""What the rooms of one run share: its folder, its options, its state, its tools, and the one way to tell an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from m3b.agents.artifacts import Selection
from m3b.agents.budget import Budget
from m3b.agents.pseudonyms import Pseudonyms
from m3b.agents.veiled import Veiled
from m3b.data.cards import Card
from m3b.errors import Failed
from m3b.events import Event
from m3b.journal import Journal
from m3b.llm import LLM, ledger
from m3b.llm.base import spec_of
from m3b.llm.ledger import Ledger
from m3b.llm.specs import RULES
from m3b.messages import ToolCall
from m3b.run.acceptance import Inspector
from m3b.run.extensions import NOTHING, Own
from m3b.run.folder import Run
from m3b.run.hooks import Hooks
from m3b.run.labelling import labelling_of
from m3b.run.options import Options
from m3b.run.provisioning import lay_out, toolbox
from m3b.run.readings import Readings
from m3b.run.sandbox_runner import Executor
from m3b.run.state import History
from m3b.run.training_view import VIEW, begin_training, end_training
from m3b.sandbox import Sandbox
from m3b.tools import Roots, ToolResult
from m3b.workspace import Workspace

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.run.external import ExternalSource
    from m3b.run.sequence import Stages

A = TypeVar("A")
LLMs = Mapping[str, LLM]
"""A model a role; `default` is for those that are not named."""


@dataclass
class RunContext:
    """One run at work, made anew by each process that takes it up.

    Args:
        state: what earlier processes did of the same run; empty for a new one.
        cancel: set from anywhere to end the run.
        own: tools and checks of the user's.
        given: what the user said of how the data is to be read.
        stages: what is worked on, in this order.
        external: test sets of other places, measured at the end; nothing else looks at them.
        fsync: whether each event waits for the disk.
    """

    folder: Run
    request: str
    options: Options
    workspace: Workspace
    llms: LLMs
    sandbox: Sandbox
    state: History
    hooks: Hooks = field(default_factory=Hooks)
    own: Own = NOTHING
    cancel: threading.Event = field(default_factory=threading.Event)
    given: Given | None = None
    stages: Stages = ()
    external: tuple[ExternalSource, ...] = ()
    fsync: bool = True

    def __post_init__(self) -> None:
        self.role = ""
        self.journal = Journal(self.folder.journal_file, fsync=self.fsync)
        self.names: Pseudonyms | None = None
        self.ledger = Ledger(self.folder.folder / ledger.FILE)
        self.budget = _make_budget(self.options, self.state)
        cards = [card for card in self.workspace.cards.values() if card.path]
        roots = lay_out(self.folder, cards, self.workspace.root, self.workspace.templates)
        self.raw = {card.root: card.path for card in cards if card.path and card.path.is_dir()}
        readable_folders = [*self.raw.values(), self.folder.resources]
        self.labelling = labelling_of(self)
        self.tools = toolbox(self, roots, readable_folders)
        self.executor = Executor(self.sandbox, self.folder, readable_folders, self.cancel.is_set)
        manifests = Readings(self.folder, self.executor.job, self.emit, self.given)
        is_confined = self.sandbox.name != "off"
        self.inspector = Inspector(
            self.folder,
            self.executor.predict,
            self.executor.baseline,
            self.executor.checking,
            self.emit,
            manifests,
            confined=is_confined,
            raw_roots=self.raw,
            request=self.request,
            labelling=self.labelling,
        )

    def emit(self, event: Event) -> None:
        """Write an event down, fold it into the state, show it.

        Raises:
            Failed: the journal cannot be written, because the disk is full for instance.
        """
        event = event.by(self.role)
        if event.kept:
            try:
                self.journal.write(event)
            except OSError as error:
                raise Failed(
                    f"The journal {self.folder.journal_file} cannot be written ({error.strerror}). Make room on the disk, "
                    f"then `{self.folder.command('resume')}`."
                ) from error
        self.state.take(event)
        self.hooks.on_event(event)

    def made(self, of: type[A]) -> A:
        """What an earlier stage handed over.

        Raises:
            LookupError: none did; a stage names in `needs` what it takes.
        """
        artifact = self.state.made(of)
        if artifact is None:
            raise LookupError(f"no stage has handed over a {of.__name__} yet; a stage names in `needs` what it takes")
        return artifact

    @property
    def card(self) -> Card:
        """That of the data set that was selected."""
        return self.workspace.cards[self.made(Selection).card]

    def llm(self, role: str) -> LLM:
        """The model that plays a role."""
        return self.llms.get(role) or self.llms["default"]

    def asked(self, role: str) -> LLM:
        """The same, as it is asked: what it gets is written to the ledger, without the names of persons."""
        llm = self.llm(role)
        metered_llm = self.ledger.of(llm, role)
        if self.options.phi == "allow" or spec_of(llm) == RULES:
            return metered_llm
        if self.names is None:
            self.names = Pseudonyms()
            for raw_folder in self.raw.values():
                self.names.learn(raw_folder)
        return Veiled(metered_llm, self.names)

    def look(self, tool: str, arguments: Mapping[str, object]) -> ToolResult:
        """A preview on m3b's own account: it costs the agents no action."""
        return self.tools.call(ToolCall("look", tool, dict(arguments)), (tool,))

    def work_with(self, roots: Roots, read: list[Path]) -> None:
        """Give scripts, tools and m3b's own probes other folders from now on."""
        self.tools.close()
        self.tools, self.executor.read = toolbox(self, roots, read), tuple(read)

    def show_training_only(self, dataset: str, task: str, tick: Callable[[int, int], None]) -> None:
        """From here on no script, preview or probe meets the raw data, the test cases or what the index was made with."""
        self.tools.close()
        self.executor.close()
        link = self.sandbox.name != "off"
        image_facts = {"request": self.request, "modality": self.card.modality, "anatomy": self.card.anatomy}
        roots = begin_training(
            self.folder, self.raw, dataset, task, link=link, tick=tick, reader=self.executor.reader, about=image_facts
        )
        self.work_with(roots, [self.folder.folder / VIEW, self.folder.resources])

    def leave(self, *, resumable: bool) -> None:
        """Stop every process, and put back for people what training did not see."""
        self.tools.close()
        self.executor.close()
        if index := self.state.index:
            end_training(self.folder, self.raw, index.task, keep_view=resumable)

    def close(self) -> None:
        """Stop every process and close the journal."""
        self.tools.close()
        self.executor.close()
        self.journal.close()


def _make_budget(options: Options, state: History) -> Budget:
    budget = Budget(
        actions=options.max_actions, iterations=options.max_iterations if options.debug else 0,
        tokens=options.max_tokens, cost_usd=options.max_cost, wall_s=options.max_wall,
        usage=state.usage, used=state.actions,
    )  # fmt: skip
    budget.started -= state.seconds
    return budget
