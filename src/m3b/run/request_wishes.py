"""Wishes in a request that a setting serves: "use ResNet50 for 100 epochs, report accuracy"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from m3b.errors import SettingError
from m3b.run.training_overrides import TEMPLATE_SETTINGS, TrainingOverrides, check_overrides, find_task_settings

NUMBER_WORDS = {
    name: number
    for number, name in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], start=1)
}  # fmt: skip
MIN_STEPS = 10
"""Fewer are steps of something else, such as of a procedure."""
_NUMBER = rf"(\d[\d,]*(?:\.\d+)?|{'|'.join(NUMBER_WORDS)})"
_EPOCHS = re.compile(rf"\b{_NUMBER}[\s-]*epochs?\b", re.IGNORECASE)
_STEPS = re.compile(rf"\b{_NUMBER}[\s-]*(?:training|optimi[sz]er|gradient)?[\s-]*(?:steps|iterations)\b", re.IGNORECASE)
_FOLDS = re.compile(rf"\b{_NUMBER}[\s-]*(?:folds\b|fold[\s-]+(?:cross|cv\b|validation))", re.IGNORECASE)
_TRAINING_TIME = re.compile(
    rf"\b(?:train\w*|fit\w*)\b[^.;,]{{0,60}}?\b{_NUMBER}[\s-]*(min|minutes?|h|hours?)\b"
    rf"|\b{_NUMBER}[\s-]*(min|minutes?|h|hours?)\s+(?:of\s+)?training\b",
    re.IGNORECASE,
)
_METRIC_START = (
    r"\b(?:report|measure|evaluat|optimi[sz]|maximi[sz]|minimi[sz]|judg|scor|assess|metric)(?:e|s|d|es|ed|ing)?:?"
    r"(?:\s+(?:by|for|with|on|using|the|its|it|me|is|as|model|models|test|mean|and))*\s+"
)
"""Words before the name of a metric that is asked for."""
_METRIC_END = r"\s+(?:as|is)\s+(?:the|a|my|our)?\s*(?:main|primary)?\s*(?:metric|measure|score)\b"
_DEVICE = re.compile(r"\bon (?:the |a |one )?(cpu|gpu)\b", re.IGNORECASE)
MAX_ABBREVIATION_CHARS = 3
"""Names of metrics up to this length are words of other meaning too (map, pro), unless they hold a capital."""


@dataclass(frozen=True)
class RequestWishes:
    """What the words of a request say about the training.

    Args:
        overrides: as a user would set it.
        train_minutes: minutes of training; None if nothing is said.
        unserved: sentences on wishes that are recognised and that m3b cannot serve.
    """

    overrides: TrainingOverrides = field(default_factory=TrainingOverrides)
    train_minutes: float | None = None
    unserved: tuple[str, ...] = ()


def parse_wishes(request: str, task: str = "") -> RequestWishes:
    """Return the wishes of a request; a wish that cannot be served is named and dropped.

    Args:
        task: the task, if it is known before the run.
    """
    values: dict[str, object] = {}
    if number := _find_number(_EPOCHS, request):
        values["epochs"] = int(number)
    elif (number := _find_number(_STEPS, request)) >= MIN_STEPS:
        values["steps"] = int(number)
    if number := _find_number(_FOLDS, request):
        values["folds"] = int(number)
    if network := _find_network(request):
        values["network"] = network
    if metric := _find_metric(request, task):
        values["metric"] = metric
    if device := _DEVICE.search(request):
        values["device"] = "cpu" if device[1].lower() == "cpu" else "cuda"
    merged, unserved = TrainingOverrides(), []
    for name, value in values.items():
        try:
            wish = TrainingOverrides(**{name: value})  # type: ignore[arg-type]
            check_overrides(wish, task)
        except SettingError as error:
            unserved.append(f"The request's {name} {value} is not set: {error.on_command_line}")
            continue
        merged = TrainingOverrides(**{**_values_of(merged), name: value})  # type: ignore[arg-type]
    return RequestWishes(merged, _find_minutes(request), tuple(unserved))


def drop_unserved_wishes(overrides: TrainingOverrides, task: str) -> tuple[TrainingOverrides, list[str]]:
    """Return the overrides without those of the request that a task cannot serve, and a sentence on each of these."""
    sentences = []
    for name in overrides.from_request:
        try:
            check_overrides(TrainingOverrides(**{name: getattr(overrides, name)}), task)
        except SettingError as error:
            sentences.append(f"The request's {name} is not set: {error.on_command_line}")
            remaining_names = tuple(item for item in overrides.from_request if item != name)
            overrides = replace(overrides, **{name: None}, from_request=remaining_names)  # type: ignore[arg-type]
    return overrides, sentences


def _values_of(overrides: TrainingOverrides) -> Mapping[str, object]:
    return overrides.to_json()


def _to_number(text: str) -> float:
    return float(NUMBER_WORDS.get(text.lower(), 0) or text.replace(",", ""))


def _find_number(pattern: re.Pattern[str], request: str) -> float:
    match = pattern.search(request)
    return _to_number(match[1]) if match else 0.0


def _find_minutes(request: str) -> float | None:
    match = _TRAINING_TIME.search(request)
    if not match:
        return None
    number, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
    return _to_number(number) * (60 if unit.lower().startswith("h") else 1) or None


def _find_network(request: str) -> str:
    """Return the network that a request names, by any spelling of its name: `ResNet-50`, `U-Net`."""
    names = {name for task in TEMPLATE_SETTINGS for name in find_task_settings(task).networks}
    for name in sorted(names, key=len, reverse=True):
        spelling = r"[\s_-]?".join(re.escape(part) for part in _split_name(name))
        if re.search(rf"(?<![\w-]){spelling}s?(?![\w-]*\d)(?!\w)", request, re.IGNORECASE):
            return name
    return ""


def _split_name(name: str) -> Iterator[str]:
    """Yield the parts of a network's name between which people write blanks or hyphens: `res`, `net`, `50`."""
    for part in re.split(r"[\s_-]", name):
        yield from re.findall(
            r"nn(?=unet)|swin(?=unetr)|seg(?=resnet)|u(?=net)|[a-z]+?(?=net(?:\d|$))|net|[a-z]+|\d+", part
        )


def _find_metric(request: str, task: str) -> str:
    """Return the name in the metric tables that a request asks to be measured by."""
    from m3b.metrics.metric_tables import metric_names

    text = request.replace("-", " ").replace("_", " ")
    for name in sorted(metric_names(task or None), key=len, reverse=True):
        spelling = r"\s?".join(re.escape(part) for part in re.split(r"[\s_-]", name))
        for pattern in (rf"{_METRIC_START}({spelling})(?!\w)", rf"(?<!\w)({spelling}){_METRIC_END}"):
            match = re.search(pattern, text, re.IGNORECASE)
            if match and (len(name) > MAX_ABBREVIATION_CHARS or not match[1].islower()):
                return name
    return ""
