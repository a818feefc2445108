"""Setting up and training the template, as shipped."""

from __future__ import annotations

from m3b.facts import ModelBrief, ModuleBrief
from m3b.llm.rules.view import StageView, format_give_up, make_call
from m3b.messages import ToolCall

TRAIN_COMMAND = "python train.py"
EXPORT_COMMAND = "python export.py --out Deliver"
WAIT_S = 3600


def write_module(brief: ModuleBrief, view: StageView) -> str | list[ToolCall]:
    """Copy the template, make its plan; the plan once more if that failed, and no more if it failed again."""
    plan_call = make_call("run_script", command=f"python plan.py --minutes {brief.minutes:g}")
    if not view.steps:
        return [make_call("copy_files", source=brief.template, destination="."), plan_call]
    plans = [step for step in view.steps if "plan.py" in step.command]
    if plans and plans[-1].has_failed and len(plans) < 2:
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
    was_resumed = any("--resume" in step.command for step in view.steps)
    if last_step.has_failed and not was_resumed:
        return [make_call("run_script", command=f"{TRAIN_COMMAND} --resume && {EXPORT_COMMAND}", wait_s=WAIT_S)]
    if last_step.has_failed:
        return format_give_up(
            "Training failed twice, and the rules change no code: a language model or a person has to look."
        )
    duration_text = f" in {last_step.outcome.wall_s:.0f} s" if last_step.outcome else ""
    return f"Trained and exported the project as shipped{duration_text}."
