"""`m3b data croissant`: a reading as a Croissant file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.run import Force
from m3b.cli.show import spare
from m3b.errors import WrongUse


def croissant(
    spec: Annotated[
        Path, typer.Argument(help="A reading: a file that `m3b look -o` wrote, or a run's index_spec.json.")
    ],
    data: Annotated[Path, typer.Option(help="The data folder that it reads.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the Croissant file.")],
    force: Force = False,
) -> None:
    """Write a reading of a folder as a Croissant file (MLCommons' format for data sets)."""
    import json as js

    from m3b.data.spec.croissant import written
    from m3b.run.given import given_from
    from m3b.writing import replace_text

    spare([out], force=force)
    given = given_from(spec, None)
    if not data.is_dir() or given is None or given.index is None:
        raise WrongUse(f"{data} is no folder.")
    replace_text(
        out, js.dumps(written(given.index, data.resolve(), data.resolve().name), indent=1, ensure_ascii=False) + "\n"
    )
    typer.echo(str(out))
