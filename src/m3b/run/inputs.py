"""What a caller gives to a pipeline, brought into shape."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError
from m3b.llm import LLM, connect
from m3b.llm.offline import forbid_remote_models, is_offline
from m3b.run.options import Options, ToolMode

if TYPE_CHECKING:
    from m3b.data.spec.given import Given
    from m3b.data.spec.model import IndexSpec
    from m3b.run.given import OverrideArguments

ModelInput = str | LLM | Callable[..., Any]
ModelInputs = ModelInput | Mapping[str, ModelInput] | None


def parse_options(options: Options | None, named_options: dict[str, Any]) -> Options:
    """The options that were given, together or by name.

    Raises:
        UsageError: both were, or there is no such option.
    """
    unknown = sorted(set(named_options) - set(Options.__dataclass_fields__))
    if unknown:
        known_options = ", ".join(Options.__dataclass_fields__)
        close_matches = difflib.get_close_matches(unknown[0], Options.__dataclass_fields__, 1)
        suggestion = f" Did you mean {close_matches[0]}?" if close_matches else ""
        raise UsageError(f"There is no option {', '.join(unknown)}.{suggestion} Options: {known_options}.")
    if options is not None and named_options:
        raise UsageError("Give either `options` or single options by name, not both.")
    return options or Options(**named_options)


def check_can_confirm(options: Options, ask_user: object) -> None:
    """Raises UsageError where a run is to ask before it trains, and nobody can be asked."""
    if options.confirm is True and ask_user is None:
        problem = "is to ask before it trains, and there is nobody to ask"
        raise UsageError(
            f"m3b {problem}: run --confirm on a terminal, give `ask` with confirm=True, or leave confirm out."
        )


def parse_dataset_overrides(
    manifest: str | Path | Mapping[str, Any] | IndexSpec | None, overrides: OverrideArguments | None
) -> Given | None:
    """What the user says of how the data is to be read; None, and nothing imported, where that is nothing."""
    if manifest is None and not overrides:
        return None
    from m3b.run.given import parse_overrides

    return parse_overrides(manifest, overrides)


def check_models_offline(llm: ModelInputs, fallback: ModelInput | None, offline: bool, label_with: str = "") -> None:
    """That no role's model is on another machine, where that is forbidden, and that there is the folder of the segmenter with
    which images may be labelled; nothing is opened for it.

    Raises:
        UsageError: one is; there is no such folder.
    """
    if label_with and not Path(label_with).is_dir():
        raise UsageError(
            f"There is no segmenter folder {label_with} (label_with, --label-with). Train one with `m3b interactive train`, or "
            "fetch SAM."
        )
    if is_offline(offline):
        forbid_remote_models([*(llm.values() if isinstance(llm, Mapping) else [llm]), fallback])


def connect_models(
    llm: ModelInputs,
    tools: ToolMode,
    fallback: ModelInput | None,
    offline: bool,
    role_names: Sequence[str],
) -> dict[str, LLM]:
    """A model a role, and the `default`.

    Args:
        role_names: those that there are.

    Raises:
        UsageError: a role or a provider that does not exist.
    """
    if not isinstance(llm, Mapping):
        return {"default": connect(llm, tools=tools, fallback=fallback, local_only=offline)}
    known_roles = {"default", *role_names}
    unknown = sorted(set(llm) - known_roles)
    if unknown:
        raise UsageError(f"`llm` names the roles {', '.join(unknown)}; known are {', '.join(sorted(known_roles))}.")
    open_model = partial(connect, tools=tools, fallback=fallback, local_only=offline)
    llms = {name: open_model(model) for name, model in llm.items()}
    llms.setdefault("default", next(iter(llms.values())) if llms else open_model(None))
    return llms


def make_tool_schema() -> dict[str, Any]:
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
