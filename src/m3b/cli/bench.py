"""`m3b bench`: sweeps over systems, models and tasks, their scores and tables."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from m3b.cli.output import echo, format_table, inert, print_json, refuse_overwriting
from m3b.cli.run import ForceOption, JsonOption, OfflineOption, QuietOption
from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.engines import Engine

app = typer.Typer(help="M3Bench: measure models and agent systems.", no_args_is_help=True, rich_markup_mode=None)
SweepFolderArgument = Annotated[Path, typer.Argument(help="The folder of a sweep.")]


@app.command()
def run(
    llm: Annotated[list[str] | None, typer.Option(help="provider:model, or rules. Repeatable. Default: rules.")] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Ids, data sets, families or variants. Repeatable. Default: the fourteen plain requests."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Repetitions of every cell.", min=1)] = 1,
    system: Annotated[
        list[str] | None,
        typer.Option(help="m3b, an ablation, role:NAME, an external system, or command:PROGRAM. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The sweep's folder; call again to continue.")] = Path(
        "bench"
    ),
    jobs: Annotated[
        int | None,
        typer.Option(help="Cells at a time. Default: 1 on this machine, what the cluster can run elsewhere.", min=1),
    ] = None,
    engine: Annotated[str, typer.Option(help="local (this machine), slurm or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster. Default: a local one.")] = None,
    cpus: Annotated[int, typer.Option(help="Processors of one cell on a cluster.", min=1)] = 2,
    gpus: Annotated[int, typer.Option(help="GPUs of one cell on a cluster.", min=0)] = 0,
    memory: Annotated[float, typer.Option(help="GiB of one cell on a cluster; 0 leaves it to the cluster.", min=0)] = 0,
    partition: Annotated[str, typer.Option(help="Partition of Slurm, or custom resource of nodes of Ray.")] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER with the real data of a set. Repeatable. Others are stand-ins."),
    ] = None,
    field: Annotated[
        Path | None,
        typer.Option(
            help="Folder with data sets and EXPECTED.json: their tasks, or those that --tasks names by folder."
        ),
    ] = None,
    patients: Annotated[int | None, typer.Option(help="Patients of each stand-in, to try things quickly.")] = None,
    train_minutes: Annotated[
        float | None,
        typer.Option(help="Minutes that training may take. Default: what each stand-in needs; 60 on real data."),
    ] = None,
    max_actions: Annotated[int, typer.Option(help="Tool calls of a run.")] = 100,
    max_tokens: Annotated[int | None, typer.Option(help="Input over all requests, plus output.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars of a run.")] = None,
    cell_minutes: Annotated[float | None, typer.Option(help="A cell that takes longer is ended.", min=0)] = None,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap, landlock or off.")] = "auto",
    offline: OfflineOption = False,
    retry: Annotated[bool, typer.Option("--retry", help="Run cells again that failed for external reasons.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Run every cell that has no result yet. Ctrl-C stops; the same command continues.

    Exit status: 0 every cell has a result, 1 some have none (or were stopped), 2 wrong use.
    """
    from m3b.bench.results_store import read_rows
    from m3b.bench.sweep import RETRYABLE_KINDS, SweepPlan, run_sweep
    from m3b.bench.tasks import choose_tasks, load_field_tasks
    from m3b.engines import Resources

    _enforce_offline(offline, llm or ["rules"], engine)
    limits: dict[str, Any] = {"max_actions": max_actions, "max_tokens": max_tokens, "max_cost": max_cost}
    plan = SweepPlan(
        tasks=choose_tasks(tasks or [])
        if field is None
        else load_field_tasks(field, tasks or [], partial(typer.echo, err=True)),
        models=tuple(dict.fromkeys(llm or ["rules"])),
        systems=tuple(dict.fromkeys(system or ["m3b"])),
        runs=runs,
        options={"sandbox": sandbox, **limits} | ({} if train_minutes is None else {"train_minutes": train_minutes}),
        real=_parse_real_data(data or []),
        patients=patients,
    )
    sweep_engine = _make_engine(engine, jobs, address, plan.models)
    resources = Resources(cpus, gpus, memory, cell_minutes or 0.0, partition)
    max_jobs = (jobs or 1) if engine == "local" else jobs
    on_event = (lambda event, row: None) if quiet else _ProgressPrinter(len(plan))
    try:
        with _interrupt_on_signals():
            run_sweep(plan, out, sweep_engine, resources=resources, max_jobs=max_jobs, retry=retry, on_event=on_event)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. The same command goes on; results so far: m3b bench table {out}", err=True)
        raise typer.Exit(1) from None
    rows = read_rows(out)
    typer.echo(f"{sum(row['ok'] for row in rows)} of {len(rows)} cells succeeded; m3b bench table {out}")
    raise typer.Exit(1 if any(row["kind"] in RETRYABLE_KINDS for row in rows) else 0)


def _enforce_offline(offline: bool, models: list[str], engine: str) -> None:
    """Forbid remote models to this process and to all processes that it starts for its cells.

    Raises:
        UsageError: a model is remote, or the cells would run on other machines.
    """
    from m3b.llm.offline import OFFLINE_VARIABLE, forbid_remote_models, is_offline

    if not is_offline(offline):
        return
    forbid_remote_models(models)
    if engine != "local":
        raise UsageError(
            f"--engine {engine}: a cluster's machines have their own environment, so --offline cannot hold."
        )
    os.environ[OFFLINE_VARIABLE] = "1"


@app.command()
def score(
    folder: SweepFolderArgument,
    cell_keys: Annotated[list[str] | None, typer.Option("--cell", help="Only these cells. Repeatable.")] = None,
) -> None:
    """Score the delivered models of a sweep again, without any new run."""
    from m3b.bench.cell import rescore_cell
    from m3b.bench.results_store import SweepStore, read_rows

    rows = [row for row in read_rows(folder) if not cell_keys or row["key"] in cell_keys]
    if not rows:
        raise UsageError(f"{folder} has no finished cell of these names.")
    with SweepStore(folder) as store:
        cell_folders = [store.get_cell_folder(str(row.get("folder") or row["key"])) for row in rows]
        for row, cell_folder in zip(rows, cell_folders, strict=True):
            new_row = rescore_cell(cell_folder)
            if new_row is None:
                echo(f"{row['key']}: its files are gone, the old result is kept", err=True)
                continue
            store.replace({**new_row, **({"folder": row["folder"]} if "folder" in row else {})})
            echo(f"{new_row['key']}: {new_row['kind']}: {new_row['reason']}")


@app.command("table")
def show_tables(
    folders: Annotated[list[Path], typer.Argument(help="Folders of sweeps; several are shown as one.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write a CSV file a table and bench.html here.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Show the tables of sweeps: completion, systems, roles, model quality, failure classes."""
    from m3b.bench.render import to_text, write_files
    from m3b.bench.results_store import gather_rows
    from m3b.bench.tables import make_tables

    result_tables = make_tables(gather_rows(folders))
    if out is not None:
        refuse_overwriting(
            [out / name for name in ("bench.html", *(f"{result_table.name}.csv" for result_table in result_tables))],
            force=force,
        )
    if json:
        print_json({"tables": [result_table.to_json() for result_table in result_tables]})
    else:
        typer.echo(to_text(result_tables))
    if out is not None:
        for file in write_files(result_tables, out):
            typer.echo(str(file), err=True)


@app.command("report")
def write_report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of sweeps; several are shown as one.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write; `report` in the first folder if not given.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the paper's tables and figures from results: bench.html, CSV, LaTeX with figures, section.tex."""
    from m3b.bench import render
    from m3b.bench.results_store import gather_rows
    from m3b.bench.tables import make_tables

    report_folder, result_tables = out or folders[0] / "report", make_tables(gather_rows(folders))
    names = (
        "bench.html",
        "section.tex",
        *(f"{result_table.name}{ending}" for result_table in result_tables for ending in (".csv", ".tex")),
    )
    refuse_overwriting([report_folder / name for name in names], force=force)
    for file in render.write_report(result_tables, report_folder):
        typer.echo(str(file))


@app.command("leaderboard")
def show_leaderboard(
    file: Annotated[Path, typer.Argument(help="The leaderboard, a JSON Lines file; a new one if sweeps are given.")],
    folders: Annotated[list[Path] | None, typer.Argument(help="Sweeps whose results are appended.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write leaderboard.csv and bench.html here.")] = None,
    expect: Annotated[
        str, typer.Option(help="A fingerprint that was noted earlier: refuse a file that lacks entries it had then.")
    ] = "",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Check a leaderboard, append the results of sweeps, and show it."""
    from m3b.bench.leaderboard import append_entries, make_entries, make_leaderboard_table, read_leaderboard
    from m3b.bench.render import to_text, write_files

    if not folders and not file.is_file():
        raise UsageError(f"There is no leaderboard {file}; name a sweep whose results begin it.")
    leaderboard = append_entries(file, make_entries(folders), expect) if folders else read_leaderboard(file, expect)
    table = make_leaderboard_table(leaderboard.entries)
    if json:
        entries = [asdict(entry) for entry in leaderboard.entries]
        print_json({"entries": entries, "fingerprint": leaderboard.fingerprint})
    else:
        typer.echo(to_text([table]))
        typer.echo(
            f"{len(leaderboard.entries)} entries, fingerprint {leaderboard.fingerprint}: noted elsewhere, --expect shows later "
            "whether one of them was removed"
        )
    if out is not None:
        refuse_overwriting([out / "bench.html", out / "leaderboard.csv"], force=force)
        for written_file in write_files([table], out):
            typer.echo(str(written_file), err=True)


@app.command("list")
def list_tasks_and_systems(json: JsonOption = False) -> None:
    """List tasks and systems."""
    from m3b.bench.systems import get_system, list_systems
    from m3b.bench.tasks import load_tasks

    task_entries = [{"id": t.id, "family": t.family, "variant": t.variant, "layout": t.layout, "data": t.dataset,
              "request": t.request} for t in load_tasks()]  # fmt: skip
    missing_requirements = {name: get_system(name).explain_missing() for name in list_systems()}
    if json:
        print_json({"tasks": task_entries, "systems": missing_requirements})
        return
    rows = [[entry["id"], entry["family"], entry["layout"], entry["request"]] for entry in task_entries]
    typer.echo(format_table(["task", "family", "layout", "request"], rows))
    typer.echo("")
    typer.echo(
        format_table(["system", "here"], [[name, reason or "yes"] for name, reason in missing_requirements.items()])
    )


def _parse_real_data(pairs: list[str]) -> dict[str, str]:
    """Return data set name -> folder from `NAME=FOLDER` pairs."""
    from m3b.bench.datasets import get_dataset

    data_folders = {}
    for pair in pairs:
        name, separator, folder = pair.partition("=")
        if not separator or not Path(folder).is_dir():
            raise UsageError(f"--data takes NAME=FOLDER with a folder that exists; found {pair!r}.")
        data_folders[get_dataset(name).name] = str(Path(folder).absolute())
    return data_folders


def _make_engine(name: str, jobs: int | None, address: str | None, models: Sequence[str]) -> Engine:
    if name == "local":
        from m3b.engines.local import LocalEngine

        return LocalEngine(jobs or 1)
    if name == "ray":
        from m3b.engines.ray import RayEngine
        from m3b.llm.specs import list_key_variables

        return RayEngine(address, node_environment=list_key_variables(), on_note=partial(typer.echo, err=True))
    if name == "slurm":
        from m3b.engines.slurm import SlurmEngine
        from m3b.llm.specs import needs_key

        if paid_models := [model for model in models if needs_key(model)]:
            raise UsageError(f"Jobs of Slurm get no keys, so cells cannot ask {paid_models[0]}; choose local or ray.")
        return SlurmEngine()
    raise UsageError(f"There is no engine {name!r}; choose local, slurm or ray.")


class _ProgressPrinter:
    """Prints one line for each finished cell to standard error."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def __call__(self, event: str, row: dict[str, Any]) -> None:
        if event != "done":
            return
        self.done += 1
        metric = (row.get("score") or {}).get("primary") or {}
        value = f" {metric['name']} {metric['value']:.3f}" if metric.get("value") is not None else ""
        wall = (row.get("usage") or {}).get("wall_s", 0)
        sys.stderr.write(inert(f"[{self.done}/{self.total}] {row['key']}: {row['kind']}{value}, {wall:.0f} s\n"))
        sys.stderr.flush()


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP stop a sweep as Ctrl-C does."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous_handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
