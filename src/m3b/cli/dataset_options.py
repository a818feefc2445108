"""Options on how a folder is to be read, for `m3b run` and `m3b look`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from m3b.run.overrides import OverrideArguments

HELP_PANEL = "How the data is read"


@dataclass(frozen=True)
class DatasetOptions:
    """The options with which a user fixes a manifest, or parts of it."""

    manifest: Annotated[
        Path | None,
        typer.Option(
            help="A manifest of the data, as `m3b look -o` writes it; it is used as it is.", rich_help_panel=HELP_PANEL
        ),
    ] = None
    labels: Annotated[
        str, typer.Option(help="The table with the labels, in the data folder.", rich_help_panel=HELP_PANEL)
    ] = ""
    image_column: Annotated[str, typer.Option(help="The column that names the images.", rich_help_panel=HELP_PANEL)] = (
        ""
    )
    label_column: Annotated[str, typer.Option(help="The column with the labels.", rich_help_panel=HELP_PANEL)] = ""
    patient_column: Annotated[
        str, typer.Option(help="The column with the patient of each image.", rich_help_panel=HELP_PANEL)
    ] = ""
    masks: Annotated[
        str, typer.Option(help="A folder of masks in the data folder, or a pattern.", rich_help_panel=HELP_PANEL)
    ] = ""
    classes: Annotated[str, typer.Option(help="The classes, separated by commas.", rich_help_panel=HELP_PANEL)] = ""
    split: Annotated[
        str,
        typer.Option(
            help="Which cases are for testing: a column, `folders`, a file that lists them, or `drawn`.",
            rich_help_panel=HELP_PANEL,
        ),
    ] = ""

    @property
    def overrides(self) -> OverrideArguments:
        """The parts of a manifest, as `Pipeline` takes them."""
        return {
            "labels": self.labels,
            "image_column": self.image_column,
            "label_column": self.label_column,
            "patient_column": self.patient_column,
            "masks": self.masks,
            "classes": [name.strip() for name in self.classes.split(",") if name.strip()],
            "split": self.split,
        }


NO_DATASET_OPTIONS = DatasetOptions()
