"""Options on how a folder is to be read, for `m3b run` and `m3b look`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

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


def with_dataset_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the options of `DatasetOptions` in place of its parameter `dataset`."""
    hints = get_type_hints(DatasetOptions, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(DatasetOptions)
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if parameter.name == "dataset" else [parameter.replace(kind=parameter.KEYWORD_ONLY)]

    @wraps(command)
    def run_command(**arguments: Any) -> None:
        dataset = DatasetOptions(**{option.name: arguments.pop(option.name) for option in options})
        command(**arguments, dataset=dataset)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_command
