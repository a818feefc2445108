"""`m3b models`: pretrained starting points, what is known of them and which are here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli import completing
from m3b.cli.run import Force, Json
from m3b.cli.show import echo, print_json, spare, table, transfer
from m3b.errors import WrongUse

app = typer.Typer(
    help="Pretrained networks to start from: `network.pretrained=NAME` in a plan.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_starts(
    task: Annotated[
        str | None, typer.Option(help="Only those that this task's template takes.", autocompletion=completing.tasks)
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Only those whose weights are on this machine.")] = False,
    json: Json = False,
) -> None:
    """List the pretrained networks of the registry, with licence, source and whether their weights are here."""
    from m3b.models.starts import entries, store_dir, stored

    supported_tasks = sorted({name for entry in entries() for name in entry.tasks})
    if task is not None and task not in supported_tasks:
        raise WrongUse(
            f"No template for {task!r} starts from pretrained weights; those of {', '.join(supported_tasks)} do."
        )
    matching_entries = [entry for entry in entries() if task is None or task in entry.tasks]
    entries_and_weights = [(entry, stored(entry.name)) for entry in matching_entries]
    shown_entries = [(entry, weights) for entry, weights in entries_and_weights if weights or not here]
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
    echo(table(["name", "family", "dims", "tasks", "licence", "here"], table_rows))
    echo(f"weights lie in {store_dir()}; `m3b models fetch NAME --from FOLDER` puts them there")


Confined = Annotated[str, typer.Option(help="auto, bubblewrap, landlock or off.", autocompletion=completing.sandboxes)]


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="An entry of `m3b models list`.")],
    source: Annotated[
        str, typer.Option("--from", help="A folder with the publisher's files, or an address below which they lie.")
    ],
    force: Annotated[bool, typer.Option("--force", help="In place of weights that are there.")] = False,
    sandbox: Confined = "auto",
    json: Json = False,
) -> None:
    """Take an entry's weights from a folder or address of yours; compared with published digests, pickles converted."""
    from m3b.models.starts.fetching import fetch as take
    from m3b.sandbox import choose

    with transfer() as progress:
        folder, conversion = take(name, source, choose(sandbox), force=force, progress=progress)
    if json:
        print_json({"name": name, "folder": str(folder), "tensors": conversion.tensors, "read": conversion.how})
        return
    echo(f"{conversion.tensors} tensors of {name} (read: {conversion.how}) in {folder}")
    echo(f"start from them with `plan.py --set network.pretrained={name}`")


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="Weights: .pt, .pth, .bin, .ckpt, .model or .npz.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder; model.safetensors is written there.")],
    name: Annotated[
        str | None, typer.Option("--entry", help="The entry of the registry that these weights are in the layout of.")
    ] = None,
    force: Force = False,
    sandbox: Confined = "auto",
    json: Json = False,
) -> None:
    """Write safetensors from pickled weights, in the sandbox: m3b itself never opens a pickle."""
    from m3b.models.starts import entry
    from m3b.models.starts.converting import convert as turn
    from m3b.models.starts.store import WEIGHTS_FILE, describe
    from m3b.sandbox import choose

    registry_entry = entry(name) if name else None
    spare([out / WEIGHTS_FILE], force=force)
    conversion = turn(file, out, choose(sandbox))
    if registry_entry:
        describe(
            out,
            {"entry": registry_entry.name, "file": file.name, "read": conversion.how, "tensors": conversion.tensors},
        )
    if json:
        print_json({"file": str(conversion.file), "tensors": conversion.tensors, "read": conversion.how})
        return
    echo(f"{conversion.tensors} tensors (read: {conversion.how}) in {conversion.file}")
