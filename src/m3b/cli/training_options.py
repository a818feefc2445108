"""Options on metric, machine and training, for `m3b run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from m3b.run.training_overrides import TrainingOverrides

HELP_PANEL = "How the model is trained"


@dataclass(frozen=True)
class TrainingOptions:
    """The options with which a user fixes parts of a training, or a whole plan."""

    metric: Annotated[
        str | None, typer.Option(help="The metric that the model is judged by.", rich_help_panel=HELP_PANEL)
    ] = None
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.", rich_help_panel=HELP_PANEL)] = None
    gpus: Annotated[int | None, typer.Option(help="Number of GPUs to train on.", rich_help_panel=HELP_PANEL)] = None
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Train so many epochs; without --train-minutes for as long as they take.", rich_help_panel=HELP_PANEL
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option(help="Make exactly so many steps, which is repeatable.", rich_help_panel=HELP_PANEL),
    ] = None
    folds: Annotated[
        int | None, typer.Option(help="Networks of a cross-validation; 1 is one network.", rich_help_panel=HELP_PANEL)
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            help="A network of the template (classifiers: also timm:NAME, torchvision:NAME), or an entry of `m3b models list`.",
            rich_help_panel=HELP_PANEL,
        ),
    ] = None
    pretrained: Annotated[
        str | None,
        typer.Option(
            help="Weights to start from: an entry of `m3b models list`, a folder (also of a delivered model), or none.",
            rich_help_panel=HELP_PANEL,
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of plan.json; may be repeated.", rich_help_panel=HELP_PANEL
        ),
    ] = None
    plan: Annotated[
        Path | None,
        typer.Option(help="A whole plan.json, as `m3b plan -o` writes it.", rich_help_panel=HELP_PANEL),
    ] = None

    def with_config(self, data: Sequence[str]) -> TrainingOptions:
        """Return the options with device and number of GPUs from the configuration, if nothing else says them."""
        from m3b.config import read_config

        settings = read_config(map(Path, data))
        if self.plan is not None:
            return self
        device = self.device or settings.get("device")
        gpus = self.gpus if self.gpus is not None or self.device is not None else settings.get("gpus")
        return replace(self, device=device, gpus=gpus)

    @property
    def overrides(self) -> TrainingOverrides:
        """The same as `Pipeline` takes them.

        Raises:
            SettingError: a value cannot be meant.
        """
        from m3b.run.training_overrides import TrainingOverrides, parse_settings

        return TrainingOverrides(
            metric=self.metric,
            device=self.device,
            gpus=self.gpus,
            epochs=self.epochs,
            steps=self.steps,
            folds=self.folds,
            network=self.network,
            pretrained=self.pretrained,
            settings=parse_settings(self.settings or []),
            plan=self.plan,
        )


NO_TRAINING_OPTIONS = TrainingOptions()
