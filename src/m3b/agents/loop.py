"""The agent loop: ask, act, check, again.

One loop for every role. The model is asked; its calls are run and answered; when it replies without a call it says
that it is done, and plain Python checks what it hands over. Every way out other than an accepted hand-over is one of
the `RunEnd` exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from m3b.agents.budget import Budget
from m3b.agents.conversation import INTERRUPTED, Conversation
from m3b.agents.reasons import cause, why
from m3b.agents.replies import given_up
from m3b.agents.roles import Duty
from m3b.agents.standing import Standing
from m3b.agents.verdict import Verdict
from m3b.briefs import Reflection
from m3b.errors import Cancelled, ContextOverflow, Failed, LLMError, OutOfBudget
from m3b.events import Called, Checked, Delta, Event, Noted, Reason, Replied, Returned, Told, Waiting
from m3b.llm.base import LLM
from m3b.llm.streaming import ask
from m3b.messages import Reply, ToolCall, ToolSpec
from m3b.tools import ToolResult

Emit = Callable[[Event], None]
WRAP_UP = (
    "The budget of this run is spent: no tool can be called any more. In at most five sentences, say what is done, what is "
    "missing, and what should be done next."
)
EMPTY = "Your reply was empty. Call a tool, or say that you are done."
CUT = "Your reply was cut off at its length limit and was not used. Take a smaller step: shorter files, fewer calls."
DECLINED = (
    "You declined. What is asked for is software: a model for medical images, built from the data that you were told of. "
    "Go on with the task, or say in one sentence what exactly you will not do."
)
REFUSED = "The model refused to go on. Rephrase the request, or use another model."
FREE_WAIT_S, FEW_LEFT = 10, 5
"""The shortest wait that is no polling; actions from which on the model is told how many are left."""


class Tools(Protocol):
    """What the loop needs of a toolbox."""

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]: ...

    def call(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult: ...


@dataclass
class Counters:
    """What one role has used."""

    actions: int = 0
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Agent:
    """One role at work.

    Args:
        llm: answers.
        tools: runs calls.
        allowed: names of the tools that this role has.
        budget: shared with the other roles.
        emit: takes every event; it writes the journal, which may fail the run.
        conversation: empty, or restored from a journal.
        reflection: said once, with the check's warnings, when the hand-over is accepted with warnings; empty is off.
        cancelled: polled while waiting for the model.
        stream: tell the model's words as they come.
    """

    def __init__(
        self,
        *,
        llm: LLM,
        tools: Tools,
        allowed_tools: Sequence[str],
        budget: Budget,
        emit: Emit,
        conversation: Conversation | None = None,
        reflection: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
        stream: bool = False,
    ) -> None:
        self.llm, self.tools, self.allowed, self.budget = llm, tools, tuple(allowed_tools), budget
        self.emit, self.reflection, self.cancelled, self.stream = emit, reflection, is_cancelled, stream
        self.conversation = conversation or Conversation()
        self.counters = Counters()
        self.take_up(Standing())
        self.specs = tools.specs(self.allowed)
        self._failure_message = Duty()
        self._running_jobs: set[int] = set()

    def take_up(
        self, state: Standing, describe_interrupted: Callable[[ToolCall], str] = lambda call: INTERRUPTED
    ) -> None:
        """Go on from where the agent stood in another process.

        Args:
            interrupted: what is said of a call that was begun there and never answered; it is run again where that is empty.
        """
        self.counters.iterations, self.stuck = state.iterations, state.stuck
        self._script_failed, self._script_error = state.failed_script, state.cause
        self._has_reflected, self._unusable_replies = state.reflected, state.odd_replies
        self._open, self._describe_interrupted = state, describe_interrupted

    def _answer_open_calls(self) -> None:
        """Answer the calls that another process did not get through; to finish one that was begun costs no action."""
        started_calls, waiting_calls = self._open.begun, self._open.waiting
        self._open = Standing()
        for call in started_calls:
            result = ToolResult(self._describe_interrupted(call), True, {"interrupted": True})
            self._answer(call, result if result.text else self.tools.call(call, self.allowed))
        if waiting_calls:
            self._run_calls(waiting_calls)

    def run(self, check: Callable[[str], Verdict], failure_message: Duty | None = None) -> Verdict:
        """Work until `check` accepts what the agent hands over.

        Args:
            duty: what a person is told where it fails.

        Raises:
            OutOfBudget, Failed, Cancelled, or the `end` of the verdict: why no hand-over was accepted.
        """
        self._failure_message = failure_message or Duty()
        self._answer_open_calls()
        pending_reply = self.conversation.unchecked()
        while True:
            reply = self._ask() if pending_reply is None else Reply(pending_reply)
            pending_reply = None
            if reply.calls:
                if not self._run_calls(reply.calls):
                    continue
                reply = Reply(reply.text or "done")
            if self._odd(reply):
                continue
            if give_up_reason := given_up(reply.text):
                raise Failed(
                    " ".join(
                        part
                        for part in (f"{self._failure_message.failed}. {give_up_reason}", self._script_error)
                        if part
                    )
                )
            check_result = check(reply.text)
            if check_result.said:
                self._send_message(check_result.said, "answer", facts=check_result.facts)
                continue
            self.emit(Checked(check_result.accepted, check_result.faults, check_result.warnings, check_result.reasons))
            if not check_result.accepted:
                self._handle_rejection(check_result)
            elif check_result.warnings and self.reflection and not self._has_reflected:
                self._has_reflected = True
                notes = f"The check accepts your work, and noted:\n{_bullet_list(check_result.warnings)}"
                facts = Reflection(warnings=check_result.warnings).plain()
                self._send_message(f"{self.reflection}\n\n{notes}\n\n{self.budget.told()}", "reflection", facts=facts)
            else:
                self._has_reflected, self._script_error = False, ""
                return check_result

    # --- asking --------------------------------------------------------------------------------------------------

    def _ask(self) -> Reply:
        if self.cancelled():
            raise Cancelled("The run was cancelled.")
        self.budget.check()
        facts = self.llm.facts
        dropped = self.conversation.trim(self.specs, facts.window, facts.max_output)
        if dropped:
            self.emit(Noted(f"{dropped} old tool results were dropped to fit the model's window."))
        try:
            reply = self._request(self.specs)
        except ContextOverflow:
            # The window was smaller than its facts say: trim as if it were half, and try once more.
            self.conversation.trim(self.specs, facts.window // 2, facts.max_output // 2)
            reply = self._request(self.specs)
        if reply.stop == "length" and reply.calls:
            reply = Reply(reply.text, (), reply.usage, "length", reply.model)
        self.conversation.reply(reply.text, reply.calls)
        self.emit(Replied(reply.text, reply.calls, reply.usage, reply.stop))
        return reply

    def _request(self, specs: Sequence[ToolSpec]) -> Reply:
        messages, on_text = self.conversation.messages, self._emit_delta if self.stream else None
        self.budget.check(self.llm.facts.usage(self.conversation.size(specs), 0, self.budget.mean_answer))
        reply = ask(
            self.llm, messages, specs, on_wait=self._emit_waiting, cancelled=self._check_interruption, on_text=on_text
        )
        self.budget.spend(reply.usage)
        self.counters.input_tokens += reply.usage.input_tokens
        self.counters.output_tokens += reply.usage.output_tokens
        return reply

    def _check_interruption(self) -> bool:
        """Asked while the model is waited for: neither a cancellation nor the end of the run's time waits with it."""
        self.budget.check_time()
        return self.cancelled()

    def _emit_waiting(self, reason: str, seconds: float) -> None:
        self.emit(Waiting(reason, seconds))

    def _emit_delta(self, text: str) -> None:
        self.emit(Delta(text))

    def _odd(self, reply: Reply) -> bool:
        """Answer a reply that is neither a call nor a hand-over; three in a row end the role."""
        prompt_by_stop = {"length": CUT, "refusal": DECLINED}
        prompt = prompt_by_stop.get(reply.stop, "" if reply.text.strip() else EMPTY)
        if not prompt:
            self._unusable_replies = 0
            return False
        self._unusable_replies += 1
        if self._unusable_replies >= 3:
            last_reply = "was cut off at its length limit" if reply.stop == "length" else "was empty"
            message = f"The model gave three unusable replies in a row; the last {last_reply}. Use another model."
            raise Failed(REFUSED if reply.stop == "refusal" else message)
        self._send_message(prompt, "unusable")
        return True

    def _send_message(
        self, text: str, reason: Reason, iteration: int = 0, facts: Mapping[str, Any] | None = None
    ) -> None:
        data = [dict(facts)] if facts else []
        self.conversation.say(text, data)
        self.emit(Told(text, reason, iteration, data))

    # --- acting --------------------------------------------------------------------------------------------------

    def _run_calls(self, calls: Sequence[ToolCall]) -> bool:
        """Run the calls of one reply in order, then say so if they went round in circles.

        Returns:
            Whether a tool said that the work is done.
        """
        self._unusable_replies = 0
        free_flags = [self._is_free_wait(call) for call in calls]
        granted = self.budget.reserve(free_flags.count(False))
        repetition = ""
        budget_spent = work_done = False
        for call, is_free in zip(calls, free_flags, strict=True):
            if not is_free:
                if granted == 0:
                    self._answer(call, ToolResult("Not run: the action budget is spent.", True))
                    budget_spent = True
                    continue
                granted -= 1
                self.counters.actions += 1
            if work_done:
                self._answer(call, ToolResult("Not run: the work is done.", True))
                continue
            result = self._run(call, is_free)
            work_done = bool(result.data.get("done"))
            is_last = not is_free and granted == 0
            self._answer(call, self._counted(result) if is_last else result)
            if not result.data.get("running"):
                repetition = self.stuck.note(call, result.text, bool(result.data.get("malformed"))) or repetition
        if work_done:
            return True
        if budget_spent:
            self._wrap_up()
        if repetition:
            self._handle_repetition(repetition)
        return False

    def _run(self, call: ToolCall, is_free: bool) -> ToolResult:
        if self.cancelled():
            raise Cancelled("The run was cancelled.")
        iteration = self._start_iteration() if self._script_failed and call.name == "run_script" and not is_free else 0
        self.emit(Called(call.id, call.name, call.arguments, 0 if is_free else 1, iteration))
        result = self.tools.call(call, self.allowed)
        if call.name == "run_script" and "exit_code" in result.data:
            self._script_failed = result.data["exit_code"] != 0
            self._script_error = cause(result) if self._script_failed else ""
        if "job" in result.data:
            (self._running_jobs.add if result.data.get("running") else self._running_jobs.discard)(result.data["job"])
        return result

    def _counted(self, result: ToolResult) -> ToolResult:
        """The result with the number of actions that are left, once they are few: the hand-over needs some of them."""
        actions_left = self.budget.left
        if actions_left > FEW_LEFT:
            return result
        count_note = f"{actions_left} action{'s are' if actions_left != 1 else ' is'} left in this run."
        note = count_note if actions_left else "No action is left: hand over."
        return replace(result, text=f"{result.text}\n\n[{note}]")

    def _is_free_wait(self, call: ToolCall) -> bool:
        """Waiting for a job that runs costs no action, unless the wait is so short that it is polling."""
        arguments: dict[str, Any] = call.arguments
        if call.name != "run_script" or arguments.get("command"):
            return False
        try:
            wait_s = float(arguments.get("wait_s", 600))
            return wait_s >= FREE_WAIT_S and int(arguments.get("job", 0)) in self._running_jobs
        except (TypeError, ValueError):
            return False

    def _answer(self, call: ToolCall, result: ToolResult) -> None:
        self.conversation.answer(call, result.text, result.is_error, result.images, result.data)
        self.emit(Returned(call.id, call.name, result.text, result.is_error, result.data))

    def _handle_repetition(self, repetition: str) -> None:
        if self.stuck.warned:
            raise Failed(self._why(f"The agent went round in circles: {repetition}"))
        self.stuck.warned = True
        self._send_message(
            f"You are going round in circles: {repetition} Do something else: {_suggest_way_out(self.allowed)}",
            "circle",
        )

    def _start_iteration(self) -> int:
        """The number of the debug iteration that begins with this call."""
        if not self.budget.iterations:
            raise Failed(self._why("A script failed, and no debug iteration is allowed in this run."))
        if self.counters.iterations >= self.budget.iterations:
            spent = f"{self.budget.iterations} debug iterations are spent: a script failed again and again."
            raise Failed(self._why(spent))
        self.counters.iterations += 1
        return self.counters.iterations

    def _handle_rejection(self, check_result: Verdict) -> None:
        end_error = check_result.end or Failed
        if check_result.fatal:
            raise end_error(" ".join(check_result.reasons))
        if self.counters.iterations >= self.budget.iterations:
            raise end_error(self._why(*check_result.reasons, iterations=self.budget.iterations))
        self.counters.iterations += 1
        notes = f"\nIt noted besides:\n{_bullet_list(check_result.warnings)}" if check_result.warnings else ""
        message = (
            f"The check does not accept this yet:\n{_bullet_list(check_result.faults)}{notes}\nMend it, then "
            f"say that you are done."
        )
        self._send_message(message, "rejected", self.counters.iterations, facts=check_result.rejection().plain())

    def _why(self, *findings: str, iterations: int = 0) -> str:
        """The reason for people; a script that failed last usually knows the cause."""
        return why(self._failure_message, *findings, self._script_error, rounds=iterations)

    def _wrap_up(self) -> None:
        """One last turn without tools, so that a person can pick the work up."""
        self._send_message(WRAP_UP, "wrap_up")
        max_actions = self.budget.actions
        spent = (
            f"{f'All {max_actions} actions are' if max_actions > 1 else 'The only action is'} spent. Raise max_actions."
        )
        try:
            reply = self._request(self.specs)  # the same tools: some providers refuse a history whose tools are gone
        except LLMError as error:
            raise OutOfBudget(spent) from error
        self.emit(Replied(reply.text, (), reply.usage, reply.stop))
        raise OutOfBudget(f"{spent} {given_up(reply.text) or reply.text.strip()}".strip())


def _suggest_way_out(allowed_tools: Sequence[str]) -> str:
    suggestion = "look at the files that are there" if "list_files" in allowed_tools else "use what you know already"
    return f"{suggestion}, choose another approach, or say what stops you."


def _bullet_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
