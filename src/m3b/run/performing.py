"""A stage performed: its agent briefed or taken up again, its hand-over checked, what was accepted written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from m3b.agents import prompts
from m3b.agents.artifacts import DataIndex, TrainedModel, kind_of, to_json
from m3b.agents.briefing import Briefing
from m3b.agents.conversation import Conversation
from m3b.agents.loop import Agent
from m3b.agents.reasons import why
from m3b.agents.roles import SINGLE, Role
from m3b.agents.standing import Standing
from m3b.agents.verdict import Verdict
from m3b.errors import Failed, OutOfBudget, RunEnd
from m3b.events import Briefed, Checked, Event, HandedOver, Noted, RoleEnded, RoleStarted
from m3b.run import interrupted
from m3b.run.callbacks import CallbackFailed, guarded
from m3b.run.context import RunContext
from m3b.run.labelling import tools_of
from m3b.run.stages import SHIPPED, Stage

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
PYTHON = "Python"
"""Stands for the model of a stage that asks none."""


class Performer:
    """Performs the stages of one run."""

    def __init__(self, run: RunContext) -> None:
        self.run = run
        self._single_agent: Agent | None = None

    def perform(self, stage: Stage[A]) -> A:
        """One stage from its briefing to its accepted artifact; skipped where the journal holds the artifact.

        Raises:
            RunEnd: why nothing was accepted.
        """
        artifact = self.run.state.made(stage.artifact)
        if artifact is not None:
            return artifact
        try:
            return self.keep(stage, self._work(stage))
        except OutOfBudget as error:
            return self.keep(stage, *self._salvage(stage, error))

    def _work(self, stage: Stage[A]) -> Verdict:
        """The agent at work, whatever becomes of it written down."""
        run, role = self.run, stage.role
        run.role = role.name
        run.emit(RoleStarted(role.title, run.llm(role.name).name if stage.asks else PYTHON))
        status = "failed"
        try:
            check_result = self._submit(stage)
            status = "done"
            return check_result
        except RunEnd as error:
            status = error.status
            raise
        except KeyboardInterrupt:
            status = "cancelled"
            raise
        finally:
            self._emit_role_ended(status)

    def _submit(self, stage: Stage[A]) -> Verdict:
        """The verdict that accepts what an agent made, or what Python alone did."""
        if stage.asks:
            return self._prepare_agent(stage).run(
                lambda closing_text: self._checked(stage, closing_text), stage.role.duty
            )
        check_result = self._checked(stage, "")
        self.run.emit(Checked(check_result.accepted, check_result.faults, check_result.warnings, check_result.reasons))
        if not check_result.accepted:
            raise (check_result.end or Failed)(why(stage.role.duty, *check_result.reasons))
        return check_result

    def _checked(self, stage: Stage[A], said: str) -> Verdict:
        """The check of a hand-over, once no script of the run can change any more what it looks at."""
        run = self.run
        stopped_scripts = run.tools.stop_scripts()
        for text in stopped_scripts:
            run.emit(Noted(text))
        check_result = _guard_stage_method(stage, "check", stage.check)(run, said)
        if not isinstance(check_result, Verdict):
            problem = f"The check of {stage.role.name} gave {check_result!r}"
            raise CallbackFailed(f"{problem}; let it give accepted(artifact) or rejected(words) of m3b.agents.verdict.")
        check_result = run.own.asked(run.role, check_result, run.folder.work)
        return replace(check_result, warnings=(*check_result.warnings, *stopped_scripts))

    def _salvage(self, stage: Stage[A], budget_error: OutOfBudget) -> tuple[Verdict, str]:
        """What lies there, measured whatever the budget, if the check accepts it: trained is trained; else raises `end`."""
        run = self.run
        run.role = stage.role.name
        run.tools.stop_scripts()
        check_result = run.own.asked(run.role, _guard_stage_method(stage, "left", stage.left)(run), run.folder.work)
        if check_result is None or not check_result.accepted:
            raise budget_error
        remark = (
            f"The budget ended before the {stage.role.title} did ({budget_error}); what it had exported was measured."
        )
        run.emit(Noted(remark))
        return check_result, remark

    def keep(self, stage: Stage[A], verdict: Verdict, remark: str = "") -> A:
        """What a check accepted, written down; of the same stage again it takes the place of what was there."""
        artifact = verdict.artifact
        if not isinstance(artifact, stage.artifact):
            problem = f"The check of {stage.role.name} accepted {artifact!r}, which is no {stage.artifact.__name__}"
            raise CallbackFailed(f"{problem}; let it give accepted({stage.artifact.__name__}(...)).")
        hashes = artifact.hashes if isinstance(artifact, DataIndex | TrainedModel) else {}
        self.run.emit(HandedOver(kind_of(stage.artifact), to_json(artifact), hashes, remark))
        self.run.role = ""
        return artifact

    def _emit_role_ended(self, status: str) -> None:
        """Said also when the journal itself is what failed; the first error is the one to be told."""
        try:
            self.run.emit(RoleEnded(status))
        except Failed:
            self.run.state.take(RoleEnded(status, role=self.run.role))

    # --- the agent -----------------------------------------------------------------------------------------------

    def _prepare_agent(self, stage: Stage[A]) -> Agent:
        """A new agent with its briefing, or the one whose conversation the journal holds."""
        run, role = self.run, stage.role
        is_single = run.options.roles == "single"
        if is_single and self._single_agent is not None:
            self._single_agent.tools = run.tools
            self._brief_agent(self._single_agent, stage, system="")
            return self._single_agent
        agent = self._new(SINGLE if is_single else role, role)
        role_events = run.state.dialogue.get(role.name, [])
        past_events = self._told() if is_single else role_events
        agent.conversation = Conversation.restore(past_events, keep_open_calls=bool(role_events))
        if not past_events:
            self._brief_agent(agent, stage, system=self._system(self._list_agent_roles() if is_single else (role,)))
        elif not role_events:
            self._brief_agent(agent, stage, system="")
        if past_events:
            self._resume_agent(
                agent, past_events, iterations=run.state.roles[role.name].iterations if role_events else 0
            )
        if is_single:
            self._single_agent = agent
        return agent

    def _resume_agent(self, agent: Agent, past_events: Sequence[Event], *, iterations: int) -> None:
        run = self.run.folder
        state = Standing.of(past_events)
        state.iterations = max(state.iterations, iterations)
        agent.take_up(state, lambda call: interrupted.told(run, call))
        lost_jobs = {job: interrupted.going_on(run, command) for job, command in state.lost.items()}
        self.run.tools.remember_lost(lost_jobs)

    def _new(self, tools: Role, role: Role) -> Agent:
        run = self.run
        reflection = prompts.reflection(run.workspace.root / "prompts", role) if run.options.reflect else ""
        return Agent(
            llm=run.asked(role.name),
            tools=run.tools,
            allowed_tools=tuple(dict.fromkeys((*tools.tools, *run.own.tools, *tools_of(run.labelling, role.name)))),
            budget=run.budget,
            emit=run.emit,
            reflection=reflection,
            is_cancelled=run.cancel.is_set,
            stream=run.options.stream,
        )

    def _told(self) -> list[Event]:
        """The dialogue of all stages so far, for the single agent."""
        return [event for role in self._list_agent_roles() for event in self.run.state.dialogue.get(role.name, [])]

    def _list_agent_roles(self) -> list[Role]:
        return [stage.role for stage in self.run.stages if stage.asks]

    def _brief_agent(self, agent: Agent, stage: Stage[A], *, system: str) -> None:
        briefing = _guard_stage_method(stage, "briefing", stage.briefing)(self.run)
        if isinstance(briefing, str):
            briefing = Briefing(f"Stage: {stage.role.name}\n\n{briefing.strip()}")
        text = f"{briefing.text}\n\n{self.run.budget.told()}"
        event = Briefed(system, text, [briefing.facts.plain()] if briefing.facts else [])
        self.run.emit(event)
        if system:
            agent.conversation = Conversation.restore([event])
        else:
            agent.conversation.say(event.text, event.facts)

    def _system(self, roles: Sequence[Role]) -> str:
        workspace = self.run.workspace
        folder, with_examples = workspace.root / "prompts", self.run.options.examples
        return prompts.system_prompt(folder, roles, examples=with_examples, added=workspace.prompts)


def _guard_stage_method(stage: Stage[A], name: str, function: Callable[P, R]) -> Callable[P, R]:
    """A method of a stage; whatever one of the user's raises ends the run with its name."""
    return function if type(stage) in SHIPPED else guarded(f"stages: {stage.role.name}.{name}", function)
