"""The check of the Module Architect's training project: it is run briefly in a clean process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import TrainingModule
from m3b.agents.check_result import CheckResult, Issue, accept, extract_last_line, reject
from m3b.isolation import untrusted
from m3b.tasks import get_family

REQUIRED_FILES = ("plan.json", "plan.py", "train.py", "export.py")
RECIPE_FILES = ("recipe.py", "predict.py")
"""What a project with a recipe needs besides `REQUIRED_FILES`."""
OWN_CODE_FILES = ("Datapath/dataloader.py", "Model/network.py", "Loss/loss.py", "deliver/predict.py")
"""What a project without a recipe, of a template of the user, needs besides `REQUIRED_FILES`."""
PROBE_SCRIPT = Path(__file__).with_name("probe.py")
MAX_LOSS_RATIO = 0.7
"""Share of its first value to which the loss of one batch must fall: if a project cannot memorise one batch, its
labels, its loss or its gradient are wrong."""
MIN_USUAL_STEPS, MAX_LOSS_RATIO_FEW_STEPS = 100, 0.95
"""If a slow machine makes fewer steps than the first number within the time of the probe, the second ratio applies."""

REQUIRED_REPORT_KEYS = {
    "shape", "dtype", "label_width", "finite", "range", "parameters", "outputs", "same_outputs", "loss_before",
    "loss_after", "steps", "loss_finite",
}  # fmt: skip
"""Keys of the report of a completed probe."""


@dataclass(frozen=True)
class CommandResult:
    """The result of a confined command: exit code, why it was ended (if it was), and its output."""

    exit_code: int
    reason: str
    output: str


RunProbe = Callable[..., CommandResult]

LABELLED_BATCH = 8
"""Cases in the batch that a network has to overfit, if labels are vectors: they have to differ within the batch."""


def check_module(work: Path, classes: tuple[str, ...], run_probe: RunProbe, task: str = "diagnosis") -> CheckResult:
    """Accept a project whose data loader, model and loss work together.

    Args:
        run_probe: runs the given Python file with arguments in the sandbox, in `work`.
    """
    has_own_code = not untrusted.is_file(work, "recipe.py") and any(
        untrusted.is_file(work, name) for name in OWN_CODE_FILES
    )
    required_files = REQUIRED_FILES + (OWN_CODE_FILES if has_own_code else RECIPE_FILES)
    missing = [name for name in required_files if not untrusted.is_file(work, name)]
    if missing:
        hint = "Run `python plan.py` to write it." if missing == ["plan.json"] else "Copy the template into `.`."
        names = ", ".join(Path(name).name for name in missing)
        user_message = f"The training project that was set up is incomplete: it lacks {names}."
        return reject(Issue(f"The project lacks {', '.join(missing)}. {hint}", user_message, "project_incomplete"))
    has_label_vectors = get_family(task).label_width(len(classes)) is not None
    probe_result = run_probe(PROBE_SCRIPT, str(LABELLED_BATCH if has_label_vectors else 0))
    report = _parse_report(probe_result.output)
    if report is None:
        tail = "\n".join(probe_result.output.strip().splitlines()[-12:])
        ending = (
            f"ended by m3b: {probe_result.reason}"
            if probe_result.reason != "exit"
            else f"exit code {probe_result.exit_code}"
        )
        user_message = (
            f"The training project does not run ({ending}): {extract_last_line(tail) or 'it printed nothing'}."
        )
        return reject(Issue(f"The project does not run ({ending}):\n{tail}", user_message, "project_does_not_run"))
    if report.get("error"):
        agent_message = f"The project fails in {report['step']}: {report['error']}"
        user_message = f"The training project that was set up fails in {report['step']}: {report['error']}"
        return reject(Issue(agent_message, user_message, "project_fails"))
    plan = _read_plan(work)
    if plan is None:
        agent_message = "plan.json cannot be read as a JSON object. Run `python plan.py` to write it anew."
        return reject(Issue(agent_message, code="plan_unreadable"))
    issues, warnings = _judge_report(report, classes, task, plan)
    if issues:
        return reject(*issues)
    if plan.get("task", task) != task:
        return reject(
            Issue(
                f"plan.json belongs to a {plan['task']} project; the task is {task}. Copy the template that the "
                "briefing names.",
                f"The training project that was set up is for {plan['task']}, and {task} was asked for.",
                "other_task",
            )
        )
    module = TrainingModule(
        batch_shape=tuple(report["shape"]),
        parameters=int(report["parameters"]),
        overfit=(report["loss_before"], report["loss_after"]),
        plan=plan,
    )
    return accept(module, *warnings)


def _read_plan(work: Path) -> dict[str, Any] | None:
    try:
        plan = untrusted.read_json(work, "plan.json")
    except (OSError, ValueError):
        return None
    return plan if isinstance(plan, dict) else None


def _parse_report(output: str) -> dict[str, Any] | None:
    """Return the report on the last line that the probe printed; None if there is no complete one."""
    for line in reversed(output.splitlines()):
        if line.startswith("M3B-PROBE "):
            try:
                value = json.loads(line.removeprefix("M3B-PROBE "))
            except (ValueError, RecursionError):
                return None
            is_complete = (
                isinstance(value, dict)
                and (value.get("error") or value.keys() >= REQUIRED_REPORT_KEYS)
                and "step" in value
            )
            return value if is_complete else None
    return None


def _check_overfitting(before: float, after: float, steps: int) -> list[Issue]:
    """Return the issue if the loss of one batch fell too little."""
    has_few_steps = steps < MIN_USUAL_STEPS
    max_loss = (MAX_LOSS_RATIO_FEW_STEPS if has_few_steps else MAX_LOSS_RATIO) * before
    if after <= max_loss:
        return []
    speed_hint = (
        " The steps are slow: a smaller patch, input or network gives the check, and the training, more."
        if has_few_steps
        else ""
    )
    message = (
        f"The model does not overfit one batch: its loss goes from {before:.3f} to {after:.3f} in {steps} steps, and "
        f"{max_loss:.3f} is asked.{speed_hint} Look at the loss, the labels' order and the gradient's way to the weights."
    )
    return [Issue(message, code="does_not_overfit")]


def _judge_report(
    report: dict[str, Any], classes: tuple[str, ...], task: str, plan: Mapping[str, Any]
) -> tuple[list[Issue], list[str]]:
    issues: list[Issue] = []
    warnings: list[str] = []
    valid_output_counts = get_family(task).valid_output_counts(len(classes), plan)
    if valid_output_counts and report["outputs"] not in valid_output_counts:
        message = (
            f"The model has {report['outputs']} outputs for {len(classes)} classes ({', '.join(classes)}); "
            f"{' or '.join(map(str, valid_output_counts))} would fit."
        )
        issues.append(Issue(message, code="wrong_outputs"))
    width = get_family(task).label_width(len(classes))
    if width is not None and report["label_width"] != width:
        message = f"Labels come as {report['label_width']} numbers for {len(classes)} classes."
        issues.append(Issue(message, code="wrong_label_width"))
    if report["dtype"] != "float32":
        issues.append(Issue(f"Images come as {report['dtype']}; pixel_values must be float32.", code="wrong_dtype"))
    if not report["finite"]:
        message = "A batch holds NaN or infinite values; look at the intensity settings of plan.json."
        issues.append(Issue(message, code="input_not_finite"))
    low, high = report["range"]
    if low == high:
        message = f"A whole batch has the single value {low:g}; the intensity window does not fit the data."
        issues.append(Issue(message, code="constant_input"))
    elif max(abs(low), abs(high)) > 50:
        message = f"Inputs range from {low:g} to {high:g}; scale them to about -5..5 (intensity in plan.json)."
        issues.append(Issue(message, code="input_range"))
    before, after = report["loss_before"], report["loss_after"]
    if not report["loss_finite"]:
        message = "The loss is not finite on the first batch; look at labels, weights and intensities."
        issues.append(Issue(message, code="loss_not_finite"))
    else:
        issues += _check_overfitting(before, after, int(report["steps"]))
    if report["same_outputs"]:
        warnings.append(
            "Different images give the same output before training; check that the image reaches the model."
        )
    return issues, warnings
