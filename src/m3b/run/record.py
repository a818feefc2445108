"""The record of how a run was started (run.json), and what a resumed run takes from it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.roles import ROLE_NAMES
from m3b.engines import EngineOptions
from m3b.errors import DataError, UsageError
from m3b.isolation.sandbox import Sandbox
from m3b.journal import JOURNAL_FORMAT
from m3b.llm import LLM
from m3b.llm.base import spec_of
from m3b.llm.offline import is_offline
from m3b.remote.mirror import restore_mirror
from m3b.remote.origin import Origin
from m3b.remote.store import FILE_LIST
from m3b.run.confinement import resume_mode, used_sandboxes
from m3b.run.extensions import UserExtensions
from m3b.run.external_sources import ExternalSource, serialize_external_sources
from m3b.run.folder import RunFolder
from m3b.run.options import Options, SandboxMode
from m3b.run.training_overrides import TrainingOverrides
from m3b.workspace import Workspace, restore_origins

if TYPE_CHECKING:
    from m3b.data.cards import Card
    from m3b.dataset.manifest.overrides import Overrides


def make_record(
    run: RunFolder,
    request: str,
    options: Options,
    llms: Mapping[str, LLM],
    workspace: Workspace,
    sandbox: Sandbox,
    extensions: UserExtensions,
    overrides: Overrides | None,
    training: TrainingOverrides,
    role_names: Sequence[str],
    external_sources: Sequence[ExternalSource],
    engine: EngineOptions,
) -> dict[str, Any]:
    """Return the content of run.json at the start of a run."""
    from m3b.run.packaging import collect_versions  # imports numpy

    cards = [
        {"name": card.name, "description": card.description, "path": str(card.path) if card.path else None, "task": card.task,
         "modality": card.modality, "anatomy": card.anatomy, "dimension": card.dimension, "metric": card.metric,
         "acceptable": list(card.acceptable) if card.acceptable else None, "patient_key": card.patient_key,
         "classes": list(card.classes), **({"origin": card.origin.to_json()} if card.origin else {})}
        for card in workspace.cards.values() if card.own
    ]  # fmt: skip
    return {
        "format": JOURNAL_FORMAT,
        "id": run.id,
        "request": request,
        "status": "working",
        "reason": "",
        "options": options.to_json(),
        "llm": {name: spec_of(llm) for name, llm in llms.items()},
        "data": cards,
        "workspace": workspace.to_json(),
        "own": extensions.list_names(),
        "stages": list(role_names),
        "given": overrides.model_dump(mode="json", exclude_defaults=True) if overrides is not None else {},
        "training": training.to_json(),
        "engine": engine.to_json(),
        "external": serialize_external_sources(external_sources),
        **used_sandboxes({}, sandbox),
        "versions": collect_versions(),
        "seed": options.seed,
        "started": time.time(),
        "run_dir": str(run.path),
    }


def restore_workspace(record: Mapping[str, Any]) -> Workspace:
    """Return the workspace that a run was started with.

    Raises:
        UsageError: a folder of it does not exist any more, or cannot be used.
    """
    stored = dict(record.get("workspace") or {})  # journals of format 1 hold none
    root = Path(stored["root"]) if stored.get("root") else None
    data = [dict(card) for card in record.get("data", [])]
    origins = read_origins(record)
    for card in data:
        card.pop("origin", None)
    try:
        workspace = Workspace(
            root, data, with_shipped=stored.get("shipped", True), templates=stored.get("templates"),
            prompts=stored.get("prompts"),
        )  # fmt: skip
        return restore_origins(workspace, origins)
    except (DataError, OSError) as error:
        raise UsageError(
            f"The run was started with a workspace that is not there any more: {error} Put it back, or give another: "
            "Pipeline.resume(run, workspace=...)."
        ) from error


def read_origins(record: Mapping[str, Any]) -> dict[str, Origin]:
    """Return the name of each card whose data was mirrored from another machine -> its origin.

    Raises:
        UsageError: the record of an origin is damaged.
    """
    cards = record.get("data")
    return {
        str(card["name"]): Origin.from_json(card["origin"])
        for card in (cards if isinstance(cards, list) else [])
        if isinstance(card, dict) and card.get("origin")
    }


def restore_mirrors(record: Mapping[str, Any], offline: bool = False) -> None:
    """Fetch mirrored folders of a run again that were removed from their store; offline, no server is asked.

    Raises:
        UsageError: see `m3b.remote.mirror.restore_mirror`.
    """
    origins = read_origins(record)
    for card in record.get("data", []) if origins else []:
        if card.get("name") in origins and card.get("path"):
            restore_mirror(origins[card["name"]], Path(card["path"]), offline=is_offline(offline))


ORIGINS_FOLDER = "origins"
"""Folder of a run with the list of the files of each mirrored folder: names, fingerprints of the server, SHA-256."""


def record_file_lists(run: RunFolder, cards: Iterable[Card]) -> None:
    """Write the lists of the files of all mirrored folders into a new run folder."""
    for card in cards:
        if card.origin is not None and card.path is not None:
            folder = run.path / ORIGINS_FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(card.path.parent / FILE_LIST, folder / f"{card.root}.jsonl")


def read_recorded_options(
    run: RunFolder, record: Mapping[str, Any], offline: bool, sandbox: SandboxMode | None, log: str | None
) -> Options:
    """Return the options of a resumed run: those that it was started with, except for the arguments.

    Args:
        offline: whether it is offline from now on.
        sandbox: the mode that the user asks for now; None: see `resume_mode`.
        log: other loggers; None keeps those of the record.
    """
    known_options = {k: v for k, v in record.get("options", {}).items() if k in Options.__dataclass_fields__}
    mode = resume_mode(run, str(known_options.get("sandbox", "auto")), sandbox)
    changes = {"offline": offline or known_options.get("offline", False), "sandbox": mode}
    return Options(**{**known_options, **changes, **({"log": log} if log is not None else {})})


def check_extensions_given(record: Mapping[str, Any], extensions: UserExtensions) -> None:
    """Check that the user gives all extensions again, since Python objects cannot be stored in a file.

    Raises:
        UsageError: something is missing; the message names it.
    """
    before, now = dict(record.get("own") or {}), extensions.list_names()
    missing = [
        f"{kind} {name}" for kind in before for name in before[kind] if name not in now.get(kind, {})
    ]  # fmt: skip
    if missing:
        raise UsageError(
            f"The run was started with {', '.join(missing)}, which no file can hold. Give the same again: "
            f"Pipeline.resume(run, {', '.join(f'{kind}=...' for kind in before if before[kind])})."
        )


def check_same_stages(record: Mapping[str, Any], role_names: Sequence[str]) -> None:
    """Check that a resumed run has the stages that it was started with, in the same order.

    Args:
        role_names: the roles of the stages that are given now.

    Raises:
        UsageError: they differ; the message names both.
    """
    before = tuple(record.get("stages") or ROLE_NAMES)  # earlier versions had only these
    if before != tuple(role_names):
        raise UsageError(
            f"The run was started with the stages {', '.join(before)}; given are {', '.join(role_names)}. Stages are in no file: give "
            "the same again, Pipeline.resume(run, stages=[...]), or start a new run."
        )
