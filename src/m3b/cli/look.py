"""`m3b look`: how a folder would be read, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.dataset_options import NO_DATASET_OPTIONS, DatasetOptions
from m3b.cli.mirror_options import NO_MIRROR_OPTIONS, MirrorOptions
from m3b.cli.option_groups import with_option_groups
from m3b.cli.output import echo, print_json, require_folder, require_writable_target
from m3b.cli.run import JsonOption
from m3b.errors import DataError, UsageError


@with_option_groups
def look(
    folder: Annotated[
        str, typer.Argument(help="A data folder, or the address of a remote one (s3://, gs://, ssh://).")
    ],
    request: Annotated[
        str, typer.Argument(help="What the model should do, as for `m3b run`. Without it: what the folder holds.")
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            help="diagnosis, segmentation, detection, report, grading, regression or survival. Default: what the request says."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the best manifest here, as JSON to edit.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write an HTML page here with example images, masks and boxes. It shows patients."),
    ] = None,
    dataset: DatasetOptions = NO_DATASET_OPTIONS,
    remote: MirrorOptions = NO_MIRROR_OPTIONS,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how a folder would be read for a request: cases, classes, patients, split, and exclusions.

    Without a request: what all files hold, and how each task could be read from them.
    """

    from m3b.isolation.untrusted import TemporaryFolder
    from m3b.remote.addresses import is_remote
    from m3b.run import dataset_preview
    from m3b.run.overrides import parse_overrides
    from m3b.writing import write_text_atomically

    if not is_remote(folder) and not Path(folder).exists() and request.strip() and Path(request).is_dir():
        raise UsageError(f"{folder} is no folder, and {request} is one: the folder comes first, then the request.")
    for path, option in ((out, "-o"), (page, "--page")):
        require_writable_target(path, option, force=force)
    has_no_request = not request.strip() and not task and dataset.manifest is None
    if has_no_request and (page is not None or out is not None):
        raise UsageError("-o and --page need one manifest: say what the model should do, or give --task.")
    local_folder = Path(remote.localize(folder))
    require_folder(local_folder)
    if has_no_request:
        _print_overview(local_folder, folder, json=json)
        return
    overrides = parse_overrides(dataset.manifest, dataset.overrides)
    with TemporaryFolder("look") as scratch:
        try:
            preview = dataset_preview.preview_dataset(
                local_folder.resolve(), request, scratch, task=task, overrides=overrides, with_examples=page is not None
            )
        except DataError as error:
            raise UsageError(str(error)) from error
    if page is not None:
        write_text_atomically(page, preview.render_page(), errors="replace")
    if out is not None and preview.proposals:
        write_text_atomically(out, preview.manifest_to_json())
    if json:
        print_json(preview.to_json())
    else:
        echo("\n".join(preview.format_lines()))
    if preview.insufficient:
        raise typer.Exit(2 if preview.decision.kind == "ask" else 1)


def _print_overview(folder: Path, name: str, *, json: bool) -> None:
    """Print what a folder holds, without a request."""
    from m3b.agents.proposal_text import format_survey_lines
    from m3b.isolation.untrusted import TemporaryFolder
    from m3b.run.dataset_preview import survey_dataset

    with TemporaryFolder("look") as scratch:
        try:
            folder_overview = survey_dataset(folder.resolve(), scratch)
        except DataError as error:
            raise UsageError(str(error)) from error
    if json:
        overview = folder_overview.model_dump(mode="json")
        overview["proposals"] = overview.pop("readings")
        print_json(overview)
        return
    if not folder_overview.lines:
        raise UsageError(f"{name} holds no images, tables or annotations.")
    echo("\n".join(format_survey_lines(folder_overview)))
    echo(f'how one of them would be read: m3b look {name} "what the model should do"')
