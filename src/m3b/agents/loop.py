"""The agent loop: ask the model, run its calls, check its artifact, and repeat.

Every role uses this loop. The model is asked, and its tool calls are run and answered. A reply without a call means
that the work is done, and plain Python checks the artifact. If no artifact is accepted, the loop ends with a `RunEnd`
exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from m3b.agents.agent_state import AgentState, RoleUsage
from m3b.agents.artifacts import parse_give_up
from m3b.agents.budget import Budget
from m3b.agents.check_result import CheckResult, describe_script_failure, explain_failure
from m3b.agents.conversation import INTERRUPTED_NOTE, Conversation
from m3b.agents.roles import FailureMessage
from m3b.errors import BudgetExceeded, ContextOverflow, LLMError, RunCancelled, RunFailed
from m3b.events import (
    ArtifactChecked,
    Event,
    MessageReason,
    MessageSent,
    NoteAdded,
    ReplyDelta,
    ReplyReceived,
    ToolCalled,
    ToolReturned,
    WaitingForModel,
)
from m3b.facts import Reflection
from m3b.llm.base import LLM, LLMRequest
from m3b.messages import Reply, ToolCall, ToolSpec
from m3b.tools import ToolResult

Emit = Callable[[Event], None]
WRAP_UP_PROMPT = (
    "The budget of this run is spent: no tool can be called any more. In at most five sentences, say what is done, what is "
    "missing, and what should be done next."
)
EMPTY_REPLY_PROMPT = "Your reply was empty. Call a tool, or say that you are done."
TRUNCATED_REPLY_PROMPT = (
    "Your reply was cut off at its length limit and was not used. Take a smaller step: shorter files, fewer calls."
)
DECLINED_REPLY_PROMPT = (
    "You declined. What is asked for is software: a model for medical images, built from the data that you were told of. "
    "Go on with the task, or say in one sentence what exactly you will not do."
)
REFUSAL_MESSAGE = "The model refused to go on. Rephrase the request, or use another model."
MIN_FREE_WAIT_S, MAX_ANNOUNCED_ACTIONS = 10, 5
"""Shortest wait that costs no action, because it is no polling; number of actions left from which the model is told."""


class ToolRunner(Protocol):
    """The interface of a toolbox that the loop needs."""

    def tool_specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]: ...

    def call(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult: ...


class Agent:
    """An agent that plays one role.

    Args:
        llm: the language model.
        tools: runs tool calls.
        allowed_tools: names of the tools of this role.
        budget: shared with the other roles.
        emit: receives every event; it writes the journal, which may end the run.
        conversation: empty, or restored from a journal.
        reflection: text that is sent once if the artifact is accepted with warnings; '' turns it off.
        is_cancelled: polled while waiting for the model.
        stream: whether to emit the model's text as it arrives.
    """

    def __init__(
        self,
        *,
        llm: LLM,
        tools: ToolRunner,
        allowed_tools: Sequence[str],
        budget: Budget,
        emit: Emit,
        conversation: Conversation | None = None,
        reflection: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
        stream: bool = False,
    ) -> None:
        self.llm, self.tools, self.allowed_tools, self.budget = llm, tools, tuple(allowed_tools), budget
        self.emit, self.reflection, self.is_cancelled, self.stream = emit, reflection, is_cancelled, stream
        self.conversation = conversation or Conversation()
        self.usage = RoleUsage()
        self.resume(AgentState())
        self.tool_specs = tools.tool_specs(self.allowed_tools)
        self._failure_message = FailureMessage()
        self._running_jobs: set[int] = set()

    def resume(
        self, state: AgentState, describe_interrupted: Callable[[ToolCall], str] = lambda call: INTERRUPTED_NOTE
    ) -> None:
        """Continue from the state of the agent in another process.

        Args:
            describe_interrupted: returns the answer to a call that was started and never answered; if it is empty, the
                call is run again.
        """
        self.usage.iterations, self.repetitions = state.iterations, state.repetitions
        # Tries on a full disk count in their own process only: the disk may have room again.
        self._script_failed, self._script_error = state.script_failed and not state.disk_was_full, state.script_error
        self._disk_was_full, self._full_disk_iterations = state.disk_was_full, 0
        self._has_reflected, self._unusable_replies = state.has_reflected, state.unusable_replies
        self._resumed_state, self._describe_interrupted = state, describe_interrupted

    def _answer_open_calls(self) -> None:
        """Answer the open calls of another process; a call that was already started costs no further action."""
        started_calls, waiting_calls = self._resumed_state.started_calls, self._resumed_state.waiting_calls
        self._resumed_state = AgentState()
        for call in started_calls:
            result = ToolResult(self._describe_interrupted(call), True, {"interrupted": True})
            self._record_result(call, result if result.text else self.tools.call(call, self.allowed_tools))
        if waiting_calls:
            self._run_calls(waiting_calls)

    def run(self, check: Callable[[str], CheckResult], failure_message: FailureMessage | None = None) -> CheckResult:
        """Work until `check` accepts the artifact.

        Args:
            failure_message: what a person is told if it fails.

        Raises:
            BudgetExceeded, RunFailed, RunCancelled, or the `end_error` of the check result: why no artifact was
            accepted.
        """
        self._failure_message = failure_message or FailureMessage()
        self._answer_open_calls()
        pending_reply = self.conversation.find_unchecked_reply()
        while True:
            reply = self._ask_model() if pending_reply is None else Reply(pending_reply)
            pending_reply = None
            if reply.calls:
                if not self._run_calls(reply.calls):
                    continue
                reply = Reply(reply.text or "done")
            if self._handle_unusable_reply(reply):
                continue
            if give_up_reason := parse_give_up(reply.text):
                raise RunFailed(
                    " ".join(
                        part
                        for part in (f"{self._failure_message.summary}. {give_up_reason}", self._script_error)
                        if part
                    ),
                    code="gave_up",
                )
            check_result = check(reply.text)
            if check_result.reply:
                self._send_message(check_result.reply, "answer", facts=check_result.facts)
                continue
            self.emit(
                ArtifactChecked(
                    check_result.is_accepted,
                    check_result.agent_messages,
                    check_result.warnings,
                    check_result.user_messages,
                )
            )
            if not check_result.is_accepted:
                self._handle_rejection(check_result)
            elif check_result.warnings and self.reflection and not self._has_reflected:
                self._has_reflected = True
                notes = f"The check accepts your work, and noted:\n{_bullet_list(check_result.warnings)}"
                facts = Reflection(warnings=check_result.warnings).to_json()
                self._send_message(
                    f"{self.reflection}\n\n{notes}\n\n{self.budget.describe_remaining()}", "reflection", facts=facts
                )
            else:
                self._has_reflected, self._script_error = False, ""
                return check_result

    # --- asking --------------------------------------------------------------------------------------------------

    def _ask_model(self) -> Reply:
        if self.is_cancelled():
            raise RunCancelled("The run was cancelled.")
        self.budget.check_limits()
        facts = self.llm.facts
        dropped = self.conversation.drop_old_results(self.tool_specs, facts.window, facts.max_output)
        if dropped:
            self.emit(NoteAdded(f"{dropped} old tool results were dropped to fit the model's window."))
        try:
            reply = self._send_request(self.tool_specs)
        except ContextOverflow:
            # The window is smaller than the model facts say: trim to half of it, and try once more.
            self.conversation.drop_old_results(self.tool_specs, facts.window // 2, facts.max_output // 2)
            reply = self._send_request(self.tool_specs)
        if reply.stop == "length" and reply.calls:
            reply = Reply(reply.text, (), reply.usage, "length", reply.model)
        self.conversation.add_reply(reply.text, reply.calls)
        self.emit(ReplyReceived(reply.text, reply.calls, reply.usage, reply.stop))
        return reply

    def _send_request(self, specs: Sequence[ToolSpec]) -> Reply:
        self.budget.check_limits(
            self.llm.facts.compute_usage(self.conversation.estimate_tokens(specs), 0, self.budget.mean_output_tokens)
        )
        request = LLMRequest(
            self.conversation.messages,
            specs,
            on_wait=lambda reason, seconds: self.emit(WaitingForModel(reason, seconds)),
            is_cancelled=self._check_interruption,
            on_text=(lambda text: self.emit(ReplyDelta(text))) if self.stream else None,
        )
        reply = self.llm.ask(request)
        self.budget.record_usage(reply.usage)
        self.usage.input_tokens += reply.usage.input_tokens
        self.usage.output_tokens += reply.usage.output_tokens
        return reply

    def _check_interruption(self) -> bool:
        """Return whether the run is cancelled, and check its time; polled while waiting for the model."""
        self.budget.check_time()
        return self.is_cancelled()

    def _handle_unusable_reply(self, reply: Reply) -> bool:
        """Answer a reply that is neither a call nor a closing text; three in a row end the role."""
        prompt_by_stop = {"length": TRUNCATED_REPLY_PROMPT, "refusal": DECLINED_REPLY_PROMPT}
        prompt = prompt_by_stop.get(reply.stop, "" if reply.text.strip() else EMPTY_REPLY_PROMPT)
        if not prompt:
            self._unusable_replies = 0
            return False
        self._unusable_replies += 1
        if self._unusable_replies >= 3:
            last_reply = "was cut off at its length limit" if reply.stop == "length" else "was empty"
            message = f"The model gave three unusable replies in a row; the last {last_reply}. Use another model."
            if reply.stop == "refusal":
                raise RunFailed(REFUSAL_MESSAGE, code="refused")
            raise RunFailed(message, code="unusable_replies")
        self._send_message(prompt, "unusable")
        return True

    def _send_message(
        self, text: str, reason: MessageReason, iteration: int = 0, facts: Mapping[str, Any] | None = None
    ) -> None:
        data = [dict(facts)] if facts else []
        self.conversation.add_user_text(text, data)
        self.emit(MessageSent(text, reason, iteration, data))

    # --- acting --------------------------------------------------------------------------------------------------

    def _run_calls(self, calls: Sequence[ToolCall]) -> bool:
        """Run the calls of one reply in order, and tell the model if it is going round in circles.

        Returns:
            Whether a tool reported that the work is done.
        """
        self._unusable_replies = 0
        free_flags = [self._is_free_wait(call) for call in calls]
        granted = self.budget.reserve_actions(free_flags.count(False))
        repetition = ""
        budget_spent = work_done = False
        for call, is_free in zip(calls, free_flags, strict=True):
            if not is_free:
                if granted == 0:
                    self._record_result(call, ToolResult("Not run: the action budget is spent.", True))
                    budget_spent = True
                    continue
                granted -= 1
                self.usage.actions += 1
            if work_done:
                self._record_result(call, ToolResult("Not run: the work is done.", True))
                continue
            result = self._run_call(call, is_free)
            work_done = bool(result.data.get("done"))
            is_last = not is_free and granted == 0
            self._record_result(call, self._append_actions_left(result) if is_last else result)
            if not result.data.get("running"):
                repetition = (
                    self.repetitions.observe(call, result.text, bool(result.data.get("malformed"))) or repetition
                )
        if work_done:
            return True
        if budget_spent:
            self._wrap_up()
        if repetition:
            self._handle_repetition(repetition)
        return False

    def _run_call(self, call: ToolCall, is_free: bool) -> ToolResult:
        if self.is_cancelled():
            raise RunCancelled("The run was cancelled.")
        iteration = self._start_iteration() if self._script_failed and call.name == "run_script" and not is_free else 0
        self.emit(ToolCalled(call.id, call.name, call.arguments, 0 if is_free else 1, iteration))
        result = self.tools.call(call, self.allowed_tools)
        if call.name == "run_script" and "exit_code" in result.data:
            self._script_failed = result.data["exit_code"] != 0
            self._disk_was_full = bool(result.data.get("disk_full"))
            self._script_error = describe_script_failure(result) if self._script_failed else ""
        if "job" in result.data:
            (self._running_jobs.add if result.data.get("running") else self._running_jobs.discard)(result.data["job"])
        return result

    def _append_actions_left(self, result: ToolResult) -> ToolResult:
        """Add the number of actions left to a result if few are left, since handing over needs some of them."""
        actions_left = self.budget.actions_left
        if actions_left > MAX_ANNOUNCED_ACTIONS:
            return result
        count_note = f"{actions_left} action{'s are' if actions_left != 1 else ' is'} left in this run."
        note = count_note if actions_left else "No action is left: hand over."
        return replace(result, text=f"{result.text}\n\n[{note}]")

    def _is_free_wait(self, call: ToolCall) -> bool:
        """Return whether a call waits for a running job, which costs no action unless the wait is short (polling)."""
        arguments: dict[str, Any] = call.arguments
        if call.name != "run_script" or arguments.get("command"):
            return False
        try:
            wait_s = float(arguments.get("wait_s", 600))
            return wait_s >= MIN_FREE_WAIT_S and int(arguments.get("job", 0)) in self._running_jobs
        except (TypeError, ValueError):
            return False

    def _record_result(self, call: ToolCall, result: ToolResult) -> None:
        self.conversation.add_tool_result(call, result.text, result.is_error, result.images, result.data)
        self.emit(ToolReturned(call.id, call.name, result.text, result.is_error, result.data))

    def _handle_repetition(self, repetition: str) -> None:
        if self.repetitions.has_warned:
            raise RunFailed(
                self._explain_failure(f"The agent went round in circles: {repetition}"), code="going_in_circles"
            )
        self.repetitions.has_warned = True
        self._send_message(
            f"You are going round in circles: {repetition} Do something else: {_suggest_way_out(self.allowed_tools)}",
            "circle",
        )

    def _start_iteration(self) -> int:
        """Return the number of the debug iteration that begins with this call; see `_count_iteration`."""
        if not self.budget.max_iterations:
            message = "A script failed, and no debug iteration is allowed in this run."
            raise RunFailed(self._explain_failure(message), code="script_failed")
        if not self._has_iterations_left:
            spent = f"{self.budget.max_iterations} debug iterations are spent: a script failed again and again."
            raise RunFailed(self._explain_failure(spent), code="script_failed")
        return self._count_iteration()

    @property
    def _has_iterations_left(self) -> bool:
        return self.usage.iterations + self._full_disk_iterations < self.budget.max_iterations

    def _count_iteration(self) -> int:
        """Return the number of the debug iteration that begins; 0 if the disk was full, so that a resume does not count it."""
        if self._disk_was_full:
            self._full_disk_iterations += 1
            return 0
        self.usage.iterations += 1
        return self.usage.iterations

    def _handle_rejection(self, check_result: CheckResult) -> None:
        end_error = check_result.end_error or RunFailed
        if check_result.is_fatal:
            raise end_error(" ".join(check_result.user_messages), code="rejected")
        if not self._has_iterations_left:
            message = self._explain_failure(*check_result.user_messages, iterations=self.budget.max_iterations)
            raise end_error(message, code="rejected")
        iteration = self._count_iteration()
        notes = f"\nIt noted besides:\n{_bullet_list(check_result.warnings)}" if check_result.warnings else ""
        message = (
            f"The check does not accept this yet:\n{_bullet_list(check_result.agent_messages)}{notes}\nFix this, "
            f"then say that you are done."
        )
        self._send_message(message, "rejected", iteration, facts=check_result.to_rejection().to_json())

    def _explain_failure(self, *findings: str, iterations: int = 0) -> str:
        """Return the reason for people; it includes the last script error, which usually names the cause."""
        return explain_failure(self._failure_message, *findings, self._script_error, iterations=iterations)

    def _wrap_up(self) -> None:
        """Take one last turn without tools, so that a person can continue the work."""
        self._send_message(WRAP_UP_PROMPT, "wrap_up")
        max_actions = self.budget.max_actions
        spent = (
            f"{f'All {max_actions} actions are' if max_actions > 1 else 'The only action is'} spent. Raise max_actions."
        )
        try:
            # with the same tools, since some providers refuse a conversation whose tools are missing
            reply = self._send_request(self.tool_specs)
        except LLMError as error:
            raise BudgetExceeded(spent, code="actions") from error
        self.emit(ReplyReceived(reply.text, (), reply.usage, reply.stop))
        raise BudgetExceeded(f"{spent} {parse_give_up(reply.text) or reply.text.strip()}".strip(), code="actions")


def _suggest_way_out(allowed_tools: Sequence[str]) -> str:
    suggestion = "look at the files that are there" if "list_files" in allowed_tools else "use what you know already"
    return f"{suggestion}, choose another approach, or say what stops you."


def _bullet_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
