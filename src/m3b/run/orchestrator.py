"""One run at work: the roles one after the other, every event written down before anything else happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from m3b.agents import briefing, prompts
from m3b.agents.artifacts import Artifact, DataIndex, Selection, TrainedModel, TrainingModule, to_json
from m3b.agents.budget import Budget
from m3b.agents.checks.module import check_module
from m3b.agents.checks.selection import Ask, SelectionCheck
from m3b.agents.checks.site import check_site
from m3b.agents.conversation import Conversation
from m3b.agents.loop import Agent
from m3b.agents.roles import DATA_ENGINEER, MODULE_ARCHITECT, SINGLE, STAGES, Role
from m3b.agents.verdict import Verdict
from m3b.data.cards import Card
from m3b.errors import Failed, OutOfBudget, RunEnd
from m3b.events import Event
from m3b.llm import LLM, ledger
from m3b.llm.ledger import Ledger
from m3b.messages import ToolCall
from m3b.run.acceptance import Inspector
from m3b.run.extensions import NOTHING, Own
from m3b.run.folder import UNWRITTEN, Journal, Run
from m3b.run.given import kept_to
from m3b.run.options import Options
from m3b.run.packaging import Delivered, deliver
from m3b.run.provisioning import ToolParts, lay_out, toolbox
from m3b.run.readings import Readings
from m3b.run.sandbox_runner import Executor, device
from m3b.run.state import History
from m3b.run.training_view import VIEW, begin_training, end_training
from m3b.sandbox import Sandbox
from m3b.tools import Roots, Toolbox
from m3b.workspace import Workspace

if TYPE_CHECKING:
    from m3b.data.spec.given import Given

Check = Callable[[str], Verdict]
LLMs = Mapping[str, LLM]
"""A model a role; `default` is for those that are not named."""


class Session:
    """Everything that one run needs while it works.

    Args:
        history: what an earlier process did of the same run; empty for a new one.
        cancel: set from anywhere to end the run.
        own: tools and checks of the user's.
        given: what the user said of how the data is to be read.
    """

    def __init__(
        self,
        run: Run,
        request: str,
        options: Options,
        *,
        workspace: Workspace,
        llms: LLMs,
        sandbox: Sandbox,
        history: History,
        ask: Ask | None = None,
        approve: Callable[[str], bool] | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
        cancel: threading.Event | None = None,
        own: Own = NOTHING,
        given: Given | None = None,
        fsync: bool = True,
    ) -> None:
        self.run, self.request, self.options, self.workspace = run, request, options, workspace
        self.llms, self.history, self.ask, self.on_event = llms, history, ask, on_event
        self.cancel, self.own = cancel or threading.Event(), own
        self.journal = Journal(run.journal_file, fsync=fsync)
        self.ledger = Ledger(run.folder / ledger.FILE)
        self.role = self._ended = ""
        self._sandbox, self._approve = sandbox, approve
        cards = [card for card in workspace.cards.values() if card.path]
        roots = lay_out(run, cards, workspace.root, workspace.templates)
        self.raw = {card.root: card.path for card in cards if card.path and card.path.is_dir()}
        read = [*self.raw.values(), run.resources]
        self.tools = self._toolbox(roots, read)
        self.executor = Executor(sandbox, run, read, self.cancel.is_set)
        confined, predict = sandbox.name != "off", self.executor.predict
        looking = Readings(run, self.executor.reading, self.emit, given)
        self.inspector = Inspector(run, predict, self.emit, looking, confined=confined, raw_roots=self.raw)
        self.budget = Budget(
            actions=options.max_actions, iterations=options.max_iterations if options.debug else 0,
            tokens=options.max_tokens, cost_usd=options.max_cost,
            wall_s=options.max_wall, usage=history.usage, used=history.actions,
        )  # fmt: skip
        self.budget.started -= history.seconds
        self._single: Agent | None = None

    def _toolbox(self, roots: Roots, read: Sequence[Path]) -> Toolbox:
        said = lambda job, text: self.emit("output", job=job, text=text)  # noqa: E731
        own, approve = self.own.tools, self._approve
        parts = ToolParts(self._sandbox, self.run, self.options, approve, said, self.cancel.is_set, own)
        return toolbox(roots, read, parts)

    def emit(self, kind: str, **data: Any) -> None:
        """Write an event down, fold it into the history, show it.

        Raises:
            Failed: the journal cannot be written, because the disk is full for instance.
        """
        event = Event(kind, self.role, data)
        if kind not in UNWRITTEN:
            try:
                self.journal.write(event)
            except OSError as error:
                raise Failed(
                    f"The journal {self.run.journal_file} cannot be written ({error.strerror}). Make room on the disk, "
                    f"then `{self.run.command('resume')}`."
                ) from error
        self.history.take(event)
        self.on_event(event)

    def close(self) -> None:
        """Stop every process of the run and close the journal."""
        self.tools.close()
        self.journal.close()

    # --- the stages ----------------------------------------------------------------------------------------------

    def work(self) -> Delivered:
        """All four stages and the delivery.

        Raises:
            RunEnd: why there is no model.
        """
        cards = self.workspace.cards
        check_site(list(cards.values()))
        selection = cast(
            Selection,
            self._stage(
                STAGES[0],
                lambda: briefing.selection_briefing(self.request, list(cards.values()), self._look),
                kept_to(self.inspector.readings.given, SelectionCheck(cards, self.ask)),
            ),
        )
        card = cards[selection.card]
        self.inspector.watch(card)
        data = cast(
            DataIndex,
            self._stage(
                STAGES[1],
                lambda: self._index_briefing(selection, card),
                lambda text: self.inspector.check_index(selection, card, text),
            ),
        )
        self._show_training_only(card, selection.task)
        module = cast(
            TrainingModule,
            self._stage(
                STAGES[2],
                lambda: briefing.module_briefing(
                    selection,
                    data,
                    self.history.audit,
                    self._minutes(),
                    device(),
                    self.run.resources,
                    self._closing(DATA_ENGINEER),
                ),
                lambda text: check_module(self.run.work, data.classes, self.executor.probe, selection.task),
            ),
        )
        return self._deliver(selection, card, data, self._trained(selection, card, data, module))

    def _index_briefing(self, selection: Selection, card: Card) -> str:
        offers = self.inspector.readings.propose(self.request, selection, card)
        return briefing.index_briefing(self.request, selection, card, self._look, self.run.resources, offers)

    def _trained(self, selection: Selection, card: Card, data: DataIndex, module: TrainingModule) -> TrainedModel:
        """What the Model Trainer hands over, or what it had exported when the budget ended: trained is trained."""
        planned = module.plan.get("minutes")
        minutes = float(planned) if isinstance(planned, int | float) else self.options.train_minutes
        closing = self._closing(DATA_ENGINEER, MODULE_ARCHITECT)
        brief = lambda: briefing.model_briefing(selection, data, module, minutes, closing)  # noqa: E731
        try:
            return cast(
                TrainedModel, self._stage(STAGES[3], brief, lambda text: self.inspector.check_model(selection, card))
            )
        except OutOfBudget as end:
            return self._rescued(end, selection, card)

    def _rescued(self, end: OutOfBudget, selection: Selection, card: Card) -> TrainedModel:
        """The deliverable that lies there, measured whatever the budget, if the check accepts it; else raises `end`."""
        self.role = STAGES[3].name
        self.tools.stop_scripts()
        verdict = self.own.asked(self.role, self.inspector.last_model(selection, card), self.run.work)
        if verdict is None or not verdict.accepted:
            raise end
        self._ended = f"The budget ended before the Model Trainer did ({end}); what it had exported was measured."
        self.emit("note", text=self._ended)
        return cast(TrainedModel, self._keep(STAGES[3], verdict.artifact))

    def _minutes(self) -> float:
        minutes = self.budget.training_minutes(self.options.train_minutes)
        if minutes < self.options.train_minutes:
            told = f"Training gets {minutes:g} minutes: the rest of --max-wall is kept for measuring what it makes."
            self.emit("stage", text=told)
        return minutes

    def _stage(self, role: Role, brief: Callable[[], str], check: Check) -> Artifact:
        """One role from its briefing to its accepted artifact; skipped where the journal holds the artifact."""
        done = self.history.artifacts.get(role.artifact)
        if done is not None:
            return done
        self.role = role.name
        self.emit("role_started", title=role.title, llm=self._llm(role).name)
        status = "failed"
        try:
            agent = self._agent(role, brief)
            verdict = agent.run(lambda text: self._checked(check, text), role.duty)
            status = "done"
        except RunEnd as end:
            status = end.status
            raise
        except KeyboardInterrupt:
            status = "cancelled"
            raise
        finally:
            self._role_ended(status)
        return self._keep(role, verdict.artifact)

    def _keep(self, role: Role, artifact: Artifact) -> Artifact:
        extra = {"hashes": artifact.hashes} if isinstance(artifact, DataIndex | TrainedModel) else {}
        self.emit("artifact", artifact=role.artifact, value=to_json(artifact), **extra)
        self.role = ""
        return artifact

    def _show_training_only(self, card: Card, task: str) -> None:
        """From here on no script, preview or probe meets the raw data, the test cases or what the index was made with."""
        self.tools.close()
        tick = lambda done, total: self.emit("output", job=0, text=f"view: {done} of {total} files")  # noqa: E731
        link = self._sandbox.name != "off"
        roots = begin_training(self.run, self.raw, card.root, task, link=link, tick=tick)
        read = [self.run.folder / VIEW, self.run.resources]
        self.tools, self.executor.read = self._toolbox(roots, read), tuple(read)
        if self._single is not None:
            self._single.tools = self.tools

    def leave(self, *, resumable: bool) -> None:
        """Stop every process, and put back for people what training did not see."""
        self.tools.close()
        if "index" in self.history.artifacts:
            task = cast(DataIndex, self.history.artifacts["index"]).task
            end_training(self.run, self.raw, task, keep_view=resumable)

    def _checked(self, check: Check, said: str) -> Verdict:
        """The check of a hand-over, once no script of the run can change any more what it looks at."""
        stopped = self.tools.stop_scripts()
        for text in stopped:
            self.emit("note", text=text)
        verdict = self.own.asked(self.role, check(said), self.run.work)
        return replace(verdict, warnings=(*verdict.warnings, *stopped))

    def _role_ended(self, status: str) -> None:
        """Said also when the journal itself is what failed; the first error is the one to be told."""
        try:
            self.emit("role_ended", status=status)
        except Failed:
            self.history.take(Event("role_ended", self.role, {"status": status}))

    def _agent(self, role: Role, brief: Callable[[], str]) -> Agent:
        """A new agent with its briefing, or the one whose conversation the journal holds."""
        single = self.options.roles == "single"
        if single and self._single is not None:
            self._brief(self._single, brief, system="")
            return self._single
        agent = self._new_agent(SINGLE if single else role, role)
        told = self._told() if single else self.history.dialogue.get(role.name, [])
        agent.conversation = Conversation.restore(told)
        mine = self.history.dialogue.get(role.name, [])
        if not told:
            self._brief(agent, brief, system=self._system(STAGES if single else (role,)))
        elif not mine:
            self._brief(agent, brief, system="")
        else:
            agent.counters.iterations = self.history.roles[role.name].iterations
        if single:
            self._single = agent
        return agent

    def _new_agent(self, tools: Role, role: Role) -> Agent:
        reflection = prompts.reflection(self.workspace.root / "prompts", role) if self.options.reflect else ""
        return Agent(
            llm=self.ledger.of(self._llm(role), role.name),
            tools=self.tools,
            allowed=(*tools.tools, *self.own.tools),
            budget=self.budget,
            emit=self.emit,
            reflection=reflection,
            cancelled=self.cancel.is_set,
            stream=self.options.stream,
        )

    def _told(self) -> list[Event]:
        """The dialogue of all stages so far, for the single agent."""
        return [event for role in STAGES for event in self.history.dialogue.get(role.name, [])]

    def _brief(self, agent: Agent, brief: Callable[[], str], *, system: str) -> None:
        text = brief()
        event = Event("prompt", self.role, {"system": system, "text": text})
        self.emit("prompt", **event.data)
        if system:
            agent.conversation = Conversation.restore([event])
        else:
            agent.conversation.say(text)

    def _closing(self, *roles: Role) -> dict[str, str]:
        """What earlier roles said when they handed over, by title; a single agent has said it itself."""
        if self.options.roles == "single":
            return {}
        said = {role.title: " ".join(self.history.closing.get(role.name, [])) for role in roles}
        return {title: text for title, text in said.items() if text}

    def _system(self, roles: Sequence[Role]) -> str:
        folder, added = self.workspace.root / "prompts", self.workspace.prompts
        return prompts.system_prompt(folder, roles, examples=self.options.examples, added=added)

    def _llm(self, role: Role) -> LLM:
        return self.llms.get(role.name) or self.llms["default"]

    def _look(self, tool: str, arguments: Mapping[str, object]) -> str:
        """A preview on m3b's own account."""
        return self.tools.call(ToolCall("look", tool, dict(arguments)), (tool,)).text

    def _deliver(self, selection: Selection, card: Card, data: DataIndex, model: TrainedModel) -> Delivered:
        self.emit("stage", text="measuring and delivering the model")
        self.tools.close()
        label = self.inspector.label(data, card)
        facts = {
            "request": self.request,
            "run": self.run.id,
            "seed": self.options.seed,
            "llm": {name: llm.name for name, llm in self.llms.items()},
            "options": self.options.to_json(),
        }
        made = deliver(self.run, selection=selection, card=card, data=data, model=model, integrity=label, facts=facts)
        return replace(made, reason=f"{made.reason} {self._ended}".strip()) if self._ended else made
