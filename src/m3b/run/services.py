"""The services of one run: folder, options, models, tools and readers, and the recording of events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.artifacts import DataIndex, Selection, TrainedModel, kind_of, to_json
from m3b.agents.budget import Budget
from m3b.agents.checks.index_lock import RawFingerprint
from m3b.agents.pseudonymization import PseudonymizingModel, Pseudonyms
from m3b.agents.roles import DATA_ENGINEER, Role
from m3b.data.cards import Card
from m3b.engines import LOCAL, ClusterScripts, EngineOptions, open_engine, resolve_resources
from m3b.errors import RunFailed
from m3b.events import (
    ArtifactAccepted,
    Event,
    NoteAdded,
    ReplyReceived,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    ScriptOutput,
    ToolCalled,
    WaitingForModel,
)
from m3b.isolation.sandbox import Limits
from m3b.isolation.untrusted import remove_tree
from m3b.journal import Journal
from m3b.llm import LLM, ledger
from m3b.llm.base import spec_of
from m3b.llm.ledger import Ledger
from m3b.llm.specs import RULES
from m3b.messages import ToolCall
from m3b.run.check_jobs import CheckJobs
from m3b.run.extensions import guard_callback
from m3b.run.image_viewing import ImageViewing
from m3b.run.labelling import MaskLabelling
from m3b.run.options import Options
from m3b.run.provisioning import ensure_plain_folder, lay_out_run_folder, replace_link
from m3b.run.sandbox_executor import SandboxExecutor, describe_device
from m3b.run.setup import RunSetup
from m3b.run.state import RunState
from m3b.run.training_overrides import PRETRAINED_LINK, find_weight_folders
from m3b.run.training_view import VIEW_FOLDER, begin_training, end_training
from m3b.run.watching import StepLog
from m3b.tools import Roots, Toolbox, ToolResult

if TYPE_CHECKING:
    from m3b.loggers import LoggerRelay
    from m3b.run.decision import Decision
    from m3b.run.folder import RunFolder


_log = logging.getLogger(__name__)

CLUSTER_FOLDER, CHECKS_FOLDER = "cluster", "checks"
"""Folders of the run's logs with a folder for each cluster job: of scripts, and of m3b's own checks."""
PREDICTIONS_FOLDER = ".predictions"
"""Folder of the run with the images and answers of predictions that are cluster jobs."""
MIN_SCRIPT_S, MAX_TRAINING_OVERRUN = 3600.0, 3
"""A script may run for so many seconds, or so many times the planned training time if that is longer."""


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a user, guarded; see `Pipeline`."""

    ask: Callable[[str], str | None] | None
    approve: Callable[[str], bool] | None
    on_event: Callable[[Event], None] | None


class RunServices:
    """The services of a run, created by each process that works on it; what the run knows is in its `RunState`.

    Args:
        state: receives every event; it holds what earlier processes did in the run, and is empty for a new one.
        remarking_roles: the roles, in order, whose closing remarks are given to later roles: those after the data index.
        publish: receives every event, before the user's `on_event`.
        cancel_event: set by any thread to end the run.
    """

    def __init__(
        self,
        setup: RunSetup,
        state: RunState,
        remarking_roles: tuple[Role, ...],
        publish: Callable[[Event], None],
        cancel_event: threading.Event,
    ) -> None:
        self.folder, self.request, self.options = setup.folder, str(setup.record["request"]), setup.options
        self.workspace, self.llms, self.sandbox, self.extensions = (
            setup.workspace,
            setup.llms,
            setup.sandbox,
            setup.extensions,
        )
        self.overrides, self.training, self.external_sources = setup.overrides, setup.training, setup.external_sources
        self.hooks = Hooks(
            guard_callback("ask", setup.ask) if setup.ask else None,
            guard_callback("approve", setup.approve) if setup.approve else None,
            guard_callback("on_event", setup.on_event) if setup.on_event else None,
        )
        has_model = bool(state.deliveries)  # the models that made it stay its makers, whoever goes on with the run
        self.llm_names = (
            dict(setup.record["llm"]) if has_model else {name: llm.name for name, llm in setup.llms.items()}
        )
        self.remarking_roles, self.cancel_event = remarking_roles, cancel_event
        self._state, self._publish = state, publish
        self.role = ""
        self.loggers = _open_loggers(self.options.log, self.folder)
        self.journal, self.step_log = Journal(self.folder.journal_file), StepLog(self.folder)
        self.pseudonyms: Pseudonyms | None = None
        self.index_reasons: dict[str, str] = {}
        """Reasons that the Data Engineer gave for the index, which count for its further checks, too."""
        self.ledger = Ledger(self.folder.path / ledger.LEDGER_FILE)
        self.budget = _make_budget(self.options, state)
        cards = [card for card in self.workspace.cards.values() if card.path]
        roots = lay_out_run_folder(self.folder, cards, self.workspace.root, self.workspace.templates)
        self.raw_folders = {card.root: card.path for card in cards if card.path and card.path.is_dir()}
        readable_folders = [*self.raw_folders.values(), self.folder.resources]
        self.training_minutes = self.options.training_minutes
        self.cluster, self.check_jobs = self._open_cluster(setup.engine)
        self._is_training = False
        self.labelling = self._make_labelling()
        self.viewing = (
            ImageViewing(self.folder, self.options, state, lambda: self.executor) if self.options.send_images else None
        )
        self.tools = self._make_toolbox(roots, readable_folders)
        self.executor = SandboxExecutor(
            self.sandbox,
            self.folder,
            readable_folders,
            self.cancel_event.is_set,
            on_progress=lambda done, total: self.emit(ScriptOutput(0, f"predicted {done} of {total} cases")),
            check_jobs=self.check_jobs,
        )
        self.raw_fingerprint = RawFingerprint()
        self.decisions: dict[str, Decision] = {}
        """Question about a data folder -> decision, so that it is made once."""

    def _make_labelling(self) -> MaskLabelling | None:
        """Return the labelling of images by prompts, if the user has approved it."""
        if not self.options.label_with:
            return None
        return MaskLabelling(
            self.folder,
            Path(self.options.label_with),
            self.budget,
            get_llm=lambda: self.get_metered_llm(DATA_ENGINEER.name),
            resolve_path=lambda path: self.tools.context.roots.resolve(path),
            is_cancelled=self.cancel_event.is_set,
        )

    def _open_cluster(self, engine: EngineOptions) -> tuple[ClusterScripts | None, CheckJobs | None]:
        """Return what starts scripts of training, and m3b's own checks, as jobs; None, None if they run on this machine.

        Raises:
            EngineError: the engine does not answer.
            UsageError: no node has as much as a job asks for.
        """
        if engine.name == LOCAL.name:
            return None, None
        opened_engine = open_engine(engine.name)
        resources = resolve_resources(engine, opened_engine.resources())

        def make_scripts(folder_name: str) -> ClusterScripts:
            return ClusterScripts(
                opened_engine,
                self.folder.path / "logs" / folder_name,
                self.folder.id,
                resources,
                self.sandbox,
                self.options.sandbox,
                lambda text: self.emit(NoteAdded(text)),
            )

        check_jobs = CheckJobs(
            make_scripts(CHECKS_FOLDER),
            self.folder.path / PREDICTIONS_FOLDER,
            self.cancel_event.is_set,
            self._get_script_limit_s,
        )
        return make_scripts(CLUSTER_FOLDER), check_jobs

    def _get_script_limit_s(self) -> float:
        return max(MIN_SCRIPT_S, self.training_minutes * 60 * MAX_TRAINING_OVERRUN)

    def describe_device(self) -> str:
        """Return the GPUs and cores for training in words for an agent."""
        return self.cluster.describe_device() if self.cluster else describe_device()

    def _make_toolbox(self, roots: Roots, readable_folders: Sequence[Path]) -> Toolbox:
        """Return the tools of a run whose scripts may read these folders."""
        return Toolbox(
            roots,
            sandbox=self.sandbox,
            limits=Limits(wall_s=self._get_script_limit_s()),
            mounts_read=readable_folders,
            phi=self.options.phi,
            approve=self.hooks.approve,
            on_output=lambda job, text: self.emit(ScriptOutput(job, text)),
            is_cancelled=self.cancel_event.is_set,
            logs=self.folder.path / "logs",
            user_tools={
                **self.extensions.tools,
                **(self.labelling.tools if self.labelling else {}),
                **(self.viewing.tools if self.viewing else {}),
            },
            cluster=self.cluster if self._is_training else None,
        )

    def emit(self, event: Event) -> None:
        """Write an event to the journal, fold it into the state, and pass it to the callbacks.

        Raises:
            RunFailed: the journal cannot be written, for instance because the disk is full.
        """
        event = event.with_role(self.role)
        self.record_event(event)
        self.announce_event(event)

    def record_event(self, event: Event) -> None:
        """Write an event to the journal and fold it into the state; see `emit` for errors."""
        if event.is_journaled:
            try:
                self.journal.write(event)
            except OSError as error:
                raise RunFailed(
                    f"The journal {self.folder.journal_file} cannot be written ({error.strerror}). Make room on the disk, "
                    f"then `{self.folder.format_command('resume')}`."
                ) from error
        elif isinstance(event, ScriptOutput) and event.job == 0:
            self.step_log.write(event.text, event.at)
        self._state.apply_event(event)

    def announce_event(self, event: Event) -> None:
        """Pass an event to the callbacks."""
        self._publish(event)
        _log_event(self.folder.id, event)
        if self.loggers is not None:
            self.loggers.record_event(event)
            while self.loggers.failures and not isinstance(event, RunEnded):
                self.emit(NoteAdded(self.loggers.failures.pop(0)))
        if self.hooks.on_event is not None:
            self.hooks.on_event(event)

    def record_artifact(self, artifact_class: type[Any], artifact: Any, remark: str = "") -> None:
        """Record an artifact that a check accepted; it replaces an earlier artifact of the same class."""
        hashes = artifact.hashes if isinstance(artifact, DataIndex | TrainedModel) else {}
        self.emit(ArtifactAccepted(kind_of(artifact_class), to_json(artifact), hashes, remark))

    def card_of(self, selection: Selection) -> Card:
        """Return the data card of the selected data set."""
        return self.workspace.cards[selection.card]

    def get_llm(self, role: str) -> LLM:
        """Return the model of a role."""
        return self.llms.get(role) or self.llms["default"]

    def get_metered_llm(self, role: str) -> LLM:
        """Return the model of a role with the ledger and, unless `phi` allows names, with pseudonymization."""
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
        """Call a preview tool for m3b itself, without costing the agents an action."""
        return self.tools.call(ToolCall("look", tool, dict(arguments)), (tool,))

    def switch_folders(self, roots: Roots, readable_folders: list[Path]) -> None:
        """Give scripts, tools and m3b's probes other folders from now on."""
        self.tools.close()
        self.tools = self._make_toolbox(roots, readable_folders)
        self.executor.readable_folders = tuple(readable_folders)

    def restrict_to_training_cases(self, selection: Selection) -> None:
        """Hide the raw data, the test cases and the files that made the index from scripts, previews and probes."""
        self.tools.close()
        self.executor.close()
        self._is_training = True
        card = self.card_of(selection)
        roots = begin_training(
            self.folder,
            self.raw_folders,
            card.root,
            selection.task,
            allow_links=self.sandbox.name != "off",
            on_progress=lambda done, total: self.emit(ScriptOutput(0, f"view: {done} of {total} files")),
            make_reader=self.executor.open_reader,
            image_facts={"request": self.request, "modality": card.modality, "anatomy": card.anatomy},
        )
        self.switch_folders(roots, [self.folder.path / VIEW_FOLDER, self.folder.resources])

    def prepare_training(self, minutes: float) -> None:
        """Give scripts the time of a training, and let them read the pretrained weights that the user named, or all
        fetched ones.

        The weights are below `pretrained/` of the working directory.
        """
        self.training_minutes = minutes
        folders = dict.fromkeys((*self.executor.readable_folders, *self._link_pretrained_weights()))
        self.switch_folders(self.tools.context.roots, list(folders))

    def _link_pretrained_weights(self) -> list[Path]:
        folders = find_weight_folders(self.training)
        for name, folder in folders.items():
            ensure_plain_folder(self.folder.work, PRETRAINED_LINK)
            replace_link(self.folder.work / PRETRAINED_LINK / name, folder)
        return list(folders.values())

    def restore_folders(self, index: DataIndex | None, *, is_resumable: bool) -> None:
        """Stop every process, and restore for people the files that were hidden from training."""
        self.tools.close()
        if self.cluster is not None:
            self.cluster.cancel_all()
        if self.check_jobs is not None:
            self.check_jobs.close(is_resumable=is_resumable)
        if not is_resumable:  # also what the engine of an earlier process has left
            remove_tree(self.folder.path / PREDICTIONS_FOLDER)
        self.executor.close()
        if index is not None:
            end_training(self.folder, self.raw_folders, index.task, keep_view=is_resumable)

    def close(self) -> None:
        """Stop every process and close the journal."""
        self.tools.close()
        self.executor.close()
        self.journal.close()
        if self.loggers is not None:
            self.loggers.close()


def _log_event(run_id: str, event: Event) -> None:
    """Log the course of a run, without names of files, texts and arguments, which may tell who a patient is."""
    match event:
        case RunStarted():
            _log.info("run %s: started, sandbox %s", run_id, event.sandbox["name"])
        case RoleStarted() | RoleEnded():
            _log.info(
                "run %s: %s %s", run_id, event.role, "started" if isinstance(event, RoleStarted) else event.status
            )
        case ToolCalled():
            _log.debug("run %s: %s calls %s", run_id, event.role, event.name)
        case ReplyReceived(usage=usage):
            _log.debug("run %s: %s: %d + %d tokens", run_id, event.role, usage.input_tokens, usage.output_tokens)
        case WaitingForModel():
            _log.info("run %s: %s waits %.0f s for its model", run_id, event.role, event.seconds)
        case RunEnded(result=result):
            _log.info("run %s: %s", run_id, result.get("status"))


def _open_loggers(names: str, folder: RunFolder) -> LoggerRelay | None:
    """Return the opened loggers of a run; None, without importing anything, if it has none."""
    if not names:
        return None
    from m3b.loggers import open_loggers

    return open_loggers(names, folder.id, folder.path)


def _make_budget(options: Options, state: RunState) -> Budget:
    budget = Budget(
        max_actions=options.max_actions, max_iterations=options.max_iterations if options.debug else 0,
        max_tokens=options.max_tokens, max_cost_usd=options.max_cost, max_wall_s=options.max_wall,
        usage=state.usage, used_actions=state.actions,
    )  # fmt: skip
    budget.started_at -= state.worked_seconds
    return budget
