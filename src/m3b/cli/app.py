"""All commands by name. The code of a command is imported when it runs, so that `m3b --help` is quick."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from m3b import __version__
from m3b.cli import (
    bench,
    config,
    data,
    delivered_models,
    doctor,
    interactive,
    look,
    plan,
    predict,
    pretrained,
    run,
    runs,
    serve,
    show,
    teach,
)

COMMAND_OF_SYNONYM = {
    "fit": "run",
    "build": "run",
    "new": "run",
    "init": "look",
    "inspect": "look",
    "infer": "predict",
    "inference": "predict",
    "test": "score",
    "evaluate": "score",
    "calibrate": "recalibrate",
    "list": "runs",
    "ls": "runs",
    "delete": "runs rm",
    "rm": "runs rm",
    "status": "show",
    "continue": "resume",
    "settings": "config",
    "set": "config",
}
"""Words that other programs have for a command -> the command of m3b."""


class _Commands(TyperGroup):
    """The commands of m3b; those that other programs call differently are named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and (command := COMMAND_OF_SYNONYM.get(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean `m3b {command}`?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="m3b",
    cls=_Commands,
    help="One request in, one verified medical-imaging model out.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"m3b {__version__}")
        raise typer.Exit


@app.callback()
def _callback(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """One request in, one verified medical-imaging model out."""


app.command("demo")(run.demo)
app.command("look")(look.look)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("resume")(run.resume)
app.command("train")(run.train)
app.add_typer(runs.app, name="runs")
app.command("show")(show.show)
app.command("report")(runs.report)
app.command("verify")(runs.verify)
app.command("predict")(predict.predict)
app.command("segment")(interactive.segment)
app.command("score")(delivered_models.score)
app.command("recalibrate")(delivered_models.recalibrate)
app.command("export")(delivered_models.export)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.command("mcp")(serve.mcp)
app.command("serve")(serve.serve)
app.command("view")(serve.view)
app.add_typer(pretrained.app, name="models")
app.add_typer(interactive.app, name="interactive")
interactive.app.command("trajectories")(teach.make_expert_trajectories)
app.add_typer(teach.app, name="teach")
app.command("trajectories")(teach.make_role_trajectories)
app.command("config")(config.config)
app.command("doctor")(doctor.doctor)
