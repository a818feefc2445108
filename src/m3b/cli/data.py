"""`m3b data`: cards, generated and downloaded data, audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.bench.datasets.registry import DATASET_NAMES
from m3b.cli import shell_completion
from m3b.cli.mirror_options import NO_MIRROR_OPTIONS, MirrorOptions, describe_mirroring
from m3b.cli.option_groups import with_option_groups
from m3b.cli.output import (
    echo,
    format_table,
    print_error,
    print_json,
    refuse_overwriting,
    require_folder,
    show_transfer_progress,
)
from m3b.cli.run import ForceOption, JsonOption
from m3b.errors import UsageError


def croissant(
    source: Annotated[
        str,
        typer.Argument(
            metavar="manifest",
            help="A manifest file from `m3b look -o`, or a run (its id or folder, or `last`) with an accepted index.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the Croissant file.")],
    data: Annotated[
        Path | None, typer.Option(help="The data folder of the manifest. Default: that of the run.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a manifest of a folder as a Croissant file (MLCommons' format for data sets)."""
    import json as js

    from m3b.isolation.reader import inprocess
    from m3b.run.accepted_manifest import load_accepted_manifest
    from m3b.run.folder import RunFolder
    from m3b.run.overrides import parse_overrides
    from m3b.tools.dataset_jobs import CROISSANT_JOB, CroissantRequest
    from m3b.writing import write_text_atomically

    refuse_overwriting([out], force=force)
    if data is not None:
        require_folder(data)
    if Path(source).expanduser().is_file():
        overrides = parse_overrides(Path(source), None)
        if data is None or overrides is None or overrides.manifest is None:
            raise UsageError(f"Name the data folder of {source} with --data.")
        manifest, root = overrides.manifest, data
    else:
        manifest, run_data_folder = load_accepted_manifest(RunFolder.open(source))
        root = data or run_data_folder
    root = root.resolve()
    with inprocess.open_reader([root]) as reader:
        document = reader.run_job(CROISSANT_JOB, CroissantRequest(manifest, root, root.name))
    write_text_atomically(out, js.dumps(document, indent=1, ensure_ascii=False) + "\n")
    typer.echo(str(out))


app = typer.Typer(
    help="Data cards, generated and downloaded data, audits.", no_args_is_help=True, rich_markup_mode=None
)
TOY_SET_PATIENTS = {"chest": 240, "volumes": 240}
"""Name of a small data set to try things with -> its number of patients."""


@app.command("list")
def list_cards(
    data: Annotated[list[str] | None, typer.Option(help="Your own folders or cards, listed too.")] = None,
    json: JsonOption = False,
) -> None:
    """List the data cards that agents can choose from."""
    from m3b.workspace import Workspace

    cards = list(Workspace(data=data or []).cards.values())
    if json:
        rows = [{"name": c.name, "task": c.task, "modality": c.modality, "anatomy": c.anatomy, "metric": c.metric,
                 "path": str(c.path) if c.path else None} for c in cards]  # fmt: skip
        print_json({"cards": rows})
        return
    lines = [[c.name, c.task, c.modality, c.anatomy, "here" if c.path else ""] for c in cards]
    echo(format_table(["name", "task", "modality", "anatomy", "data"], lines))


@app.command()
def make(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of: {', '.join((*TOY_SET_PATIENTS, *DATASET_NAMES))}.",
            autocompletion=shell_completion.complete_one_of(*TOY_SET_PATIENTS, *DATASET_NAMES),
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    cases: Annotated[
        int | None,
        typer.Option(help="Number of patients, or of images if the set names none. Default: what suits the set."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 0,
    layout: Annotated[
        str, typer.Option(help="Layout of a benchmark set: card, or official if the publisher's differs.")
    ] = "card",
    json: JsonOption = False,
) -> None:
    """Generate a small data set that looks like raw data: invented images with real faults."""
    from m3b.data import synthetic

    if name in TOY_SET_PATIENTS:
        make_toy_set = {"chest": synthetic.make_chest, "volumes": synthetic.make_volumes}[name]
        created_folder = make_toy_set(folder, patients=TOY_SET_PATIENTS[name] if cases is None else cases, seed=seed)
        print_json({"folder": str(created_folder)}) if json else echo(str(created_folder))
        return
    from m3b.bench.datasets import get_dataset

    try:
        dataset_spec = get_dataset(name)
    except UsageError:
        raise UsageError(
            f"There is no generator {name!r}; choose one of {', '.join((*TOY_SET_PATIENTS, *DATASET_NAMES))}."
        ) from None
    generated = dataset_spec.make(folder, patients=cases, seed=seed, layout=layout)
    if json:
        print_json({"name": dataset_spec.name, "folder": str(folder), "layout": layout, "cases": generated.cases,
                    "patients": generated.patients or None, "metric": dataset_spec.metric, "ceiling": round(generated.ceiling, 4),
                    "odd": list(generated.planted_faults)})  # fmt: skip
        return
    echo(str(folder))
    amount = f"{generated.cases} cases of {generated.patients} patients"
    if not generated.patients:
        amount = f"{generated.cases} images that name no patients"
    echo(f"{amount}; {dataset_spec.metric} of a perfect reader {generated.ceiling:.2f}", err=True)
    count = generated.patients or generated.cases
    if cases is not None and count != cases:
        echo(f"--cases {cases} became {count}: shares of classes are rounded, and each class has a few", err=True)
    echo(f"planted faults: {'; '.join(generated.planted_faults)}", err=True)


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of: {', '.join(DATASET_NAMES)}.", autocompletion=shell_completion.complete_one_of(*DATASET_NAMES)
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Where to unpack it. Call again to continue after an interruption.")],
    json: JsonOption = False,
) -> None:
    """Download a benchmark set that is openly available; for others, say where to get it and under which terms."""
    from m3b.bench.datasets.download import fetch as download

    with show_transfer_progress() as progress:
        messages = download(name, folder, progress=progress)
    if json:
        print_json({"name": name, "folder": str(folder), "said": messages})
        return
    for line in messages:
        echo(line, err=True)
    echo(str(folder))


@app.command()
@with_option_groups
def mirror(
    url: Annotated[
        str, typer.Argument(help="s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, ssh://HOST/FOLDER or file:///FOLDER.")
    ],
    remote: MirrorOptions = NO_MIRROR_OPTIONS,
    json: JsonOption = False,
) -> None:
    """Mirror a remote folder, as `--data URL` does, and print the local one. Call again to continue or to update."""
    mirrored = remote.fetch(url)
    if json:
        print_json({"folder": str(mirrored.path), "fetched": mirrored.n_fetched, "notes": mirrored.notes,
                    "origin": mirrored.origin.to_json()})  # fmt: skip
        return
    echo(describe_mirroring(mirrored), err=True)
    echo(str(mirrored.path))


@app.command()
@with_option_groups
def mirrors(
    remove: Annotated[
        list[str] | None, typer.Option(metavar="SNAPSHOT", help="Remove a snapshot from the disk. Repeatable.")
    ] = None,
    remote: MirrorOptions = NO_MIRROR_OPTIONS,
    json: JsonOption = False,
) -> None:
    """List the folders that were mirrored, or remove some."""
    import time

    from m3b.remote.origin import format_bytes
    from m3b.remote.store import MirrorStore, default_store

    store_folder = (remote.mirror or default_store()).expanduser().absolute()
    if not store_folder.is_dir() and not remove:  # listing makes no store
        print_json({"mirrors": []}) if json else echo(_describe_empty_store(store_folder))
        return
    store = MirrorStore(store_folder)
    for snapshot in remove or []:
        free_bytes = store.remove_snapshot(snapshot)
        echo(f"snapshot {snapshot} removed: {format_bytes(free_bytes)} free", err=True)
    origins, problems = store.list_origins()
    store.close()
    for problem in problems:
        print_error(problem)
    if json:
        print_json({"mirrors": [{"folder": str(folder), **origin.to_json()} for folder, origin in origins]})
        return
    if not origins:
        if not problems:
            echo(_describe_empty_store(store_folder))
        return
    lines = [
        [
            origin.snapshot, time.strftime("%Y-%m-%d %H:%M", time.localtime(origin.mirrored_at)), f"{origin.n_files:,}",
            format_bytes(origin.n_bytes), origin.url,
        ]
        for _, origin in origins
    ]  # fmt: skip
    echo(format_table(["snapshot", "mirrored", "files", "size", "address"], lines))


def _describe_empty_store(folder: Path) -> str:
    return f"Nothing is mirrored in {folder} yet. `m3b data mirror ADDRESS` fetches a remote folder."


@app.command()
def audit(
    folder: Annotated[
        str, typer.Argument(help="A folder that holds Datapath/train.json and so on, or a run: folder, id or `last`.")
    ],
    seconds: Annotated[float, typer.Option(help="How long to open images.", min=0)] = 600.0,
    task: Annotated[
        str,
        typer.Option(
            help="diagnosis, segmentation, detection, report, grading, regression or survival. Default: found from the index.",
            autocompletion=shell_completion.complete_tasks,
        ),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Audit an index: unreadable images, masks that do not fit, copies, patients on both sides, class counts."""
    from m3b.agents.checks.worker_jobs import audit_in_reader
    from m3b.data.index import TEST, TRAIN, guess_task
    from m3b.data.kinds import names
    from m3b.run.folder import RunFolder

    if task and task not in names():
        raise UsageError(f"There is no task {task!r}; choose one of {', '.join(names())}.")
    base_folder = Path(folder) if Path(folder).is_dir() else RunFolder.open(folder).path
    candidates = (base_folder / "work", base_folder / "locked")  # during a run, the test cases are not in work/
    index_folder = next((candidate for candidate in candidates if (candidate / TEST).is_file()), base_folder)
    if missing := [name for name in (TRAIN, TEST) if not (index_folder / name).is_file()]:
        raise UsageError(
            f"{folder} holds no index: there is no {missing[0]}. A run makes one of raw data, and docs/data.md says how to "
            f"write one; `m3b data survey {folder}` looks at data that has none."
        )
    audit_report = audit_in_reader(index_folder, task or guess_task(index_folder), seconds)
    if json:
        print_json(audit_report.to_json())
    else:
        echo(audit_report.summary())
        for finding in audit_report.findings:
            echo(f"{finding.severity}: {finding.agent_message}")
    raise typer.Exit(1 if audit_report.of("reject") or audit_report.of("fix") else 0)


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(help="A folder with raw data.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write the card. Default: standard output.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a data card for a folder, to be completed by hand."""
    import json as js

    from m3b.data.cards import card_for_folder

    if out is not None:
        if out.is_dir():
            raise UsageError(f"-o {out}: this is a folder; name a file, e.g. {out / 'card.json'}.")
        refuse_overwriting([out], force=force)
    data_card = card_for_folder(folder)
    text = js.dumps(
        {"name": data_card.name, "description": data_card.description, "path": str(data_card.path),
        "task": "diagnosis", "modality": "",
         "anatomy": "", "dimension": 2, "metric": "auroc", "acceptable": None, "patient_key": "", "classes": []},
        indent=1, ensure_ascii=False,
    )  # fmt: skip
    if out is None:
        echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        echo(str(out))


@app.command()
def survey(
    folder: Annotated[Path, typer.Argument(help="A folder with raw data.")],
    seconds: Annotated[float, typer.Option(help="Maximum time; the output says what was skipped.", min=1)] = 120.0,
    json: JsonOption = False,
) -> None:
    """Survey a folder: groups of files, their contents, tables, and what belongs together."""
    from m3b.dataset.survey.render import render
    from m3b.isolation.reader.inprocess import open_reader
    from m3b.tools.dataset_jobs import SURVEY_JOB, SurveyRequest

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder that can be read. Name a folder of data.")
    with open_reader([folder]) as reader:
        folder_survey = reader.run_job(
            SURVEY_JOB, SurveyRequest(folder.resolve(), seconds), stall_timeout_s=seconds + 600
        )
    echo(folder_survey.model_dump_json(indent=2) if json else render(folder_survey))


@app.command()
def extend(
    run: Annotated[
        str,
        typer.Argument(
            help="A finished run: its id or folder, or `last`.", autocompletion=shell_completion.complete_runs
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(help="The run's data folder with the cases that came later, the old ones at the same paths."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write the manifest of the larger data set.")],
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Read a folder that has grown for a new run that trains on what came later and keeps the run's test cases."""
    from m3b.run.extending import extend_data
    from m3b.writing import write_text_atomically

    refuse_overwriting([out], force=force)
    extended = extend_data(run, folder)
    text = extended.manifest.model_dump_json(indent=1, exclude_defaults=True)
    write_text_atomically(out, text + "\n")
    if json:
        print_json({"manifest": str(out), **extended.to_json()})
        return
    for line in extended.describe():
        echo(line, err=True)
    echo(str(out))


app.command()(croissant)
