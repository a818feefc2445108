"""Options on how a folder is to be read, for `m3b run` and `m3b look`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from m3b.run.external_sources import ExternalData
    from m3b.run.overrides import OverrideArguments

HELP_PANEL = "How the data is read"

ManifestOption = Annotated[
    Path | None,
    typer.Option(
        help="A manifest of the data, as `m3b look -o` writes it; it is used as it is.", rich_help_panel=HELP_PANEL
    ),
]
LabelsOption = Annotated[
    str, typer.Option(help="The table with the labels, in the data folder.", rich_help_panel=HELP_PANEL)
]
ImageColumnOption = Annotated[str, typer.Option(help="The column that names the images.", rich_help_panel=HELP_PANEL)]
LabelColumnOption = Annotated[str, typer.Option(help="The column with the labels.", rich_help_panel=HELP_PANEL)]
PatientColumnOption = Annotated[
    str, typer.Option(help="The column with the patient of each image.", rich_help_panel=HELP_PANEL)
]
MasksOption = Annotated[
    str, typer.Option(help="A folder of masks in the data folder, or a pattern.", rich_help_panel=HELP_PANEL)
]
ClassesOption = Annotated[str, typer.Option(help="The classes, separated by commas.", rich_help_panel=HELP_PANEL)]
SplitOption = Annotated[
    str,
    typer.Option(
        help="Which cases are for testing: a column, `folders`, a file that lists them, or `drawn`.",
        rich_help_panel=HELP_PANEL,
    ),
]
ExternalOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=DIR: an external test set; NAME=manifest.json: its manifest. Repeatable."),
]


def parse_external_data(assignments: Sequence[str]) -> ExternalData:
    """Return the external sets as `Pipeline` takes them. Raises UsageError."""
    from m3b.run.external_sources import parse_external_arguments

    return parse_external_arguments(assignments)


def collect_overrides(
    labels: str, image_column: str, label_column: str, patient_column: str, masks: str, classes: str, split: str
) -> OverrideArguments:
    """Return the options as `Pipeline` takes them."""
    class_names = [name.strip() for name in classes.split(",") if name.strip()]
    return {"labels": labels, "image_column": image_column, "label_column": label_column, "patient_column": patient_column,
            "masks": masks, "classes": class_names, "split": split}  # fmt: skip
