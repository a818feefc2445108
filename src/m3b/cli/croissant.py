"""`m3b data croissant`: a reading, or that of a run, as a Croissant file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.run import Force
from m3b.cli.show import demand_folder, spare
from m3b.errors import WrongUse


def croissant(
    reading: Annotated[
        str,
        typer.Argument(
            help="A reading: a file that `m3b look -o` wrote; or a run (its id or folder, or `last`) whose index was accepted."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the Croissant file.")],
    data: Annotated[Path | None, typer.Option(help="The data folder that it reads; of a run, its own.")] = None,
    force: Force = False,
) -> None:
    """Write a reading of a folder as a Croissant file (MLCommons' format for data sets)."""
    import json as js

    from m3b.reader import outside
    from m3b.run.accepted_reading import accepted_reading
    from m3b.run.folder import Run
    from m3b.run.given import given_from
    from m3b.tools.surveying import CROISSANT, ToWrite
    from m3b.writing import replace_text

    spare([out], force=force)
    if data is not None:
        demand_folder(data)
    if Path(reading).expanduser().is_file():
        overrides = given_from(Path(reading), None)
        if data is None or overrides is None or overrides.index is None:
            raise WrongUse(f"Name the folder that {reading} reads with --data.")
        manifest, root = overrides.index, data
    else:
        manifest, run_data_folder = accepted_reading(Run.open(reading))
        root = data or run_data_folder
    root = root.resolve()
    with outside.reading([root]) as reader:
        document = reader.ask(CROISSANT, ToWrite(manifest, root, root.name))
    replace_text(out, js.dumps(document, indent=1, ensure_ascii=False) + "\n")
    typer.echo(str(out))
