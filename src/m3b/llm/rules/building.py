"""Setting up and training the template, as shipped."""

from __future__ import annotations

import json
import re

from m3b.llm.rules.view import View, call
from m3b.messages import ToolCall

TRAIN = "python train.py"
EXPORT = "python export.py --out Deliver"


def write_module(view: View) -> str | list[ToolCall]:
    """Copy the template, make its plan; one more plan if the check names a fault."""
    template = view.part(r"## Template (resources/\S+)")
    minutes = view.part(r"Training time: ([\d.]+) minutes") or "5"
    if not view.steps:
        copy = call("copy_files", source=template, destination=".")
        return [copy, call("run_script", command=f"python plan.py --minutes {minutes}")]
    plans = [step for step in view.steps if "plan.py" in step.command]
    if plans and plans[-1].failed and len(plans) < 2:
        return [call("run_script", command=f"python plan.py --minutes {minutes}")]
    if view.rejected:
        found = " ".join(view.rejected.splitlines()[1:2]).removeprefix("- ")
        return _given_up(f"The rules change no code, and the project as shipped was not accepted: {found}")
    return "The template is in place as shipped, with the plan that it made from the data."


def train_model(view: View) -> str | list[ToolCall]:
    """Train, wait, export; resume once if training fails."""
    if not view.steps:
        return [call("run_script", command=f"{TRAIN} && {EXPORT}", wait_s=3600)]
    last = view.steps[-1]
    running = re.search(r"job (\d+)", last.result)
    if "still running" in last.result and running:
        return [call("run_script", job=int(running.group(1)), wait_s=3600)]
    resumed = any("--resume" in step.command for step in view.steps)
    if last.failed and not resumed:
        return [call("run_script", command=f"{TRAIN} --resume && {EXPORT}", wait_s=3600)]
    if last.failed:
        return _given_up(
            "Training failed twice, and the rules change no code: a language model or a person has to look."
        )
    figures = re.findall(r"^.*validation.*$", last.result, re.MULTILINE | re.IGNORECASE)
    return "Trained and exported. " + (figures[-1].strip() if figures else "")


def _given_up(words: str) -> str:
    return json.dumps({"given_up": words}, ensure_ascii=False)
