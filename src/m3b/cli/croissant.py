"""`m3b data croissant`: a reading, or that of a run, as a Croissant file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.run import ForceOption
from m3b.cli.show import refuse_overwriting, require_folder
from m3b.errors import UsageError


def croissant(
    reading: Annotated[
        str,
        typer.Argument(
            help="A reading: a file that `m3b look -o` wrote; or a run (its id or folder, or `last`) whose index was accepted."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the Croissant file.")],
    data: Annotated[Path | None, typer.Option(help="The data folder that it reads; of a run, its own.")] = None,
    force: ForceOption = False,
) -> None:
    """Write a reading of a folder as a Croissant file (MLCommons' format for data sets)."""
    import json as js

    from m3b.reader import outside
    from m3b.run.accepted_reading import load_accepted_manifest
    from m3b.run.folder import RunFolder
    from m3b.run.overrides import parse_overrides
    from m3b.tools.surveying import CROISSANT_JOB, CroissantRequest
    from m3b.writing import write_text_atomically

    refuse_overwriting([out], force=force)
    if data is not None:
        require_folder(data)
    if Path(reading).expanduser().is_file():
        overrides = parse_overrides(Path(reading), None)
        if data is None or overrides is None or overrides.index is None:
            raise UsageError(f"Name the folder that {reading} reads with --data.")
        manifest, root = overrides.index, data
    else:
        manifest, run_data_folder = load_accepted_manifest(RunFolder.open(reading))
        root = data or run_data_folder
    root = root.resolve()
    with outside.open_reader([root]) as reader:
        document = reader.run_job(CROISSANT_JOB, CroissantRequest(manifest, root, root.name))
    write_text_atomically(out, js.dumps(document, indent=1, ensure_ascii=False) + "\n")
    typer.echo(str(out))
