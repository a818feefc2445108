"""What a caller gives to a pipeline, brought into shape."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import WrongUse
from m3b.llm import LLM, connect
from m3b.llm.offline import check, demanded
from m3b.run.options import Options, ToolMode

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.data.spec.model import IndexSpec
    from m3b.run.given import GivenReading

Model = str | LLM | Callable[..., Any]
Models = Model | Mapping[str, Model] | None


def options_of(options: Options | None, single: dict[str, Any]) -> Options:
    """The options that were given, together or by name.

    Raises:
        WrongUse: both were, or there is no such option.
    """
    unknown = sorted(set(single) - set(Options.__dataclass_fields__))
    if unknown:
        known_options = ", ".join(Options.__dataclass_fields__)
        close_matches = difflib.get_close_matches(unknown[0], Options.__dataclass_fields__, 1)
        suggestion = f" Did you mean {close_matches[0]}?" if close_matches else ""
        raise WrongUse(f"There is no option {', '.join(unknown)}.{suggestion} Options: {known_options}.")
    if options is not None and single:
        raise WrongUse("Give either `options` or single options by name, not both.")
    return options or Options(**single)


def somebody_to_ask(options: Options, ask: object) -> None:
    """Raises WrongUse where a run is to ask before it trains, and nobody can be asked."""
    if options.confirm is True and ask is None:
        problem = "is to ask before it trains, and there is nobody to ask"
        raise WrongUse(
            f"m3b {problem}: run --confirm on a terminal, give `ask` with confirm=True, or leave confirm out."
        )


def given_of(index: str | Path | Mapping[str, Any] | IndexSpec | None, reading: GivenReading | None) -> Given | None:
    """What the user says of how the data is to be read; None, and nothing imported, where that is nothing."""
    if index is None and not reading:
        return None
    from m3b.run.given import given_from

    return given_from(index, reading)


def check_offline(llm: Models, fallback: Model | None, offline: bool, label_with: str = "") -> None:
    """That no role's model is on another machine, where that is forbidden, and that there is the folder of the segmenter with
    which images may be labelled; nothing is opened for it.

    Raises:
        WrongUse: one is; there is no such folder.
    """
    if label_with and not Path(label_with).is_dir():
        raise WrongUse(
            f"There is no segmenter folder {label_with} (label_with, --label-with). Train one with `m3b interactive train`, or "
            "fetch SAM."
        )
    if demanded(offline):
        check([*(llm.values() if isinstance(llm, Mapping) else [llm]), fallback])


def connect_of(
    llm: Models,
    tools: ToolMode,
    fallback: Model | None,
    offline: bool,
    roles: Sequence[str],
) -> dict[str, LLM]:
    """A model a role, and the `default`.

    Args:
        roles: those that there are.

    Raises:
        WrongUse: a role or a provider that does not exist.
    """
    if not isinstance(llm, Mapping):
        return {"default": connect(llm, tools=tools, fallback=fallback, local=offline)}
    known_roles = {"default", *roles}
    unknown = sorted(set(llm) - known_roles)
    if unknown:
        raise WrongUse(f"`llm` names the roles {', '.join(unknown)}; known are {', '.join(sorted(known_roles))}.")
    open_model = partial(connect, tools=tools, fallback=fallback, local=offline)
    llms = {name: open_model(model) for name, model in llm.items()}
    llms.setdefault("default", next(iter(llms.values())) if llms else open_model(None))
    return llms


def hosted_schema() -> dict[str, Any]:
    """How a pipeline is told of as a tool of another agent."""
    request = {"type": "string", "description": "what the model shall tell from which images"}
    return {
        "name": "build_medical_imaging_model",
        "description": "Build, test and deliver a medical-imaging model from a request in plain words. Takes minutes to hours.",
        "parameters": {
            "type": "object",
            "properties": {"request": request},
            "required": ["request"],
            "additionalProperties": False,
        },
    }
