"""What the pipeline gives a run: folder, options, models and everything of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from m3b.engines import EngineOptions
from m3b.isolation.sandbox import Sandbox
from m3b.llm import LLM
from m3b.run.extensions import UserExtensions
from m3b.run.folder import RunFolder
from m3b.run.options import Options
from m3b.run.training_overrides import TrainingOverrides
from m3b.workspace import Workspace

if TYPE_CHECKING:
    from m3b.dataset.manifest.overrides import Overrides
    from m3b.events import Event
    from m3b.run.external_sources import ExternalSource
    from m3b.run.state import RunState


@dataclass(frozen=True)
class RunSetup:
    """What one run is performed with.

    Args:
        folder: the run folder, locked.
        record: the content of run.json; see `m3b.run.record`.
        state: what earlier processes did in the run; None for a new one.
        llms: role -> model; `default` is for all other roles.
        extensions: tools and checks of the user.
        overrides: what the user fixed of how the data is to be read.
        training: what the user fixed of metric, machine and training.
        engine: where the scripts of training run.
        external_sources: external test sets, which are measured at the end and used for nothing else.
        ask, approve, on_event: the callbacks of the user, see `Pipeline`.
        notes: messages for the user and the journal at the start of the work.
        added_minutes: minutes of training that are added to a finished run; 0 for none.
        discards_training: whether an added training that was interrupted is dropped.
    """

    folder: RunFolder
    record: dict[str, Any]
    state: RunState | None
    options: Options
    workspace: Workspace
    llms: Mapping[str, LLM]
    sandbox: Sandbox
    extensions: UserExtensions
    overrides: Overrides | None
    training: TrainingOverrides
    engine: EngineOptions
    external_sources: tuple[ExternalSource, ...]
    ask: Callable[[str], str | None] | None
    approve: Callable[[str], bool] | None
    on_event: Callable[[Event], None] | None
    notes: tuple[str, ...]
    added_minutes: float = 0.0
    discards_training: bool = False
