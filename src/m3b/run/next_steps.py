"""Next steps after a run, by its status: at most three, each with the command that does it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from m3b.agents.checks.index_lock import INTEGRITY_CLEAN
from m3b.engines.slurm import REFUSAL
from m3b.isolation import untrusted
from m3b.isolation.untrusted import UnsafePathError
from m3b.run.folder import RunFolder
from m3b.run.options import FINAL_SHARE, Options
from m3b.run.outside_causes import find_outside_cause, list_data_folders
from m3b.run.result import Result
from m3b.run.training_overrides import TrainingOverrides

MAX_STEPS = 3
MIN_EPOCHS = 10.0
"""Below this number of epochs, more training is the first step."""
TARGET_EPOCHS = 20.0
ROUND_MINUTES = (2, 5, 10, 15, 25, 40, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
"""Minutes that are suggested; the first one that is enough."""
LOG_FOLDER, DONE_FILE = "Logout", "done.json"
MAX_AMOUNT = 1e12
"""Limit of steps, epochs and minutes in files that scripts of an agent write; more cannot be meant."""


@dataclass(frozen=True)
class NextStep:
    """One suggestion: what to do, and the command or file for it.

    Args:
        code: for programs, such as `train_longer`.
    """

    code: str
    text: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.command}" if self.command else f"{self.text}."


@dataclass(frozen=True)
class TrainingAmount:
    """How long a network was trained, the first one of several folds."""

    steps: int
    epochs: float
    minutes: float

    @property
    def is_short(self) -> bool:
        return self.epochs < MIN_EPOCHS

    def suggest_minutes(self) -> int:
        """Return round minutes that are enough for `TARGET_EPOCHS`."""
        needed = self.minutes * TARGET_EPOCHS / max(self.epochs, 0.1)
        return next((minutes for minutes in ROUND_MINUTES if minutes >= needed * 0.85), ROUND_MINUTES[-1])


def list_next_steps(run: RunFolder, record: Mapping[str, Any], result: Result) -> list[NextStep]:
    """Return the most useful next steps after a run that ended, the first one first.

    Args:
        record: the content of run.json.
    """
    return list(_suggest(run, record, result))[:MAX_STEPS]


def read_training_amount(run: RunFolder) -> TrainingAmount | None:
    """Return how long the templates trained; None if the run did not train with them."""
    return next(iter(_read_training_amounts(run.work).values()), None)


def count_network_steps(work: Path) -> int:
    """Return the optimiser steps of the last training in a working directory: the fewest of its folds; 0 if it does not say.

    Stages of a single network, such as encoder and writer of reports, are added.
    """
    amounts = _read_training_amounts(work)
    folds = [amount.steps for name, amount in amounts.items() if re.fullmatch(r"fold\d+", name, re.ASCII)]
    return min(folds) if folds else sum(amount.steps for amount in amounts.values())


def _read_training_amounts(work: Path) -> dict[str, TrainingAmount]:
    """Return name of a network -> how long it was trained, from the folders of the log; scripts wrote them."""
    try:
        names = sorted(entry.name for entry in untrusted.list_entries(work, LOG_FOLDER) if entry.kind == "folder")
    except (OSError, UnsafePathError):
        return {}
    amounts = {}
    for name in names:
        try:
            values = untrusted.read_json(work, Path(LOG_FOLDER) / Path(name).name / DONE_FILE)
            amount = TrainingAmount(int(values["steps"]), float(values["epochs"]), float(values["seconds"]) / 60)
        except (OSError, UnsafePathError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if all(0 < number < MAX_AMOUNT for number in (amount.steps, amount.epochs, amount.minutes)):
            amounts[name] = amount
    return amounts


def _suggest(run: RunFolder, record: Mapping[str, Any], result: Result) -> Iterator[NextStep]:
    status = result.status
    if status in ("completed", "below_range"):
        yield from _suggest_after_training(run, record, result)
    elif status in ("no_dataset", "rejected_data", "undecided"):
        yield from _suggest_for_data(run, record, result)
    elif status == "out_of_budget":
        command = format_run_command(record, changes=_double_limit(record, result.reason))
        yield NextStep("raise_limit", "Start again with a higher limit", command)
        yield NextStep("read_log", "See what used it up", run.format_command("show"))
    elif status == "failed" and (setting := _find_refused_setting(record, result.reason)):
        option = f"--{setting}" if setting in _TRAINING_OPTIONS else f"--set {setting}"
        command = format_run_command(record, without=setting)
        yield NextStep("change_setting", f"Start again with another {option}, or without it", command)
        yield NextStep("read_log", "See what happened", f"{run.format_command('show')} --full")
    elif status == "failed" and REFUSAL in result.reason:
        command = format_run_command(record)
        yield NextStep("change_job", "Start again with what the cluster takes: options of the job", command)
        yield NextStep("read_log", "See what happened", f"{run.format_command('show')} --full")
    elif status == "failed" and _had_outside_cause(run, record):
        cause = find_outside_cause(run, record)
        text = f"{cause.remedy}, then go on" if cause else "Go on from where it stopped"
        yield NextStep("resume", text, run.format_command("resume"))
        yield NextStep("read_log", "See what happened", f"{run.format_command('show')} --full")
    elif status == "failed" and _is_by_rules(record) and not run.get_path("locked/Datapath/test.json").is_file():
        yield from _suggest_for_data(run, record, result)  # the rules would fail again at the same place
        yield _suggest_language_model(record)
    else:
        yield NextStep("resume", "Go on from where it stopped", run.format_command("resume"))
        yield NextStep("read_log", "See what happened", f"{run.format_command('show')} --full")
        if result.model_dir and result.integrity == INTEGRITY_CLEAN:  # it was delivered before this training
            yield NextStep("discard_training", "Keep the earlier model", f"{run.format_command('train')} --discard")
        elif status == "failed" and _is_by_rules(record):
            yield _suggest_language_model(record)


def _had_outside_cause(run: RunFolder, record: Mapping[str, Any]) -> bool:
    """Return whether the run failed of a cause outside of it, which run.json does not name if the disk is full."""
    cause = find_outside_cause(run, record)
    return bool(record.get("cause")) or (cause is not None and cause.code == "disk_full")


def _suggest_language_model(record: Mapping[str, Any]) -> NextStep:
    text = "The rules know common layouts only; with a language model"
    return NextStep("language_model", text, f"{format_run_command(record)} --llm PROVIDER")


def _suggest_after_training(run: RunFolder, record: Mapping[str, Any], result: Result) -> Iterator[NextStep]:
    amount = read_training_amount(run)
    if not result.has_verdict:
        text = "Bring more patients: the test patients are too few for a verdict, whatever the training is"
        yield NextStep("more_cases", text, format_run_command(record))
    elif amount is not None and amount.is_short and result.test_looks < 2:  # else it is that of an added training alone
        yield _suggest_more_training(record, amount)
    if result.report:
        yield NextStep("open_report", "Look at the figures and the worst cases", result.report)
    if result.status == "completed" and result.model_dir:
        yield NextStep("predict", "Predict new images", f"{run.format_command('predict')} IMAGES -o predictions")
        yield NextStep(
            "export", "Use the model elsewhere", f"{run.format_command('export')} --to onnx -o exported-model"
        )
        return
    manifest_page = run.get_path("manifest.html")
    if manifest_page.is_file():
        yield NextStep("check_labels", "Check that images and labels belong together", str(manifest_page))
    if result.has_verdict and amount is not None and not amount.is_short:
        minutes = next((value for value in ROUND_MINUTES if value >= 3 * amount.minutes), ROUND_MINUTES[-1])
        command = f"{run.format_command('train')} --minutes {minutes:g}"
        yield NextStep("train_longer", "Train the model for longer, or bring more cases", command)


def _suggest_more_training(record: Mapping[str, Any], amount: TrainingAmount) -> NextStep:
    """Return the step that asks for enough epochs: by minutes, or by number if the user set epochs or steps."""
    few = f"{amount.steps:,} steps, {amount.epochs:.1f} epochs are few"
    overrides = TrainingOverrides.from_json(record.get("training"))
    if overrides.epochs is None and overrides.steps is None:
        minutes = amount.suggest_minutes()
        command = format_run_command(record, changes=_lengthen_training(record, minutes))
        return NextStep("train_longer", f"{few}; train for about {minutes} min", command)
    wanted = tuple(name for name in overrides.from_request if name not in ("epochs", "steps"))
    more = replace(overrides, epochs=round(TARGET_EPOCHS), steps=None, from_request=wanted)
    command = format_run_command({**record, "training": more.to_json()})
    return NextStep("train_longer", f"{few}, as they were set; train for about {more.epochs} epochs", command)


def _suggest_for_data(run: RunFolder, record: Mapping[str, Any], result: Result) -> Iterator[NextStep]:
    folders = list_data_folders(record)
    folder = shlex.quote(folders[0]) if folders else "FOLDER"
    request = shlex.quote(str(record.get("request", "")))
    page = run.get_path("manifest.html")
    if page.is_file():
        yield NextStep("check_manifest", "See how the data was read", str(page))
    yield NextStep("look", "See what m3b finds in the folder", f"m3b look {folder} {request} --page look.html")
    yield NextStep(
        "edit_manifest",
        "Write how the folder is to be read, edit it, and give it to `m3b run --manifest`",
        f"m3b look {folder} {request} -o manifest.json",
    )
    if result.status == "no_dataset":
        yield NextStep("other_data", "Name other data", format_run_command(record, data=["FOLDER"]))


_TRAINING_OPTIONS = ("metric", "epochs", "steps", "folds", "network", "pretrained", "plan")
REFUSED_OPTION_PATTERN = re.compile(rf"--({'|'.join(_TRAINING_OPTIONS)}) ")
"""Beginning of the reason of a run that ended because the task cannot serve a training override."""
REFUSED_SETTING_PATTERN = re.compile(r"--set '?([\w.]+)=")
"""Part of the reason of a run whose plan.py refuses a setting."""


def _find_refused_setting(record: Mapping[str, Any], reason: str) -> str:
    """Return the training override that a run ended for: the name of an option, or the key of a setting; '' if for none."""
    if match := REFUSED_OPTION_PATTERN.match(reason):
        return match[1]
    settings = TrainingOverrides.from_json(record.get("training")).settings
    return next((key for key in REFUSED_SETTING_PATTERN.findall(reason) if key in settings), "")


def format_run_command(
    record: Mapping[str, Any],
    *,
    changes: Mapping[str, float] | None = None,
    without: str = "",
    data: Sequence[str] | None = None,
) -> str:
    """Return the command that starts the same run again, with the options that the user gave.

    Files that no record holds are named MANIFEST.json and PLAN.json.

    Args:
        changes: options with other values, by their names in `Options`.
        without: a training override, or the key of a setting, that is left out.
        data: other data.
    """
    words = ["m3b", "run", str(record.get("request", ""))]
    for source in _list_data_sources(record) if data is None else data:
        words += ["--data", source]
    overrides = TrainingOverrides.from_json(record.get("training"))
    if without in overrides.settings:
        settings = {key: value for key, value in overrides.settings.items() if key != without}
        overrides = replace(overrides, settings=settings)
    elif without:
        overrides = replace(overrides, **{without: None})  # type: ignore[arg-type]
    words += _list_dataset_arguments(record)
    words += [*overrides.to_arguments(), *(["--plan", "PLAN.json"] if overrides.plan is not None else [])]
    words += [*_list_engine_arguments(record, overrides), *_list_option_arguments(record, changes or {})]
    return shlex.join(words)


def _list_data_sources(record: Mapping[str, Any]) -> list[str]:
    """Return the data as the user gave it: addresses of remote folders, not where they were mirrored to."""
    cards = [card for card in record.get("data") or [] if isinstance(card, dict) and card.get("path")]
    return [str((card.get("origin") or {}).get("url") or card["path"]) for card in cards]


def _list_dataset_arguments(record: Mapping[str, Any]) -> list[str]:
    """Return the options on how the data is read, and the external test sets."""
    arguments = []
    for name, value in (record.get("given") or {}).items():
        text = "MANIFEST.json" if name in ("manifest", "index") else value
        text = ",".join(map(str, text)) if isinstance(text, list) else str(text)
        arguments += ["--manifest" if name == "index" else f"--{name.replace('_', '-')}", text]
    for name, (folder, manifest) in (record.get("external") or {}).items():
        arguments += ["--external", f"{name}={folder}", *(["--external", f"{name}=MANIFEST.json"] if manifest else [])]
    return arguments


def _list_engine_arguments(record: Mapping[str, Any], overrides: TrainingOverrides) -> list[str]:
    """Return the options on the cluster; none for this machine."""
    engine = record.get("engine") or {}
    name = engine.get("name", "local")
    if name == "local":
        return []
    arguments = ["--engine", str(name)]
    gpus = engine.get("gpus") if overrides.gpus is None and overrides.device != "cuda" else None
    for option, value in (("gpus", gpus), ("cpus", engine.get("cpus")), ("memory", engine.get("memory_gib"))):
        arguments += [f"--{option}", f"{value:g}"] if value else []
    arguments += ["--partition", str(engine["partition"])] if engine.get("partition") else []
    for key, value in (engine.get("options") or {}).items() if name == "slurm" else ():
        arguments += ["--slurm-option", f"{key}={value}" if value else str(key)]
    return arguments


_NUMBER_OPTIONS = (
    "max_actions", "max_tokens", "max_cost", "max_wall", "train_minutes", "hours", "min_gain", "seed",
)  # fmt: skip
_TEXT_OPTIONS = ("sandbox", "phi", "tools", "label_with", "log")
_FLAGS = (
    ("roles", "single", "--single-agent"), ("reflect", False, "--no-reflect"), ("examples", False, "--no-examples"),
    ("debug", False, "--no-debug"), ("confirm", True, "--confirm"), ("offline", True, "--offline"),
    ("send_images", True, "--send-images"),
)  # fmt: skip
"""Name and value of an option, and its flag; output (`stream`) and defaults need none."""


def _read_given_options(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not the default, which the record holds with the defaults."""
    raw = record.get("options")
    defaults = vars(Options())
    options = {key: value for key, value in (raw if isinstance(raw, dict) else {}).items() if key in defaults}
    if options.get("train_minutes") == Options(**{**options, "train_minutes": None}).training_minutes:
        options["train_minutes"] = None  # the record holds what followed from the other options
    return {key: value for key, value in options.items() if value != defaults[key]}


def _list_option_arguments(record: Mapping[str, Any], changes: Mapping[str, float]) -> list[str]:
    """Return language model, limits, time and so on as arguments."""
    options = {**_read_given_options(record), **changes}
    llms = record.get("llm")
    spec = str(llms.get("default", "")) if isinstance(llms, dict) else ""
    arguments = ["--llm", spec] if re.match(r"[\w.-]+:", spec) else []
    for name in _NUMBER_OPTIONS:
        if options.get(name) is not None:
            value = options[name] / 60 if name == "max_wall" else options[name]  # the command line takes minutes
            arguments += [f"--{name.replace('_', '-')}", f"{value:.10g}"]
    for name in _TEXT_OPTIONS:
        arguments += [f"--{name.replace('_', '-')}", str(options[name])] if options.get(name) else []
    return [*arguments, *(flag for name, value, flag in _FLAGS if name in options and options[name] == value)]


def _lengthen_training(record: Mapping[str, Any], minutes: float) -> dict[str, float]:
    """Return the options with which the last training has so many minutes: a search and the whole run become longer, too."""
    given = _read_given_options(record)
    changes: dict[str, float] = {}
    if "hours" not in given or "train_minutes" in given:
        changes["train_minutes"] = minutes
    if "hours" in given:
        changes["hours"] = max(given["hours"], math.ceil(minutes / FINAL_SHARE / 6) / 10)
    seconds = 60 * max(minutes, 60 * changes.get("hours", 0))
    if given.get("max_wall") and given["max_wall"] <= seconds:
        changes["max_wall"] = 2 * seconds
    return changes


LIMIT_PATTERN = re.compile(r"\bmax_(actions|tokens|cost|wall)\b")


def _double_limit(record: Mapping[str, Any], reason: str) -> dict[str, float]:
    """Return the limit that a reason names, with twice its value; empty if none is named."""
    match, options = LIMIT_PATTERN.search(reason), record.get("options")
    value = options.get(match[0]) if match and isinstance(options, dict) else None
    if match is None or isinstance(value, bool) or not isinstance(value, int | float):
        return {}
    return {match[0]: 2 * value}


def _is_by_rules(record: Mapping[str, Any]) -> bool:
    llms = record.get("llm")
    return isinstance(llms, dict) and bool(llms) and all(str(spec).startswith("rules") for spec in llms.values())
