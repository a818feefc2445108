"""Opening a delivered model for a command, with warnings on its origin and confinement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from m3b.cli.output import echo

if TYPE_CHECKING:
    from m3b.models import Model

Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined",
        help="Run the model's code with all of your rights instead of in a sandbox: only for models that you trust.",
    ),
]


def open_model(name: str | Path, *, unconfined: bool) -> Model:
    """Open the model of a folder or run, and print to standard error what a user must know about it.

    Raises:
        UsageError: there is no such model.
        ModelError, IntegrityError: as `load_model`.
    """
    from m3b.models import load_model
    from m3b.run.folder import find_model_folder

    folder = find_model_folder(name)
    opened_model = load_model(folder, unconfined=unconfined)
    announce_origin(folder, unconfined=unconfined)
    return opened_model


def announce_origin(folder: Path, *, unconfined: bool) -> None:
    """Print to standard error that a model is not from the user's own runs, or that its code runs unconfined."""
    from m3b.run.folder import is_own_model

    is_own = is_own_model(folder)
    if unconfined and is_own:
        echo(f"WARNING: the code of {folder} runs unconfined: it can read and change whatever you can.", err=True)
    elif unconfined:
        echo(
            f"WARNING: {folder} is a model from elsewhere, not of a run of yours, and its code runs unconfined: it can read "
            "and change whatever you can, your keys included. Leave out --unconfined unless you have read its code.",
            err=True,
        )
    elif not is_own:
        echo(f"{folder} is a model from elsewhere, not of a run of yours; its code runs confined.", err=True)
