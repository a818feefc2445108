"""Named external test sets as a caller gives them: a folder each, optionally with a manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.data.cards import Card
    from m3b.dataset.manifest.model import Manifest

FolderPath = str | Path
ExternalData = Mapping[str, FolderPath | Sequence[Any]]
"""Name -> folder, or (folder, manifest as a `Manifest`, its values, or a JSON file)."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]{0,39}", re.ASCII)


@dataclass(frozen=True)
class ExternalSource:
    """A folder with an external test set, which no agent and no training ever sees.

    Args:
        manifest: how the folder is read; None takes the best proposed manifest.
    """

    name: str
    folder: Path
    manifest: Manifest | None = None


def parse_external_data(external_data: ExternalData | None) -> tuple[ExternalSource, ...]:
    """Return the external sources that a caller gave.

    Raises:
        UsageError: a name or a manifest is invalid.
    """
    sources = []
    for name, value in (external_data or {}).items():
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError(
                f"{name[:60]!r} cannot name an external set: letters, digits, `.`, `-` and `_` only, at most 40."
            )
        folder_path, manifest = (value, None) if isinstance(value, str | Path) else [*value, None][:2]
        folder = Path(folder_path).expanduser().absolute()
        sources.append(
            ExternalSource(name, folder.resolve(), _parse_manifest(manifest) if manifest is not None else None)
        )
    return tuple(sources)


def _parse_manifest(manifest: Any) -> Manifest | None:
    from m3b.run.overrides import parse_overrides  # imports polars, which `import m3b` does not need

    overrides = parse_overrides(manifest, None)
    return overrides.manifest if overrides is not None else None


def parse_external_arguments(arguments: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return `NAME=DIR` and `NAME=manifest.json` of the command line in the form that `parse_external_data` takes.

    Raises:
        UsageError: a name is missing or occurs twice, or a manifest has no folder.
    """
    folders: dict[str, str] = {}
    manifests: dict[str, str] = {}
    for argument in arguments:
        name, separator, path = argument.partition("=")
        if not separator or not name or not path:
            raise UsageError(f"--external takes NAME=DIR, and NAME=manifest.json for its manifest; found {argument!r}.")
        target = manifests if Path(path).expanduser().is_file() else folders
        if name in target:
            raise UsageError(f"--external names {name} twice.")
        target[name] = path
    if orphans := sorted(set(manifests) - set(folders)):
        raise UsageError(
            f"--external {orphans[0]}={manifests[orphans[0]]} is a manifest; give the folder too: {orphans[0]}=DIR."
        )
    return {name: (folder, manifests.get(name)) for name, folder in folders.items()}


def check_external_sources(sources: Iterable[ExternalSource], cards: Iterable[Card], out: Path | None) -> None:
    """Raise UsageError if an external set is no folder, or overlaps with training data or the run folder."""
    roots = [card.path.resolve() for card in cards if card.path]
    run_folder = out.expanduser().absolute().resolve() if out is not None else None
    for source in sources:
        if not source.folder.is_dir():
            raise UsageError(f"The external set {source.name} names {source.folder}, which is no folder.")
        for root in roots:
            if source.folder.is_relative_to(root) or root.is_relative_to(source.folder):
                raise UsageError(
                    f"The external set {source.name} ({source.folder}) and the data {root} lie in each other; training would see it. "
                    "Give it a separate folder."
                )
        if run_folder is not None and (
            run_folder.is_relative_to(source.folder) or source.folder.is_relative_to(run_folder)
        ):
            raise UsageError(
                f"The external set {source.name} ({source.folder}) and the run folder {out} lie in each other."
            )


def serialize_external_sources(sources: Iterable[ExternalSource]) -> dict[str, list[Any]]:
    """Return the sources as run.json stores them; `parse_external_data` reads them again."""
    return {
        source.name: [
            str(source.folder),
            source.manifest.model_dump(mode="json", exclude_defaults=True) if source.manifest else None,
        ]
        for source in sources
    }
