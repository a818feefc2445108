"""The options of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from m3b.errors import OptionError

ToolMode = Literal["auto", "native"]
ConfirmMode = bool | Literal["weak"]
SandboxMode = Literal["auto", "bubblewrap", "landlock", "off"]

MINUTES_PER_DAY = 24 * 60
MAX_HOURS = 60 * 24
"""Hours of all trainings of a run with a search."""
DEFAULT_TRAIN_MINUTES = 5.0
FINAL_SHARE = 1 / 3
"""Share of the hours for the training of the selected plan, if `train_minutes` does not say it."""
DEFAULT_MAX_COST = 5.0
"""US dollars that a run may cost if nothing else was said."""


@dataclass(frozen=True)
class ValueRange:
    """The allowed range of a number and its unit; pydantic takes the bounds from here.

    The lower bound of a float is itself excluded, since a time or cost of 0 allows nothing.
    """

    low: float
    high: float
    unit: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        schema = handler(source)
        is_integer = schema["type"] == "int"
        return {**schema, "ge" if is_integer else "gt": self.low, "le": self.high}


class NamedOptions(TypedDict, total=False):
    """The options by name, for `Pipeline(..., train_minutes=20)`: see `Options`.

    `tools` is missing here, because it is a parameter of `Pipeline`.
    """

    max_actions: Annotated[int, ValueRange(1, 100_000)]
    max_iterations: Annotated[int, ValueRange(0, 1_000)]
    max_tokens: Annotated[int, ValueRange(1, 10**12)] | None
    max_cost: Annotated[float, ValueRange(0, 10**6, "US dollars")] | None
    max_wall: Annotated[float, ValueRange(0, 60 * MINUTES_PER_DAY * 60, "seconds")] | None
    train_minutes: Annotated[float, ValueRange(0, 14 * MINUTES_PER_DAY, "minutes")] | None
    hours: Annotated[float, ValueRange(0, MAX_HOURS, "hours")] | None
    min_gain: Annotated[float, ValueRange(0, 10**6)] | None
    roles: Literal["four", "single"]
    reflect: bool
    examples: bool
    debug: bool
    sandbox: SandboxMode
    stream: bool
    confirm: ConfirmMode
    phi: Literal["mask", "allow"]
    offline: bool
    label_with: str
    log: str
    send_images: bool
    seed: Annotated[int, ValueRange(0, 2**32 - 1)]


class AllNamedOptions(NamedOptions, total=False):
    """All options by name, for validation by pydantic."""

    tools: ToolMode


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        max_actions: tool calls of all roles together.
        max_iterations: debug iterations and rejected artifacts of each role.
        max_tokens: input tokens of every request plus output tokens; None is no limit.
        max_cost: US dollars, as far as the model's prices are known; None is no limit.
        max_wall: seconds of the whole run.
        train_minutes: training time that the templates plan for; None is `DEFAULT_TRAIN_MINUTES`, or less if `max_wall`
            leaves less, or the last third of `hours`.
        hours: of training altogether: a search compares plans on held-out patients, then the best one is trained for
            `train_minutes` (docs/search.md). None is no search.
        min_gain: the search ends when the gain that is expected of going on is smaller, in units of the metric; None uses
            all of the hours.
        roles: `four` agents one after the other, or a `single` one for all stages.
        reflect, examples, debug: reflection turns, worked examples in prompts, debug iterations.
        sandbox: which backend confines scripts; `off` turns confinement off.
        tools: what counts as a call of a tool: `native` calls by the provider's protocol alone; `auto` also calls in the
            text of the reply, unless the provider's protocol is known to be reliable.
        stream: request the model's output as a stream; it appears as `delta` events.
        confirm: whether m3b asks (`Pipeline(ask=...)`) before training whether the data is read correctly: always,
            never, or only if the evidence of the manifest is `weak` and there is somebody to ask.
        phi: `mask` hides what identifies a person from previews, `allow` shows it.
        offline: refuse models on other machines; `M3B_OFFLINE=1` in the environment does the same.
        label_with: the folder of a promptable segmenter (`m3b.interactive`). The Data Engineer may prompt it for masks
            of images without one; its language model then sees these pictures. Naming the folder is the approval.
        log: names of loggers with commas: `tensorboard`, `mlflow`, `trackio`, `wandb`, `otel`, or of other packages.
            See `m3b.loggers`.
        send_images: show training and validation cases to the models of Module Architect and Model Trainer as pictures, if
            they ask (tool `view_image`); test cases never, nor images with text in their pixels, which takes the extra `ocr`.
        seed: random seed of splits and bootstrap.
    """

    max_actions: int = 100
    max_iterations: int = 5
    max_tokens: int | None = None
    max_cost: float | None = DEFAULT_MAX_COST
    max_wall: float | None = None
    train_minutes: float | None = None
    hours: float | None = None
    min_gain: float | None = None
    roles: Literal["four", "single"] = "four"
    reflect: bool = True
    examples: bool = True
    debug: bool = True
    sandbox: SandboxMode = "auto"
    tools: ToolMode = "auto"
    stream: bool = False
    confirm: ConfirmMode = False
    phi: Literal["mask", "allow"] = "mask"
    offline: bool = False
    label_with: str = ""
    log: str = ""
    send_images: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _find_invalid_options(vars(self)):
            value = getattr(self, name)
            raise OptionError(
                _describe_invalid_option(name, value, for_command_line=False),
                _describe_invalid_option(name, value, for_command_line=True),
            )
        if self.max_wall is not None and self.train_minutes is not None and self.train_minutes * 60 >= self.max_wall:
            minutes, total_minutes = f"{self.train_minutes:g} minutes", f"{self.max_wall / 60:g}"
            raise OptionError(
                f"Training alone may take {minutes} (train_minutes), and the whole run only {total_minutes}"
                f" (max_wall, {self.max_wall:g} seconds). Raise the one or lower the other.",
                f"Training alone may take {minutes} (--train-minutes), and the whole run only {total_minutes} (--max-wall)."
                " Raise the one or lower the other.",
            )

        self._check_hours()

    def _check_hours(self) -> None:
        """Check that the hours leave time for a search, and that the whole run is longer."""
        if self.hours is None:
            if self.min_gain is not None:
                raise OptionError(
                    "min_gain ends a search, and there is none: give hours, too.",
                    "--min-gain ends a search, and there is none: give --hours, too.",
                )
            return
        minutes = self.hours * 60
        if self.train_minutes is not None and self.train_minutes >= minutes:
            amounts = f"The last training alone may take {self.train_minutes:g} minutes"
            raise OptionError(
                f"{amounts} (train_minutes), and all trainings together {minutes:g} (hours). Raise the one or lower the other.",
                f"{amounts} (--train-minutes), and all trainings together {minutes:g} (--hours). Raise the one or lower the "
                "other.",
            )
        if self.max_wall is not None and minutes * 60 >= self.max_wall:
            raise OptionError(
                f"The trainings may take {self.hours:g} hours (hours), and the whole run only {self.max_wall / 3600:g} (max_wall, "
                f"{self.max_wall:g} seconds). Raise the one or lower the other.",
                f"The trainings may take {self.hours:g} hours (--hours), and the whole run only {self.max_wall / 60:g} minutes "
                "(--max-wall). Raise the one or lower the other.",
            )

    @property
    def training_minutes(self) -> float:
        """The training time that the templates plan for."""
        if self.train_minutes is not None:
            return self.train_minutes
        if self.hours is not None:
            return max(0.01, round(self.hours * 60 * FINAL_SHARE, 2))
        if self.max_wall is None:
            return DEFAULT_TRAIN_MINUTES
        from m3b.agents.budget import MAX_TRAINING_SHARE  # a run needs it, `import m3b` does not

        return min(DEFAULT_TRAIN_MINUTES, max(0.01, round(self.max_wall / 60 * MAX_TRAINING_SHARE, 2)))

    def to_json(self) -> dict[str, Any]:
        """Return the options for run.json; a resumed run plans for the same minutes."""
        return {**asdict(self), "train_minutes": self.training_minutes}


@cache
def _option_hints() -> dict[str, Any]:
    return get_type_hints(AllNamedOptions, include_extras=True)


@cache
def _option_validators() -> dict[str, Any]:
    """Return the validator of each option by its name."""
    from pydantic import ConfigDict, TypeAdapter  # imported late, so that `import m3b` is quick

    config = ConfigDict(strict=True, allow_inf_nan=False)
    return {name: TypeAdapter(hint, config=config) for name, hint in _option_hints().items()}


def _find_invalid_options(values: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the options with invalid values."""
    from pydantic import ValidationError

    for name, validator in _option_validators().items():
        try:
            validator.validate_python(values[name])
        except ValidationError:
            yield name


def _describe_invalid_option(name: str, value: Any, *, for_command_line: bool) -> str:
    """Return what is wrong with an option; with `for_command_line` in the names and units of the command line."""
    option_name, hint = _to_flag(name) if for_command_line else name, _option_hints()[name]
    if get_origin(hint) is Literal:
        return f"{option_name} must be one of {', '.join(get_args(hint))}; it is {value!r}."
    if hint is bool:
        return f"{option_name} must be True or False; it is {value!r}."
    if hint == ConfirmMode:
        return f"{option_name} must be True, False or 'weak'; it is {value!r}."
    if hint is str:
        return f"{option_name} must be a text; it is {value!r}."
    annotated_type = hint if get_origin(hint) is Annotated else get_args(hint)[0]
    number_type, value_range = get_args(annotated_type)
    is_integer = number_type is int
    kind = "a whole number" if is_integer else "a number"
    if isinstance(value, bool) or not isinstance(value, int if is_integer else (int, float)):
        return f"{option_name} must be {kind}; it is {value!r}."
    high, unit = value_range.high, value_range.unit
    if for_command_line and unit == "seconds":  # the command line counts minutes
        high, value, unit = high / 60, value / 60, "minutes"
    bounds = (
        f"from {value_range.low:,.0f} to {high:,.0f}"
        if is_integer
        else f"above {value_range.low:,.0f} and at most {high:,.0f}"
    )
    value_text = f"{value:,.10g} {unit}" if unit else f"{value}"
    return f"{option_name} must be {kind} {bounds}{' ' if unit else ''}{unit}; it is {value_text}."


def _to_flag(name: str) -> str:
    """Return an option as the command line spells it."""
    if name in ("roles", "max_iterations"):
        return name  # not on the command line
    return f"--{name.replace('_', '-')}"
