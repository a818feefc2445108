"""`m3b plan`: the plan of a training, for this machine or another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli import shell_completion
from m3b.cli.output import echo, print_json, require_folder, require_writable_target
from m3b.cli.run import JsonOption
from m3b.errors import DataError, UsageError


def plan(
    source: Annotated[Path, typer.Argument(help="A data folder, or a training project (a run's work/).")],
    request: Annotated[
        str, typer.Argument(help="For a data folder: what the model should do, as for `m3b run`; or give --task.")
    ] = "",
    task: Annotated[str, typer.Option(help="The task, if no request says it.")] = "",
    device: Annotated[
        str,
        typer.Option(help="auto, cpu, cuda, or a GPU of another machine by its memory: cuda:80GB, cuda:16GB:fp16."),
    ] = "auto",
    gpus: Annotated[int, typer.Option(min=0, help="Number of GPUs; 0: those of this machine.")] = 0,
    minutes: Annotated[float, typer.Option(help="Minutes of training.")] = 10.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of plan.json; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write plan.json here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    sandbox: Annotated[
        str, typer.Option(help="auto, bubblewrap, landlock or off.", autocompletion=shell_completion.complete_sandboxes)
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Print the plan of a training with its time and memory. Nothing is trained, and only --out is written.

    For another machine nothing is measured: memory and time are estimates.
    """
    from m3b.isolation.sandbox import choose_sandbox
    from m3b.run.dry_run import PlanOptions, make_dry_plan
    from m3b.writing import write_text_atomically

    require_folder(source)
    if not minutes > 0:
        raise UsageError(f"--minutes is {minutes:g}; it must be more than 0.")
    require_writable_target(out, "-o", force=force)
    options = PlanOptions(device, gpus, minutes, tuple(settings or ()))
    try:
        dry_run = make_dry_plan(source, options, choose_sandbox(sandbox), request=request, task=task)
    except DataError as error:
        raise UsageError(str(error)) from error
    if out is not None:
        import json as json_module

        write_text_atomically(out, json_module.dumps(dry_run.plan, indent=2, ensure_ascii=False) + "\n")
    if json:
        print_json({"said": dry_run.output.splitlines(), "plan": dry_run.plan})
    else:
        echo(dry_run.output)
