"""`m3b data`: cards, generated and downloaded data, audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.bench.datasets.registry import NAMES
from m3b.cli import completing
from m3b.cli.croissant import croissant
from m3b.cli.run import Force, Json
from m3b.cli.show import echo, print_json, spare, table, transfer
from m3b.errors import WrongUse

app = typer.Typer(
    help="Data cards, generated and downloaded data, audits.", no_args_is_help=True, rich_markup_mode=None
)
MAKERS = {"chest": 240, "volumes": 240}
"""Small sets for trying things, and how many patients they get."""


@app.command("list")
def list_cards(
    data: Annotated[list[str] | None, typer.Option(help="Your own folders or cards, listed too.")] = None,
    json: Json = False,
) -> None:
    """List the data cards that agents are offered."""
    from m3b.workspace import Workspace

    cards = list(Workspace(data=data or []).cards.values())
    if json:
        rows = [{"name": c.name, "task": c.task, "modality": c.modality, "anatomy": c.anatomy, "metric": c.metric,
                 "path": str(c.path) if c.path else None} for c in cards]  # fmt: skip
        print_json({"cards": rows})
        return
    lines = [[c.name, c.task, c.modality, c.anatomy, "here" if c.path else ""] for c in cards]
    echo(table(["name", "task", "modality", "anatomy", "data"], lines))


@app.command()
def make(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of: {', '.join((*MAKERS, *NAMES))}.", autocompletion=completing.one_of(*MAKERS, *NAMES)
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    cases: Annotated[int | None, typer.Option(help="How many patients. Default: what suits the set.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same data.")] = 0,
    layout: Annotated[
        str, typer.Option(help="Of a benchmark set: card, or official where the publisher's differs.")
    ] = "card",
    json: Json = False,
) -> None:
    """Generate a small data set that looks raw: invented images, real faults."""
    from m3b.data import synthetic

    if name in MAKERS:
        maker = {"chest": synthetic.make_chest, "volumes": synthetic.make_volumes}[name]
        made = maker(folder, patients=MAKERS[name] if cases is None else cases, seed=seed)
        print_json({"folder": str(made)}) if json else echo(str(made))
        return
    from m3b.bench.datasets import dataset

    try:
        spec = dataset(name)
    except WrongUse:
        raise WrongUse(f"There is no generator {name!r}; choose one of {', '.join((*MAKERS, *NAMES))}.") from None
    drawn = spec.make(folder, patients=cases, seed=seed, layout=layout)
    if json:
        print_json({"name": spec.name, "folder": str(folder), "layout": layout, "cases": drawn.cases,
                    "patients": drawn.patients or None, "metric": spec.metric, "ceiling": round(drawn.ceiling, 4),
                    "odd": list(drawn.odd)})  # fmt: skip
        return
    echo(str(folder))
    echo(f"{drawn.cases} cases; {spec.metric} of a perfect reader {drawn.ceiling:.2f}", err=True)
    echo(f"planted faults: {'; '.join(drawn.odd)}", err=True)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(NAMES)}.", autocompletion=completing.one_of(*NAMES))],
    folder: Annotated[Path, typer.Argument(help="Where to unpack it. Call again to go on after a break.")],
    json: Json = False,
) -> None:
    """Download a benchmark set that is openly available; for the others, say where it lies and under which terms."""
    from m3b.bench.datasets.fetching import fetch as download

    with transfer() as progress:
        said = download(name, folder, progress=progress)
    if json:
        print_json({"name": name, "folder": str(folder), "said": said})
        return
    for line in said:
        echo(line, err=True)
    echo(str(folder))


@app.command()
def audit(
    folder: Annotated[
        str, typer.Argument(help="A folder that holds Datapath/train.json and so on, or a run: folder, id or `last`.")
    ],
    seconds: Annotated[float, typer.Option(help="How long to open images.", min=0)] = 600.0,
    task: Annotated[
        str,
        typer.Option(
            help="diagnosis, segmentation, detection, report, grading, regression or survival. Default: told by the index.",
            autocompletion=completing.tasks,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Audit an index: unreadable images, masks that do not fit, copies, patients on both sides, class counts."""
    from m3b.agents.checks.inside import audited
    from m3b.data.index import TEST, TRAIN, guess_task
    from m3b.data.kinds import names
    from m3b.run.folder import Run

    if task and task not in names():
        raise WrongUse(f"There is no task {task!r}; choose one of {', '.join(names())}.")
    place = Path(folder) if Path(folder).is_dir() else Run.open(folder).folder
    parts = (place / "work", place / "locked")  # a run at work keeps its test cases out of work/
    work = next((part for part in parts if (part / TEST).is_file()), place)
    if missing := [name for name in (TRAIN, TEST) if not (work / name).is_file()]:
        raise WrongUse(
            f"{folder} holds no index: there is no {missing[0]}. A run makes one of raw data, and docs/data.md says how to "
            f"write one; `m3b data survey {folder}` looks at data that has none."
        )
    found = audited(work, task or guess_task(work), seconds)
    if json:
        print_json(found.to_json())
    else:
        echo(found.summary())
        for finding in found.findings:
            echo(f"{finding.weight}: {finding.message}")
    raise typer.Exit(1 if found.of("reject") or found.of("fix") else 0)


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(help="A folder with raw data.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write the card. Default: standard output.")
    ] = None,
    force: Force = False,
) -> None:
    """Write a data card for a folder, to be completed by hand."""
    import json as js

    from m3b.data.cards import card_for_folder

    if out is not None:
        if out.is_dir():
            raise WrongUse(f"-o {out}: this is a folder; name a file, e.g. {out / 'card.json'}.")
        spare([out], force=force)
    made = card_for_folder(folder)
    text = js.dumps(
        {"name": made.name, "description": made.description, "path": str(made.path), "task": "diagnosis", "modality": "",
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
    folder: Annotated[Path, typer.Argument(help="A folder of data that nobody prepared.")],
    seconds: Annotated[float, typer.Option(help="What it may take; what is left out is said.", min=1)] = 120.0,
    json: Json = False,
) -> None:
    """Look at a folder: groups of files, what they hold, tables, and what belongs together."""
    from m3b.data.survey.render import render
    from m3b.reader.outside import reading
    from m3b.tools.surveying import SURVEY, ToSurvey

    if not folder.is_dir():
        raise WrongUse(f"{folder} is no folder that can be read. Name a folder of data.")
    with reading([folder]) as reader:
        found = reader.ask(SURVEY, ToSurvey(folder.resolve(), seconds), patience_s=seconds + 600)
    echo(found.model_dump_json(indent=2) if json else render(found))


app.command()(croissant)
