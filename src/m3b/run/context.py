"""What the rooms of one run share: its folder, its options, its state, its tools, and the one way to tell an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from m3b.agents.artifacts import Selection
from m3b.agents.budget import Budget
from m3b.agents.pseudonymization import PseudonymizingModel, Pseudonyms
from m3b.data.cards import Card
from m3b.errors import RunFailed
from m3b.events import Event
from m3b.journal import Journal
from m3b.llm import LLM, ledger
from m3b.llm.base import spec_of
from m3b.llm.ledger import Ledger
from m3b.llm.specs import RULES
from m3b.messages import ToolCall
from m3b.run.artifact_validation import ArtifactValidator
from m3b.run.extensions import NO_EXTENSIONS, UserExtensions, guard_callback
from m3b.run.folder import RunFolder
from m3b.run.labelling import make_labelling
from m3b.run.manifests import RunManifests
from m3b.run.options import Options
from m3b.run.provisioning import lay_out_run_folder, make_toolbox
from m3b.run.sandbox_executor import SandboxExecutor
from m3b.run.state import RunState
from m3b.run.training_view import VIEW_FOLDER, begin_training, end_training
from m3b.sandbox import Sandbox
from m3b.tools import Roots, ToolResult
from m3b.workspace import Workspace

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.run.external_sources import ExternalSource
    from m3b.run.stage_sequence import Stages


AskUser = Callable[[str], str | None]
ApproveCommand = Callable[[str], bool]
OnEvent = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Takes events where nobody looks on."""


@dataclass(frozen=True)
class Hooks:
    """See `Pipeline`."""

    ask: AskUser | None = None
    approve: ApproveCommand | None = None
    on_event: OnEvent = ignore_event


def make_hooks(
    ask: AskUser | None, approve: ApproveCommand | None, on_event: OnEvent | None, publish: OnEvent
) -> Hooks:
    """What a user gave, guarded, with m3b's own feed of events before it."""
    user_callback = guard_callback("on_event", on_event) if on_event else ignore_event

    def publish_event(event: Event) -> None:
        publish(event)
        user_callback(event)

    return Hooks(
        guard_callback("ask", ask) if ask else None,
        guard_callback("approve", approve) if approve else None,
        publish_event,
    )


A = TypeVar("A")
LLMs = Mapping[str, LLM]
"""A model a role; `default` is for those that are not named."""


@dataclass
class RunContext:
    """One run at work, made anew by each process that takes it up.

    Args:
        state: what earlier processes did of the same run; empty for a new one.
        cancel_event: set from anywhere to end the run.
        extensions: tools and checks of the user's.
        overrides: what the user said of how the data is to be read.
        stages: what is worked on, in this order.
        external_sources: test sets of other places, measured at the end; nothing else looks at them.
        fsync: whether each event waits for the disk.
    """

    folder: RunFolder
    request: str
    options: Options
    workspace: Workspace
    llms: LLMs
    sandbox: Sandbox
    state: RunState
    hooks: Hooks = field(default_factory=Hooks)
    extensions: UserExtensions = NO_EXTENSIONS
    cancel_event: threading.Event = field(default_factory=threading.Event)
    overrides: Given | None = None
    stages: Stages = ()
    external_sources: tuple[ExternalSource, ...] = ()
    fsync: bool = True

    def __post_init__(self) -> None:
        self.role = ""
        self.journal = Journal(self.folder.journal_file, fsync=self.fsync)
        self.pseudonyms: Pseudonyms | None = None
        self.ledger = Ledger(self.folder.path / ledger.LEDGER_FILE)
        self.budget = _make_budget(self.options, self.state)
        cards = [card for card in self.workspace.cards.values() if card.path]
        roots = lay_out_run_folder(self.folder, cards, self.workspace.root, self.workspace.templates)
        self.raw_folders = {card.root: card.path for card in cards if card.path and card.path.is_dir()}
        readable_folders = [*self.raw_folders.values(), self.folder.resources]
        self.labelling = make_labelling(self)
        self.tools = make_toolbox(self, roots, readable_folders)
        self.executor = SandboxExecutor(self.sandbox, self.folder, readable_folders, self.cancel_event.is_set)
        manifests = RunManifests(self.folder, self.executor.run_job, self.emit, self.overrides)
        is_confined = self.sandbox.name != "off"
        self.validator = ArtifactValidator(
            self.folder,
            self.executor.predict,
            self.executor.predict_baseline,
            self.executor.get_checking_reader,
            self.emit,
            manifests,
            is_confined=is_confined,
            raw_folders=self.raw_folders,
            request=self.request,
            labelling=self.labelling,
        )

    def emit(self, event: Event) -> None:
        """Write an event down, fold it into the state, show it.

        Raises:
            Failed: the journal cannot be written, because the disk is full for instance.
        """
        event = event.with_role(self.role)
        if event.is_journaled:
            try:
                self.journal.write(event)
            except OSError as error:
                raise RunFailed(
                    f"The journal {self.folder.journal_file} cannot be written ({error.strerror}). Make room on the disk, "
                    f"then `{self.folder.format_command('resume')}`."
                ) from error
        self.state.apply_event(event)
        self.hooks.on_event(event)

    def get_artifact(self, artifact_class: type[A]) -> A:
        """What an earlier stage handed over.

        Raises:
            LookupError: none did; a stage names in `needs` what it takes.
        """
        artifact = self.state.get_artifact(artifact_class)
        if artifact is None:
            raise LookupError(
                f"no stage has handed over a {artifact_class.__name__} yet; a stage names in `needs` what it takes"
            )
        return artifact

    @property
    def card(self) -> Card:
        """That of the data set that was selected."""
        return self.workspace.cards[self.get_artifact(Selection).card]

    def get_llm(self, role: str) -> LLM:
        """The model that plays a role."""
        return self.llms.get(role) or self.llms["default"]

    def get_metered_llm(self, role: str) -> LLM:
        """The same, as it is asked: what it gets is written to the ledger, without the names of persons."""
        llm = self.get_llm(role)
        metered_llm = self.ledger.meter(llm, role)
        if self.options.phi == "allow" or spec_of(llm) == RULES:
            return metered_llm
        if self.pseudonyms is None:
            self.pseudonyms = Pseudonyms()
            for raw_folder in self.raw_folders.values():
                self.pseudonyms.learn_names(raw_folder)
        return PseudonymizingModel(metered_llm, self.pseudonyms)

    def preview(self, tool: str, arguments: Mapping[str, object]) -> ToolResult:
        """A preview on m3b's own account: it costs the agents no action."""
        return self.tools.call(ToolCall("look", tool, dict(arguments)), (tool,))

    def switch_folders(self, roots: Roots, readable_folders: list[Path]) -> None:
        """Give scripts, tools and m3b's own probes other folders from now on."""
        self.tools.close()
        self.tools, self.executor.readable_folders = (
            make_toolbox(self, roots, readable_folders),
            tuple(readable_folders),
        )

    def restrict_to_training_cases(self, dataset: str, task: str, on_progress: Callable[[int, int], None]) -> None:
        """From here on no script, preview or probe meets the raw data, the test cases or what the index was made with."""
        self.tools.close()
        self.executor.close()
        link = self.sandbox.name != "off"
        image_facts = {"request": self.request, "modality": self.card.modality, "anatomy": self.card.anatomy}
        roots = begin_training(
            self.folder,
            self.raw_folders,
            dataset,
            task,
            allow_links=link,
            on_progress=on_progress,
            make_reader=self.executor.open_reader,
            image_facts=image_facts,
        )
        self.switch_folders(roots, [self.folder.path / VIEW_FOLDER, self.folder.resources])

    def restore_folders(self, *, is_resumable: bool) -> None:
        """Stop every process, and put back for people what training did not see."""
        self.tools.close()
        self.executor.close()
        if index := self.state.index:
            end_training(self.folder, self.raw_folders, index.task, keep_view=is_resumable)

    def close(self) -> None:
        """Stop every process and close the journal."""
        self.tools.close()
        self.executor.close()
        self.journal.close()


def _make_budget(options: Options, state: RunState) -> Budget:
    budget = Budget(
        max_actions=options.max_actions, max_iterations=options.max_iterations if options.debug else 0,
        max_tokens=options.max_tokens, max_cost_usd=options.max_cost, max_wall_s=options.max_wall,
        usage=state.usage, used_actions=state.actions,
    )  # fmt: skip
    budget.started_at -= state.worked_seconds
    return budget
