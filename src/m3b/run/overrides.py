"""Dataset overrides: what a user fixes of a manifest, parsed and checked against the data before a run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from m3b.agents.check_result import CheckResult, Issue, reject
from m3b.data.cards import Card
from m3b.errors import DataError, UsageError
from m3b.isolation import untrusted
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Mounts, Sandbox
from m3b.isolation.untrusted import TemporaryFolder
from m3b.tools.dataset_jobs import MANIFEST_JOB

if TYPE_CHECKING:
    from m3b.dataset.manifest.model import Manifest
    from m3b.dataset.manifest.overrides import Overrides

MAX_MANIFEST_BYTES = 4 * 2**20
"""Size limit of a manifest file."""


class OverrideArguments(TypedDict, total=False):
    """Parts of a manifest that a user fixes: see `m3b.dataset.manifest.overrides.Overrides`."""

    labels: str
    image_column: str
    label_column: str
    patient_column: str
    masks: str
    classes: Sequence[str]
    split: str


def parse_overrides(manifest: Any, overrides: OverrideArguments | None) -> Overrides | None:
    """Return the overrides that a caller gave; None if there are none.

    Args:
        manifest: a manifest as an object, its values, or a JSON file.

    Raises:
        UsageError: it cannot be read, is no manifest, or is given together with parts.
    """
    parts = {name: value for name, value in (overrides or {}).items() if value}
    if manifest is None and not parts:
        return None
    from m3b.dataset.manifest.overrides import Overrides  # imports polars, which `import m3b` does not need

    if manifest is not None and parts:
        option_names = ", ".join("--" + name.replace("_", "-") for name in parts)
        raise UsageError(f"--manifest is a whole manifest; leave out {option_names}, or edit the file.")
    if unknown := sorted(set(parts) - set(OverrideArguments.__annotations__)):
        raise UsageError(
            f"`overrides` has no part {unknown[0]!r}; parts: {', '.join(OverrideArguments.__annotations__)}."
        )
    if manifest is not None:
        return Overrides(manifest=_parse_manifest(manifest))
    classes = tuple(name.strip() for name in parts.pop("classes", ()) if name.strip())  # type: ignore[attr-defined]
    if len(classes) != len({name.casefold() for name in classes}):
        raise UsageError(f"--classes names a class twice: {', '.join(classes)}.")
    return Overrides(classes=classes, **{name: str(value) for name, value in parts.items()})  # type: ignore[arg-type]


def _parse_manifest(manifest: Any) -> Manifest:
    from m3b.dataset.manifest.model import Manifest
    from m3b.dataset.manifest.overrides import parse_manifest

    if isinstance(manifest, Manifest):
        return manifest
    source = "The manifest that was given" if isinstance(manifest, Mapping) else f"--manifest {manifest}"
    try:
        if isinstance(manifest, Mapping):
            return parse_manifest(manifest)
        file = Path(manifest).expanduser()
        return parse_manifest(untrusted.read_json(file.parent, file.name, MAX_MANIFEST_BYTES))
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UsageError(f"{source} holds no JSON: {error}.") from error
    except DataError as error:
        raise UsageError(
            f'{source} is no manifest of a folder: {error}. `m3b look DIR "..." -o manifest.json` writes one.'
        ) from error


def resolve_overrides(
    overrides: Overrides, cards: Mapping[str, Card], sandbox: Sandbox
) -> tuple[Overrides, dict[str, Card]]:
    """Return the overrides with paths relative to the data folder, and the cards with the task and classes that follow.

    The overrides are checked against the folder in the sandbox, before anything is created for the run.

    Raises:
        UsageError: the data is not one folder, or something that was named does not exist.
    """
    user_cards = [card for card in cards.values() if card.own and card.path is not None]
    if len(user_cards) != 1 or user_cards[0].path is None or not user_cards[0].path.is_dir():
        raise UsageError(f"A manifest describes exactly one data folder; --data names {len(user_cards)}.")
    card, root = user_cards[0], user_cards[0].path
    overrides = make_relative_to_root(overrides, root)
    validate_overrides(overrides, root, sandbox)
    if overrides.manifest is not None:
        task = overrides.manifest.task
        if card.task and card.task != task:
            raise UsageError(f"The manifest is for {task}, the data card {card.name!r} says {card.task}.")
        card = replace(card, task=task, classes=list_classes(overrides.manifest))
    elif overrides.classes:
        card = replace(card, classes=overrides.classes)
    return overrides, {**cards, card.name: card}


def enforce_overrides(overrides: Overrides | None, check_result: CheckResult) -> CheckResult:
    """Return the check result of a selection with task and classes of the user's whole manifest, if there is one."""
    selection = check_result.artifact
    if overrides is None or overrides.manifest is None or selection is None:
        return check_result
    manifest = overrides.manifest
    if selection.task != manifest.task:
        user_message = f"The user gave a manifest of the data for {manifest.task}; `task` is {selection.task!r}."
        return reject(Issue(f"{user_message} Choose {manifest.task}, and one of its metrics.", user_message))
    return replace(check_result, artifact=replace(selection, classes=list_classes(manifest)))


def list_classes(manifest: Manifest) -> tuple[str, ...]:
    """Return the classes of the index that a manifest gives."""
    from m3b.dataset.manifest.resolve import class_names

    return class_names(manifest)


def make_relative_to_root(overrides: Overrides, root: Path) -> Overrides:
    """Return the overrides with paths relative to the data folder, however they were given."""
    updates = {name: _relative_to_root(getattr(overrides, name), root) for name in ("labels", "masks", "split")}
    return overrides.model_copy(update=updates)


def _relative_to_root(text: str, root: Path) -> str:
    path = Path(text).expanduser()
    if not text or (not path.is_absolute() and (root / text).exists()) or not path.exists():
        return text.rstrip("/")
    path = path.resolve()
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else text


def validate_overrides(overrides: Overrides, root: Path, sandbox: Sandbox) -> None:
    """Raise UsageError if the overrides do not fit the folder."""
    job = {"do": "check", "overrides": overrides.model_dump(mode="json", exclude_defaults=True)}
    with TemporaryFolder("given") as scratch, Reader(sandbox, Mounts(read=(root,), write=(scratch,))) as reader:
        try:
            run_reader_job(job, root, scratch, reader)
        except DataError as error:
            prefix = "The manifest that was given does not fit the data: " if overrides.manifest is not None else ""
            raise UsageError(f"{prefix}{error}") from error


def run_reader_job(job: Mapping[str, Any], root: Path, scratch: Path, reader: Reader) -> dict[str, Any]:
    """Return the answer to a job of `m3b.dataset.jobs` that belongs to no run.

    Args:
        reader: may read `root` and write to `scratch`.

    Raises:
        DataError: the job failed, or found a problem with the data.
    """
    answer = reader.run_job(MANIFEST_JOB, {**job, "root": str(root), "place": str(scratch)})
    if "error" in answer:
        raise DataError(str(answer["error"]))
    return answer
