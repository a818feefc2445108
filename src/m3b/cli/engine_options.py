"""Options on where the scripts of training run, for `m3b run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.engines import EngineName
    from m3b.engines import EngineOptions as ChosenEngine

HELP_PANEL = "Where the model is trained"


@dataclass(frozen=True)
class EngineOptions:
    """The options with which a user trains on a cluster."""

    engine: Annotated[
        str | None,
        typer.Option(
            help="local (this machine), slurm or ray: training and prediction are cluster jobs. Default: local.",
            rich_help_panel=HELP_PANEL,
            show_default=False,
        ),
    ] = None
    cpus: Annotated[int | None, typer.Option(help="Cores of a job. Default: 4.", rich_help_panel=HELP_PANEL)] = None
    memory: Annotated[
        float | None, typer.Option(help="Memory of a job in GiB. Default: 16.", rich_help_panel=HELP_PANEL)
    ] = None
    partition: Annotated[
        str | None, typer.Option(help="Partition of the jobs. Default: the cluster's.", rich_help_panel=HELP_PANEL)
    ] = None
    slurm_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A further option of sbatch, such as account=radiology; may be repeated.",
            rich_help_panel=HELP_PANEL,
        ),
    ] = None

    def resolve(self, data: Sequence[str]) -> ChosenEngine:
        """Return the engine, with what the configuration says of anything that was not given.

        Raises:
            UsageError: an option makes no sense.
        """
        from m3b.config import read_config
        from m3b.engines import EngineOptions as ChosenEngine

        settings = read_config(map(Path, data))
        name = self.engine or settings.get("engine") or "local"
        is_local = name == "local"
        texts = self.slurm_option
        if name == "ray" and texts:
            raise UsageError("--slurm-option is for --engine slurm; nodes of Ray are chosen by --partition.")
        if name == "slurm":
            texts = texts if texts is not None else (settings.get("slurm_options") or "").split()
        return ChosenEngine(
            cast("EngineName", name),
            cpus=self.cpus if self.cpus is not None or is_local else settings.get("cpus"),
            memory_gib=self.memory if self.memory is not None or is_local else settings.get("memory"),
            partition=self.partition or ("" if is_local else settings.get("partition") or ""),
            options=parse_slurm_options(texts or []),
        )


NO_ENGINE_OPTIONS = EngineOptions()


def parse_slurm_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the options of sbatch from KEY=VALUE texts; an option without a value has an empty one.

    Raises:
        UsageError: a text has no name.
    """
    options: dict[str, str] = {}
    for text in texts:
        name, _, value = text.removeprefix("--").partition("=")
        if not name.strip():
            raise UsageError(f"--slurm-option {text!r}: write KEY=VALUE, such as account=radiology.")
        options[name.strip()] = value
    return options
