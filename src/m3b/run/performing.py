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
        self._single: Agent | None = None

    def perform(self, stage: Stage[A]) -> A:
        """One stage from its briefing to its accepted artifact; skipped where the journal holds the artifact.

        Raises:
            RunEnd: why nothing was accepted.
        """
        done = self.run.state.made(stage.artifact)
        if done is not None:
            return done
        try:
            return self.keep(stage, self._work(stage))
        except OutOfBudget as end:
            return self.keep(stage, *self._rescued(stage, end))

    def _work(self, stage: Stage[A]) -> Verdict:
        """The agent at work, whatever becomes of it written down."""
        run, role = self.run, stage.role
        run.role = role.name
        run.emit(RoleStarted(role.title, run.llm(role.name).name if stage.asks else PYTHON))
        status = "failed"
        try:
            verdict = self._handed_over(stage)
            status = "done"
            return verdict
        except RunEnd as end:
            status = end.status
            raise
        except KeyboardInterrupt:
            status = "cancelled"
            raise
        finally:
            self._role_ended(status)

    def _handed_over(self, stage: Stage[A]) -> Verdict:
        """The verdict that accepts what an agent made, or what Python alone did."""
        if stage.asks:
            return self._agent(stage).run(lambda said: self._checked(stage, said), stage.role.duty)
        verdict = self._checked(stage, "")
        self.run.emit(Checked(verdict.accepted, verdict.faults, verdict.warnings, verdict.reasons))
        if not verdict.accepted:
            raise (verdict.end or Failed)(why(stage.role.duty, *verdict.reasons))
        return verdict

    def _checked(self, stage: Stage[A], said: str) -> Verdict:
        """The check of a hand-over, once no script of the run can change any more what it looks at."""
        run = self.run
        stopped = run.tools.stop_scripts()
        for text in stopped:
            run.emit(Noted(text))
        verdict = _guarded(stage, "check", stage.check)(run, said)
        if not isinstance(verdict, Verdict):
            what = f"The check of {stage.role.name} gave {verdict!r}"
            raise CallbackFailed(f"{what}; let it give accepted(artifact) or rejected(words) of m3b.agents.verdict.")
        verdict = run.own.asked(run.role, verdict, run.folder.work)
        return replace(verdict, warnings=(*verdict.warnings, *stopped))

    def _rescued(self, stage: Stage[A], end: OutOfBudget) -> tuple[Verdict, str]:
        """What lies there, measured whatever the budget, if the check accepts it: trained is trained; else raises `end`."""
        run = self.run
        run.role = stage.role.name
        run.tools.stop_scripts()
        verdict = run.own.asked(run.role, _guarded(stage, "left", stage.left)(run), run.folder.work)
        if verdict is None or not verdict.accepted:
            raise end
        remark = f"The budget ended before the {stage.role.title} did ({end}); what it had exported was measured."
        run.emit(Noted(remark))
        return verdict, remark

    def keep(self, stage: Stage[A], verdict: Verdict, remark: str = "") -> A:
        """What a check accepted, written down; of the same stage again it takes the place of what was there."""
        made = verdict.artifact
        if not isinstance(made, stage.artifact):
            what = f"The check of {stage.role.name} accepted {made!r}, which is no {stage.artifact.__name__}"
            raise CallbackFailed(f"{what}; let it give accepted({stage.artifact.__name__}(...)).")
        hashes = made.hashes if isinstance(made, DataIndex | TrainedModel) else {}
        self.run.emit(HandedOver(kind_of(stage.artifact), to_json(made), hashes, remark))
        self.run.role = ""
        return made

    def _role_ended(self, status: str) -> None:
        """Said also when the journal itself is what failed; the first error is the one to be told."""
        try:
            self.run.emit(RoleEnded(status))
        except Failed:
            self.run.state.take(RoleEnded(status, role=self.run.role))

    # --- the agent -----------------------------------------------------------------------------------------------

    def _agent(self, stage: Stage[A]) -> Agent:
        """A new agent with its briefing, or the one whose conversation the journal holds."""
        run, role = self.run, stage.role
        single = run.options.roles == "single"
        if single and self._single is not None:
            self._single.tools = run.tools
            self._brief(self._single, stage, system="")
            return self._single
        agent = self._new(SINGLE if single else role, role)
        mine = run.state.dialogue.get(role.name, [])
        told = self._told() if single else mine
        agent.conversation = Conversation.restore(told, still_open=bool(mine))
        if not told:
            self._brief(agent, stage, system=self._system(self._roles() if single else (role,)))
        elif not mine:
            self._brief(agent, stage, system="")
        if told:
            self._take_up(agent, told, iterations=run.state.roles[role.name].iterations if mine else 0)
        if single:
            self._single = agent
        return agent

    def _take_up(self, agent: Agent, told: Sequence[Event], *, iterations: int) -> None:
        run = self.run.folder
        standing = Standing.of(told)
        standing.iterations = max(standing.iterations, iterations)
        agent.take_up(standing, lambda call: interrupted.told(run, call))
        lost = {number: interrupted.going_on(run, command) for number, command in standing.lost.items()}
        self.run.tools.remember_lost(lost)

    def _new(self, tools: Role, role: Role) -> Agent:
        run = self.run
        reflection = prompts.reflection(run.workspace.root / "prompts", role) if run.options.reflect else ""
        return Agent(
            llm=run.asked(role.name),
            tools=run.tools,
            allowed=tuple(dict.fromkeys((*tools.tools, *run.own.tools, *tools_of(run.labelling, role.name)))),
            budget=run.budget,
            emit=run.emit,
            reflection=reflection,
            cancelled=run.cancel.is_set,
            stream=run.options.stream,
        )

    def _told(self) -> list[Event]:
        """The dialogue of all stages so far, for the single agent."""
        return [event for role in self._roles() for event in self.run.state.dialogue.get(role.name, [])]

    def _roles(self) -> list[Role]:
        return [stage.role for stage in self.run.stages if stage.asks]

    def _brief(self, agent: Agent, stage: Stage[A], *, system: str) -> None:
        told = _guarded(stage, "briefing", stage.briefing)(self.run)
        if isinstance(told, str):
            told = Briefing(f"Stage: {stage.role.name}\n\n{told.strip()}")
        text = f"{told.text}\n\n{self.run.budget.told()}"
        event = Briefed(system, text, [told.facts.plain()] if told.facts else [])
        self.run.emit(event)
        if system:
            agent.conversation = Conversation.restore([event])
        else:
            agent.conversation.say(event.text, event.facts)

    def _system(self, roles: Sequence[Role]) -> str:
        workspace = self.run.workspace
        folder, examples = workspace.root / "prompts", self.run.options.examples
        return prompts.system_prompt(folder, roles, examples=examples, added=workspace.prompts)


def _guarded(stage: Stage[A], name: str, function: Callable[P, R]) -> Callable[P, R]:
    """A method of a stage; whatever one of the user's raises ends the run with its name."""
    return function if type(stage) in SHIPPED else guarded(f"stages: {stage.role.name}.{name}", function)
