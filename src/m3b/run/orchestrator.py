"""One run from its request to a delivered model: the stages in order, and what m3b does between them.

`m3b.run.stages` defines the stages. Once the index is accepted, agents and scripts see training cases only.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile
from typing import Any, ParamSpec, TypeVar

from m3b.agents import prompts
from m3b.agents.agent_state import AgentState
from m3b.agents.artifacts import DataIndex, Selection, TrainedModel
from m3b.agents.briefing import Briefing
from m3b.agents.check_result import CheckResult, explain_failure
from m3b.agents.checks.index_lock import INTEGRITY_CLEAN
from m3b.agents.conversation import INTERRUPTED_NOTE, Conversation
from m3b.agents.loop import Agent
from m3b.agents.roles import SINGLE_AGENT, Role
from m3b.agents.search_table import describe_selection
from m3b.errors import (
    BudgetExceeded,
    DataError,
    LLMError,
    M3bError,
    RunCancelled,
    RunEnd,
    RunFailed,
    Status,
    TrainingDeclined,
)
from m3b.events import (
    ArtifactChecked,
    Event,
    FilesRecorded,
    ModelDelivered,
    ModelsCompared,
    NoteAdded,
    PromptSent,
    RoleEnded,
    RoleStarted,
    RunEnded,
    RunStarted,
    StepStarted,
    ToolReturned,
    TrainingAdded,
)
from m3b.facts import SearchSummary
from m3b.isolation.reader import Reader
from m3b.isolation.untrusted import UnsafePathError, walk
from m3b.journal import JOURNAL_FORMAT, Journal
from m3b.messages import ToolCall
from m3b.models.checksums import PROVENANCE_FILE, hash_files, sha256_of
from m3b.run.added_training import AddedTrainingStage, remove_replaced_export, restore_results
from m3b.run.confinement import sandbox_entry
from m3b.run.data_integrity import verify_integrity
from m3b.run.extensions import CallbackError, guard_callback
from m3b.run.external_sets import measure_external_sets
from m3b.run.folder import RunFolder
from m3b.run.image_viewing import VIEW_PROMPT, VIEW_TOOL, viewing_tools_of
from m3b.run.labelling import extra_tool_names_of
from m3b.run.model_validation import adopt_candidate, settle_candidate
from m3b.run.outside_causes import explain_outside_cause, find_outside_cause
from m3b.run.packaging import DeliveredModel, deliver_model
from m3b.run.plan_search import SearchedModelStage, SearchStage, add_search
from m3b.run.precheck import check_data_folders
from m3b.run.record import read_origins
from m3b.run.record_digests import digest_entries, hash_recorded_files
from m3b.run.removal import remove_caches
from m3b.run.result import FINAL_STATUSES, Result
from m3b.run.services import RunServices
from m3b.run.setup import RunSetup
from m3b.run.stages import BUILTIN_STAGES, Stage, Stages, copy_stages
from m3b.run.state import RunState
from m3b.tools import REPEATABLE, Toolbox

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
NO_LLM_NAME = "Python"
"""Model name of a stage without a language model."""


def execute_run(
    setup: RunSetup, user_stages: Stages, publish: Callable[[Event], None], cancel_event: threading.Event
) -> Result:
    """Work on a run to its end, however it ends, and write run.json and the report.

    Args:
        user_stages: the user's stages in their order; empty for m3b's own.
        publish: receives every event.
        cancel_event: set by any thread to end the run.
    """
    run, record, state = setup.folder, setup.record, setup.state or RunState()
    stages = add_search(copy_stages(user_stages), setup.options.hours)
    # Roles up to the data index see the labels of test cases, which their words could tell.
    remarking_roles = tuple(stage.role for stage in dropwhile(lambda stage: stage.artifact is not DataIndex, stages))[
        1:
    ]
    started, services = time.monotonic(), None
    result = _make_result(record, state, "failed", f"m3b itself was ended; `{run.format_command('resume')}` goes on.")
    try:
        record.update(status="working", reason="", cause="", result=None, format=JOURNAL_FORMAT)
        for key in ("ended", "journal"):
            record.pop(key, None)
        run.save_record(record)
        services = RunServices(setup, state, remarking_roles, publish, cancel_event)
        sandbox, minutes = sandbox_entry(services.sandbox), setup.added_minutes or services.options.training_minutes
        origins = {name: origin.to_json() for name, origin in read_origins(record).items()}
        services.emit(
            RunStarted(record["request"], run.id, sandbox, setup.notes, minutes, digest_entries(record), origins)
        )
        if setup.added_minutes and state.added_training is None:
            services.emit(TrainingAdded(setup.added_minutes, len(state.deliveries)))
        if setup.discards_training:
            _discard_training(state, services)
        run_stages(stages, state, services)
        if state.has_undelivered_model or not state.delivered_result:
            result = _make_model_result(record, state, run, _deliver_model(state, services))
        else:
            result = _make_earlier_result(record, state, run)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - every ending is reported as a Result
        status, reason = _describe_ending(run, error)
        if status == "failed" and (cause := find_outside_cause(run, record)) is not None:
            record.update(cause=cause.code)
            reason = explain_outside_cause(cause, run, reason)
        result = _add_delivered_figures(_make_result(record, state, status, reason), state, run)
    finally:
        result = _finish_run(run, record, result, state, services, state.worked_seconds + time.monotonic() - started)
    return result


def run_stages(stages: Sequence[Stage[Any]], state: RunState, services: RunServices) -> None:
    """Perform all stages, then the added training if there is one.

    Artifacts that another process got accepted are not made again, so a resumed run passes through here too.

    Raises:
        RunEnd: why there is no model.
    """
    stage_runner = StageRunner(stages, state, services)
    check_data_folders(list(services.workspace.cards.values()))
    for stage in stages:
        try:
            stage_runner.run_stage(stage)
        except (RunFailed, BudgetExceeded, LLMError) as error:
            if stage.required:
                raise
            services.emit(NoteAdded(f"The run goes on without {stage.role.title}: {error}"))
            services.role = ""
    settle_candidate(services.folder, state.get_artifact(TrainedModel))
    if state.added_training is not None:
        stage_runner.add_training()


def _discard_training(state: RunState, services: RunServices) -> None:
    """Drop an added training that was interrupted."""
    training = state.added_training
    if training is not None:
        restore_results(services.folder, training.number)
        reason = f"An added training of {training.minutes:g} min was dropped; the earlier model stays."
        services.emit(ModelsCompared("earlier", reason))


@dataclass
class StageRunner:
    """Performs the stages of one run."""

    stages: Sequence[Stage[Any]]
    state: RunState
    services: RunServices
    _single_agent: Agent | None = None
    """The agent that plays all roles, with the option `roles="single"`."""

    def run_stage(self, stage: Stage[A]) -> A:
        """Perform a stage from its briefing to its accepted artifact; skip it if the journal holds the artifact.

        Raises:
            RunEnd: why nothing was accepted.
        """
        artifact = self.state.find_artifact(stage.artifact)
        if artifact is None:
            _guard_stage_method(stage, "prepare", stage.prepare)(self.state, self.services)
            try:
                check_result, remark = self._run_role(stage), ""
            except BudgetExceeded as error:
                check_result, remark = self._salvage(stage, error)
            artifact = self._record_artifact(stage, check_result, remark)
        _guard_stage_method(stage, "accept", stage.accept)(self.state, self.services)
        return artifact

    def add_training(self) -> None:
        """Perform the added training; its model replaces the measured one if it is better.

        Raises:
            RunEnd: why there is no result.
        """
        stage, earlier = AddedTrainingStage(), self.state.get_artifact(TrainedModel)
        check_result = self._run_role(stage)
        self.services.role = ""
        if check_result.artifact != earlier:
            remark = self.state.comparison.reason if self.state.comparison else ""
            self._record_artifact(stage, check_result, remark)
            adopt_candidate(self.services.folder)
            remove_replaced_export(self.services.folder, len(self.state.deliveries))

    def _run_role(self, stage: Stage[A]) -> CheckResult:
        """Let the role work, and record how it ended in any case."""
        services, role = self.services, stage.role
        services.role = role.name
        services.emit(RoleStarted(role.title, services.get_llm(role.name).name if stage.uses_agent else NO_LLM_NAME))
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

    def _submit(self, stage: Stage[A]) -> CheckResult:
        """Return the check result that accepts the artifact of an agent, or of a stage in Python alone."""
        if stage.uses_agent:
            return self._prepare_agent(stage).run(
                lambda closing_text: self._check(stage, closing_text), stage.role.failure_message
            )
        check_result = self._check(stage, "")
        self.services.emit(
            ArtifactChecked(
                check_result.is_accepted, check_result.agent_messages, check_result.warnings, check_result.user_messages
            )
        )
        if not check_result.is_accepted:
            raise (check_result.end_error or RunFailed)(
                explain_failure(stage.role.failure_message, *check_result.user_messages), code="rejected"
            )
        return check_result

    def _check(self, stage: Stage[A], closing_text: str) -> CheckResult:
        """Check an artifact, after stopping all scripts so that none can change it during the check."""
        services = self.services
        stopped_scripts = services.tools.stop_running_scripts()
        for text in stopped_scripts:
            services.emit(NoteAdded(text))
        check_result = _guard_stage_method(stage, "check", stage.check)(self.state, services, closing_text)
        if not isinstance(check_result, CheckResult):
            problem = f"The check of {stage.role.name} returned {check_result!r}"
            raise CallbackError(f"{problem}; return accept(artifact) or reject(problem) of m3b.agents.check_result.")
        check_result = services.extensions.apply_check(services.role, check_result, services.folder.work)
        return replace(check_result, warnings=(*check_result.warnings, *stopped_scripts))

    def _salvage(self, stage: Stage[A], budget_error: BudgetExceeded) -> tuple[CheckResult, str]:
        """Return what exists at the end of the budget if the check accepts it; measuring it ignores the budget.

        Raises:
            BudgetExceeded: `budget_error`, if nothing can be accepted.
        """
        services = self.services
        services.role = stage.role.name
        services.tools.stop_running_scripts()
        check_result = services.extensions.apply_check(
            services.role,
            _guard_stage_method(stage, "salvage", stage.salvage)(self.state, services),
            services.folder.work,
        )
        if check_result is None or not check_result.is_accepted:
            raise budget_error
        remark = (
            f"The budget ended before the {stage.role.title} did ({budget_error}); what it had exported was measured."
        )
        services.emit(NoteAdded(remark))
        return check_result, remark

    def _record_artifact(self, stage: Stage[A], check_result: CheckResult, remark: str) -> A:
        """Record the artifact that a check accepted, and return it."""
        artifact = check_result.artifact
        if not isinstance(artifact, stage.artifact):
            problem = f"The check of {stage.role.name} accepted {artifact!r}, which is no {stage.artifact.__name__}"
            raise CallbackError(f"{problem}; return accept({stage.artifact.__name__}(...)).")
        self.services.record_artifact(stage.artifact, artifact, remark)
        self.services.role = ""
        return artifact

    def _emit_role_ended(self, status: str) -> None:
        """Emit the end of the role; if the journal cannot be written, only update the state.

        The error that ended the role is then the one that is reported.
        """
        try:
            self.services.emit(RoleEnded(status))
        except RunFailed:
            self.state.apply_event(RoleEnded(status, role=self.services.role))

    # --- the agent -----------------------------------------------------------------------------------------------

    def _prepare_agent(self, stage: Stage[A]) -> Agent:
        """Return a new agent with its briefing, or an agent with the conversation from the journal."""
        services, role = self.services, stage.role
        is_single = services.options.roles == "single"
        if is_single and self._single_agent is not None:
            self._single_agent.tools = services.tools
            self._brief_agent(self._single_agent, stage)
            return self._single_agent
        agent = self._make_agent(SINGLE_AGENT if is_single else role, role)
        played_roles = [other.role for other in self.stages if other.uses_agent] if is_single else [role]
        role_events = self.state.dialogue.get(role.name, [])
        past_events = [event for played_role in played_roles for event in self.state.dialogue.get(played_role.name, [])]
        viewing = services.viewing
        agent.conversation = Conversation.from_events(
            past_events,
            keep_open_calls=bool(role_events),
            **({"load_images": viewing.restore_images} if viewing else {}),
        )
        if not past_events:
            self._brief_agent(agent, stage, played_roles)
        elif not role_events:
            self._brief_agent(agent, stage)
        if past_events:
            self._resume_agent(
                agent, past_events, iterations=self.state.role_usage[role.name].iterations if role_events else 0
            )
        if is_single:
            self._single_agent = agent
        return agent

    def _resume_agent(self, agent: Agent, past_events: Sequence[Event], *, iterations: int) -> None:
        folder = self.services.folder
        state = AgentState.from_events(past_events)
        state.iterations = max(state.iterations, iterations)
        tools, answered_jobs = self.services.tools, self._list_answered_jobs()
        agent.resume(
            state,
            lambda call: "" if goes_on_as_job(tools, call, answered_jobs) else answer_interrupted_call(folder, call),
        )
        reopened_jobs = tools.reopen_jobs(state.lost_jobs)
        lost_jobs = {
            job: describe_training_resume(folder, command)
            for job, command in state.lost_jobs.items()
            if job not in reopened_jobs
        }
        self.services.tools.record_lost_jobs(lost_jobs)

    def _list_answered_jobs(self) -> set[int]:
        """Return the numbers of all scripts that an agent got a result of."""
        events = (event for dialogue in self.state.dialogue.values() for event in dialogue)
        return {
            int(event.facts["job"])
            for event in events
            if isinstance(event, ToolReturned) and isinstance(event.facts.get("job"), int)
        }

    def _make_agent(self, tool_role: Role, role: Role) -> Agent:
        services = self.services
        reflection = (
            prompts.read_reflection(services.workspace.root / "prompts", role, _list_prompt_parts_left_out(services))
            if services.options.reflect
            else ""
        )
        return Agent(
            llm=services.get_metered_llm(role.name),
            tools=services.tools,
            allowed_tools=tuple(
                dict.fromkeys(
                    (
                        *tool_role.tools,
                        *services.extensions.tools,
                        *extra_tool_names_of(services.labelling, role.name),
                        *viewing_tools_of(services.viewing, tool_role.name, services.get_llm(role.name)),
                    )
                )
            ),
            budget=services.budget,
            emit=services.emit,
            reflection=reflection,
            is_cancelled=services.cancel_event.is_set,
            stream=services.options.stream,
        )

    def _brief_agent(self, agent: Agent, stage: Stage[A], played_roles: Sequence[Role] = ()) -> None:
        """Give the agent the task of the stage; with `played_roles` a conversation begins, with their system prompt."""
        workspace = self.services.workspace
        system = (
            prompts.build_system_prompt(
                workspace.root / "prompts",
                played_roles,
                with_examples=self.services.options.examples,
                extra_prompts=workspace.prompts,
                tool_prompts=[VIEW_PROMPT] if VIEW_TOOL in agent.allowed_tools else [],
                left_out=_list_prompt_parts_left_out(self.services),
            )
            if played_roles
            else ""
        )
        briefing = _guard_stage_method(stage, "build_briefing", stage.build_briefing)(self.state, self.services)
        if isinstance(briefing, str):
            briefing = Briefing(f"Stage: {stage.role.name}\n\n{briefing.strip()}")
        text = f"{briefing.text}\n\n{self.services.budget.describe_remaining()}"
        event = PromptSent(system, text, [briefing.facts.to_json()] if briefing.facts else [])
        self.services.emit(event)
        if system:
            agent.conversation = Conversation.from_events([event])
        else:
            agent.conversation.add_user_text(event.text, event.facts)


def _list_prompt_parts_left_out(services: RunServices) -> tuple[str, ...]:
    """Return the headings of parts of prompts that do not hold in this run: after a search there is no second training."""
    return () if services.options.hours is None else (prompts.SECOND_TRAINING,)


def _guard_stage_method(stage: Stage[A], name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return a method of a stage, guarded if the stage is the user's, so that its errors end the run with its name."""
    is_builtin = type(stage) in (*BUILTIN_STAGES, AddedTrainingStage, SearchStage, SearchedModelStage)
    return function if is_builtin else guard_callback(f"stages: {stage.role.name}.{name}", function)


LOG_FOLDER = "Logout"
COMPLETE_CHECKPOINT_PATTERN = re.compile(r"(?:^|/)checkpoint(?:-\d+/complete\.json|\.pt)$")
"""Files of the templates that exist only when a checkpoint is complete."""
TRAINING_COMMAND_PATTERN = re.compile(r"\bpython3?\s+train\.py\b")


def goes_on_as_job(tools: Toolbox, call: ToolCall, answered_jobs: Collection[int]) -> bool:
    """Return whether an interrupted call waits for a cluster job that goes on, so that it can be run again."""
    command, number = call.arguments.get("command"), call.arguments.get("job")
    if call.name != "run_script":
        return False
    if number:
        return any(job.number == number for job in tools.jobs)
    return isinstance(command, str) and tools.continue_command(command, answered_jobs)


def answer_interrupted_call(run: RunFolder, call: ToolCall) -> str:
    """Return the answer to a tool call that was started and never answered; '' if the call can be repeated safely."""
    if call.name in (*REPEATABLE, VIEW_TOOL):
        return ""
    command = str(call.arguments.get("command", "")) if call.name == "run_script" else ""
    return f"{INTERRUPTED_NOTE} {describe_training_resume(run, command)}".strip()


def describe_training_resume(run: RunFolder, command: str) -> str:
    """Return how to resume an interrupted training that left a checkpoint; else ''."""
    if not TRAINING_COMMAND_PATTERN.search(command) or not (checkpoint := _find_checkpoint(run)):
        return ""
    resume_command = (
        command
        if "--resume" in command
        else TRAINING_COMMAND_PATTERN.sub(lambda match: f"{match[0]} --resume", command, count=1)
    )
    return f"A checkpoint is there ({checkpoint}): `{resume_command}` goes on from it."


def _find_checkpoint(run: RunFolder) -> str:
    try:
        checkpoints = [
            entry.name
            for entry in walk(run.work, LOG_FOLDER)
            if entry.kind == "file" and COMPLETE_CHECKPOINT_PATTERN.search(entry.name)
        ]
    except (OSError, UnsafePathError):
        return ""
    return f"{LOG_FOLDER}/{checkpoints[-1].removesuffix('/complete.json')}" if checkpoints else ""


def _deliver_model(state: RunState, services: RunServices) -> DeliveredModel:
    """Copy the measured model to `model/` with its card, metrics and hashes, and return it."""
    services.emit(StepStarted("measuring and delivering the model"))
    services.tools.close()
    selection, data = state.get_artifact(Selection), state.get_artifact(DataIndex)
    card, folder = services.card_of(selection), services.folder
    is_replacement = bool(state.deliveries) and state.has_undelivered_model
    external = measure_external_sets(state, services)
    integrity = verify_integrity(services, selection, data)
    run_facts = {
        "request": services.request,
        "run": folder.id,
        "seed": services.options.seed,
        "llm": services.llm_names,
        "test_looks": state.test_looks,
        "options": services.options.to_json(),
        "set_by_user": services.training.describe(),
        "sandboxes": list(state.sandboxes),
        **({"search": search.to_json()} if (search := state.find_artifact(SearchSummary)) else {}),
    }
    delivered = deliver_model(
        folder,
        selection=selection,
        card=card,
        data=data,
        model=state.get_artifact(TrainedModel),
        integrity=integrity,
        run_facts=run_facts,
        predict_baseline=services.executor.predict_baseline,
        journal={"lines": services.journal.line_count, "head": services.journal.last_digest},
        external_results=external,
        earlier_model=folder.get_earlier_model(len(state.deliveries)) if is_replacement else None,
    )
    provenance_hash = sha256_of(folder.model / PROVENANCE_FILE)
    services.emit(ModelDelivered({**hash_files(folder.model), PROVENANCE_FILE: provenance_hash}))
    remarks = [state.remark, describe_selection(search) if search else ""]
    return replace(delivered, reason=_join_sentences(delivered.reason, " ".join(filter(None, remarks))))


TRACEBACK_FILE = "error.txt"
"""File of the run folder with the traceback of an unexpected error."""


def _describe_ending(run: RunFolder, error: BaseException) -> tuple[Status, str]:
    """Return the status of a run that ended with an error, and the reason for people."""
    resume_hint = f"`{run.format_command('resume')}` goes on."
    match error:
        case TrainingDeclined():
            return error.status, str(error)
        case RunCancelled(code="job_cancelled"):
            return "cancelled", f"{error} Everything made so far is kept; {resume_hint}"
        case KeyboardInterrupt() | RunCancelled():
            return "cancelled", f"Stopped on request. Everything made so far is kept; {resume_hint}"
        case RunEnd():
            if isinstance(error, CallbackError):
                _save_traceback(run, error)
            return error.status, str(error)
        case M3bError():
            return "failed", str(error)
        case OSError():
            file_note = f" ({error.filename})" if error.filename else ""
            return (
                "failed",
                f"The system refused: {error.strerror or error}{file_note}. Fix that, then {resume_hint[: -len(' goes on.')]}.",
            )
    _save_traceback(run, error)
    message = f"m3b itself failed with {type(error).__name__}: {error}".rstrip(": ")
    return "failed", f"{message}. {TRACEBACK_FILE} in the run folder says where; please report it. {resume_hint}"


def _save_traceback(run: RunFolder, error: BaseException) -> None:
    with contextlib.suppress(OSError):
        (run.path / TRACEBACK_FILE).write_text("".join(traceback.format_exception(error)), encoding="utf-8")


@contextlib.contextmanager
def _borrow_reader(services: RunServices) -> Iterator[Reader]:
    """Yield the reader of locked files and raw data that the run has already."""
    yield services.executor.get_checking_reader()


def _finish_run(
    run: RunFolder, record: dict[str, Any], result: Result, state: RunState, services: RunServices | None, wall_s: float
) -> Result:
    """Stop everything that still runs, then write the result; a full disk or a second Ctrl-C must not hide it."""
    from m3b.report.page import REPORT_FILE
    from m3b.run.reporting import draw_run_pictures, write_run_report

    result.usage["wall_s"] = round(wall_s, 1)
    if services is not None:
        services.role = ""
        services.tools.close()
        if result.status != "cancelled":
            with contextlib.suppress(OSError):
                draw_run_pictures(run, partial(_borrow_reader, services), services.executor.sandbox)
        with contextlib.suppress(OSError, DataError):
            services.restore_folders(state.index, is_resumable=result.status not in FINAL_STATUSES)
        if result.status in FINAL_STATUSES:
            remove_caches(run)
    record.update(status=result.status, reason=result.reason)
    ended = RunEnded({**result.to_json(), "report": str(run.path / REPORT_FILE)}, at=round(time.time(), 3))
    with contextlib.suppress(OSError, RunFailed):
        _record_end(run, record, ended, services)
        result = replace(result, report=write_run_report(run, should_draw=False))
    if services is not None:
        with contextlib.suppress(RunFailed):
            services.announce_event(ended)
        services.close()
    return result


def _record_end(run: RunFolder, record: dict[str, Any], ended: RunEnded, services: RunServices | None) -> None:
    """Write the end of the run to the journal, then to run.json; if the journal has no room, run.json stays `working`.

    Raises:
        OSError, RunFailed: a file cannot be written.
    """
    journal = services.journal if services is not None else Journal(run.journal_file)
    try:
        files = FilesRecorded(hash_recorded_files(run), digest_entries(record))
        if services is not None:
            services.emit(files)
            services.record_event(ended)
        else:
            journal.write(files)
            journal.write(ended)
    finally:
        if services is None:
            journal.close()
    position = {"lines": journal.line_count, "head": journal.last_digest}
    run.save_record({**record, "result": ended.result, "ended": ended.at, "journal": position})


def _make_result(record: Mapping[str, Any], state: RunState, status: Status, reason: str) -> Result:
    selection, index, usage = state.selection, state.index, state.usage
    return Result(
        status=status,
        reason=reason,
        request=record["request"],
        task=selection.task if selection else "",
        data_card=selection.card if selection else "",
        usage={
            "actions": state.actions,
            "iterations": state.iterations,
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cached_share": round(usage.cached_share, 4),
            "cost_usd": round(usage.cost_usd, 6),
        },
        roles={name: usage.to_json() for name, usage in state.role_usage.items()},
        run_dir=record["run_dir"],
        patients_known=index.patients_known if index else None,
        grouped_by=index.grouped_by if index else "",
        assumptions=index.assumptions if index else (),
    )


def _make_model_result(record: Mapping[str, Any], state: RunState, run: RunFolder, delivered: DeliveredModel) -> Result:
    status: Status = (
        "completed" if delivered.is_accepted else "below_range" if delivered.integrity == INTEGRITY_CLEAN else "failed"
    )
    return replace(
        _make_result(record, state, status, delivered.reason),
        primary=delivered.scores.primary,
        acceptable=delivered.acceptable,
        metrics={name: measure.to_dict() for name, measure in delivered.scores.metrics.items()},
        integrity=delivered.integrity,
        model_dir=str(run.model),
        patients=delivered.scores.n_patients if delivered.scores.patients_known else None,
        external=dict(delivered.external),
        has_verdict=delivered.has_verdict,
        test_looks=state.test_looks,
        test_sample=dict(delivered.scores.details.get("test_sample") or {}),
    )


def _make_earlier_result(record: Mapping[str, Any], state: RunState, run: RunFolder) -> Result:
    """Return the result of a run whose delivered model was not replaced by that of an added training."""
    status, reason = state.delivered_result["status"], state.delivered_result["reason"]
    reason = _join_sentences(reason, state.comparison.reason if state.comparison else "")
    return _add_delivered_figures(_make_result(record, state, status, reason), state, run)


def _join_sentences(reason: str, remark: str) -> str:
    return f"{reason.removesuffix('.')}. {remark}" if remark else reason


def _add_delivered_figures(result: Result, state: RunState, run: RunFolder) -> Result:
    """Return the result with the figures of the delivered model, if there is one."""
    if not state.delivered_result:
        return result
    return replace(
        Result.from_json(state.delivered_result),
        status=result.status,
        reason=result.reason,
        usage=result.usage,
        roles=result.roles,
        run_dir=result.run_dir,
        model_dir=str(run.model),
        report=None,
    )
