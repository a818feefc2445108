"""What a user fixes of how a folder is read: a whole manifest, or parts that every proposal must keep to."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from m3b.dataset.inventory import Inventory
from m3b.dataset.manifest.model import Manifest, ManifestPart
from m3b.dataset.manifest.patterns import match_any, parse_pattern
from m3b.dataset.manifest.problems import PatternError, list_names
from m3b.errors import DataError

FOLDERS, DRAWN = "folders", "drawn"
"""Values of `split` besides a column and a file: the folders say it, or m3b draws one."""
MAX_ERRORS = 5


class Overrides(ManifestPart):
    """What a user fixes. Each part may be given alone.

    Args:
        manifest: the whole manifest, which is then executed as it is.
        labels: the table with the labels, below the data folder.
        image_column, label_column, patient_column: of that table, or of any if `labels` is empty.
        masks: a folder of masks below the data folder, or a pattern of their paths.
        classes: the classes of the index.
        split: a column, `folders`, a file that names a part of the images, or `drawn` for one that m3b draws.
    """

    manifest: Manifest | None = None
    labels: str = ""
    image_column: str = ""
    label_column: str = ""
    patient_column: str = ""
    masks: str = ""
    classes: tuple[str, ...] = ()
    split: str = ""

    @property
    def options(self) -> dict[str, str]:
        """Option of the command line -> value, of the parts that are given."""
        values = self.model_dump(exclude={"manifest"}, exclude_defaults=True)
        return {
            f"--{name.replace('_', '-')}": ", ".join(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @property
    def names_target(self) -> bool:
        """Whether the user says where the targets are, so that no rival of them is asked about."""
        return bool(self.labels or self.label_column or self.masks or self.classes)


def parse_manifest(values: object) -> Manifest:
    """Return the manifest of a JSON object.

    Raises:
        DataError: it is none; the message names the parts that are wrong.
    """
    if isinstance(values, Manifest):
        return values
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        messages = [message for _, message in _list_errors(error)]
        remainder = f" (and {len(messages) - MAX_ERRORS} more)" if len(messages) > MAX_ERRORS else ""
        raise DataError("; ".join(messages[:MAX_ERRORS]) + remainder) from error


def list_manifest_errors(values: object) -> list[tuple[str, str]]:
    """Return what makes values no manifest: the part (`masks.classes`) and a message; empty if they are one."""
    try:
        Manifest.model_validate(values)
    except ValidationError as error:
        return _list_errors(error)
    return []


def _list_errors(error: ValidationError) -> list[tuple[str, str]]:
    return [_describe_error(dict(item)) for item in error.errors(include_url=False)]


def _describe_error(error: dict[str, Any]) -> tuple[str, str]:
    part = ".".join(str(name) for name in error["loc"] if "[" not in str(name))
    return part, _format_error(error, part or "the manifest")


def _format_error(error: dict[str, Any], part: str) -> str:
    if error["type"] == "extra_forbidden":
        return f"{part} is no key of a manifest"
    if error["type"] == "missing":
        return f"{part} is missing"
    if error["type"] == "value_error":
        return f"{part}: {str(error['msg']).removeprefix('Value error, ')}"
    return f"{part} {str(error['msg']).removeprefix('Input ')}, and is {list_names([str(error['input'])])}"


def find_files(inventory: Inventory, text: str) -> frozenset[str]:
    """Return the files that a folder, path or pattern of the user means."""
    name = text.strip("/").removeprefix("./")
    paths_inside = [path for path in inventory.paths if path == name or path.startswith(f"{name}/")]
    if paths_inside:
        return frozenset(paths_inside)
    try:
        pattern = parse_pattern(name if "/" in name else f"**/{name}", "masks.files")
    except PatternError as error:
        raise DataError(error.problem.message) from error
    return frozenset(match_any(inventory.files.select("path"), [pattern])["path"].to_list())
