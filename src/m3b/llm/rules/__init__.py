"""The embedded core: an `LLM` with no model behind it, which works by rules over common layouts.

It is told what any model is told, and plans by the data that its messages carry beside their text (`m3b.facts`): it
never reads prose that m3b wrote. Of free text it reads the user's request, cards and notes. It knows no data set. How a
folder is read is proposed from the survey of its files; where no manifest is borne out, the rules say what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from m3b.facts import IndexBrief, ModelBrief, ModuleBrief, Rejection, SelectionBrief
from m3b.llm.base import LLMRequest, ModelFacts
from m3b.llm.rules.selection import select_card
from m3b.llm.rules.view import StageView, Step, format_give_up, make_call, read_view
from m3b.llm.tokens import estimate_usage
from m3b.messages import Reply, ToolCall

SAY_MORE = "Say more in the request or in a data card, or use a language model."
MAX_QUOTED_CHARACTERS = 300
SPLIT_FINDING_CODES = ("class_absent_train", "class_absent_test")
"""Findings of the audit that a new split removes."""


def write_index(brief: IndexBrief, view: StageView) -> str | list[ToolCall]:
    """The copy of the best manifest, or the closing words.

    An open question is left to the person who is asked before training, if there is one; else the run ends with it.
    """
    best = brief.readings[0] if brief.readings else None
    if brief.unusable:
        return json.dumps({"unusable": brief.unusable}, ensure_ascii=False)
    if best is None:
        return format_give_up(brief.insufficient or f"No manifest of the data was proposed. {SAY_MORE}")
    if not best.sufficient and not brief.can_ask:
        return json.dumps({"undecided": brief.insufficient}, ensure_ascii=False)
    if not view.steps:
        return [make_call("copy_files", source=best.file, destination=brief.place)]
    if view.steps[-1].has_failed:
        return format_give_up(f"The proposed manifest {best.file} could not be copied to {brief.place}.")
    if view.rejection and len(view.steps) == 1 and (manifest := repair_manifest(best.manifest, view.rejection)):
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        return [make_call("write_files", files=[{"path": brief.place, "content": text}])]
    if view.rejection:
        reasons = view.rejection.reasons or view.rejection.faults
        reason = reasons[0][:MAX_QUOTED_CHARACTERS] if reasons else "nothing is said"
        message = f"The data was read as {best.title}, and the check does not accept what that gives: {reason}"
        return format_give_up(f"{message} {SAY_MORE}")
    edited = ", edited after the audit" if len(view.steps) > 1 else ""
    return f"The index is made from the proposed manifest: {best.title}{edited}."


def repair_manifest(manifest: dict[str, Any], rejection: Rejection) -> dict[str, Any] | None:
    """A manifest without what the audit found in what it gave; None where that needs more than rules."""
    codes = rejection.codes
    if codes and set(codes) <= set(SPLIT_FINDING_CODES) and "value" in _get_section(manifest, "split"):
        return {**manifest, "split": {}}
    masks = _get_section(manifest, "masks")
    classes = _get_section(masks, "classes")
    present_classes = {name: value for name, value in classes.items() if name not in rejection.absent}
    if set(codes) == {"class_nowhere"} and present_classes and len(present_classes) < len(classes):
        return {**manifest, "masks": {**masks, "classes": present_classes}}
    return None


def _get_section(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of a manifest; empty where there is none, or where what stands there is no part."""
    section = manifest.get(name)
    return section if isinstance(section, dict) else {}


TRAIN_COMMAND = "python train.py"
EXPORT_COMMAND = "python export.py --out Deliver"
WAIT_S = 3600


def write_module(brief: ModuleBrief, view: StageView) -> str | list[ToolCall]:
    """Copy the template, make its plan; the plan once more if that failed, and no more if it failed again."""
    plan_call = make_call("run_script", command=brief.plan_command or f"python plan.py --minutes {brief.minutes:g}")
    if not view.steps:
        copy_call = make_call("copy_files", source=brief.template, destination=".")
        if not brief.given_plan:
            return [copy_call, plan_call]
        text = json.dumps(brief.given_plan, indent=2, ensure_ascii=False)
        return [copy_call, make_call("write_files", files=[{"path": "plan.json", "content": text}]), plan_call]
    plans = [step for step in view.steps if "plan.py" in step.command]
    if plans and plans[-1].has_failed and len([step for step in plans if not _had_no_room(step)]) < 2:
        return [plan_call]
    if plans and plans[-1].has_failed:
        return format_give_up("plan.py cannot plan a training of these data, and the rules change no code.")
    if view.rejection:
        reason = next(iter(view.rejection.reasons or view.rejection.faults), "nothing is said of what is wrong")
        return format_give_up(f"The rules change no code, and the project as shipped was not accepted: {reason}")
    return "The template is in place as shipped, with the plan that it made from the data."


def train_model(brief: ModelBrief, view: StageView) -> str | list[ToolCall]:
    """Train, wait, export; resume once if training fails."""
    if not view.steps:
        return [make_call("run_script", command=f"{TRAIN_COMMAND} && {EXPORT_COMMAND}", wait_s=WAIT_S)]
    last_step = view.steps[-1]
    if last_step.outcome is not None and last_step.outcome.running:
        return [make_call("run_script", job=last_step.outcome.job, wait_s=WAIT_S)]
    was_resumed = any("--resume" in step.command and not _had_no_room(step) for step in view.steps)
    if last_step.has_failed and not was_resumed:
        return [make_call("run_script", command=f"{TRAIN_COMMAND} --resume && {EXPORT_COMMAND}", wait_s=WAIT_S)]
    if last_step.has_failed:
        return format_give_up(
            "Training failed twice, and the rules change no code: a language model or a person has to look."
        )
    duration_text = f" in {last_step.outcome.wall_s:.0f} s" if last_step.outcome else ""
    return f"Trained and exported the project as shipped{duration_text}."


def _had_no_room(step: Step) -> bool:
    """Whether a script failed because the disk was full, which says nothing of the script."""
    return step.outcome is not None and step.outcome.disk_full


UNKNOWN_STAGE = (
    "The rules plan by data that messages carry, and these carry none for a stage that they know. Use a language model."
)


def plan_next_step(view: StageView) -> str | list[ToolCall]:
    """What to do next: a closing text, or calls."""
    match view.brief:
        case SelectionBrief() as brief:
            return select_card(brief, view)
        case IndexBrief() as brief:
            return write_index(brief, view)
        case ModuleBrief() as brief:
            return write_module(brief, view)
        case ModelBrief() as brief:
            return train_model(brief, view)


class RulesLLM:
    """An `LLM` that answers by rules. Its usage is an estimate of what a model would have read and written."""

    name = "rules"
    facts = ModelFacts(window=1_000_000, max_output=8_192, price_in=0.0, price_out=0.0)

    def ask(self, request: LLMRequest) -> Reply:
        """The next step of the stage that the conversation is in; never waits, never fails."""
        view = read_view(request.messages)
        answer = plan_next_step(view) if view is not None else format_give_up(UNKNOWN_STAGE)
        text = answer if isinstance(answer, str) else ""
        call_count = sum(len(message.calls) for message in request.messages)
        calls = (
            ()
            if isinstance(answer, str)
            else tuple(
                ToolCall(f"rules-{number}", call.name, call.arguments) for number, call in enumerate(answer, call_count)
            )
        )
        reply = Reply(text, calls, stop="tools" if calls else "end", model="rules")
        return replace(reply, usage=estimate_usage(request, reply, self.facts))


__all__ = ["RulesLLM"]
