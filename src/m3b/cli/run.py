"""`m3b run`, `m3b demo` and `m3b resume`."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from m3b.cli import shell_completion
from m3b.cli.dataset_options import NO_DATASET_OPTIONS, DatasetOptions
from m3b.cli.engine_options import NO_ENGINE_OPTIONS, EngineOptions
from m3b.cli.mirror_options import NO_MIRROR_OPTIONS, MirrorOptions
from m3b.cli.option_groups import with_option_groups
from m3b.cli.output import format_result, make_console, print_json
from m3b.cli.training_options import NO_TRAINING_OPTIONS, TrainingOptions
from m3b.errors import UsageError

if TYPE_CHECKING:
    from m3b.cli.live import LiveView
    from m3b.engines import EngineName
    from m3b.run.options import SandboxMode
    from m3b.run.result import Result
    from m3b.workspace import Source

DEMO_REQUEST = "Build a model that detects lung opacities on chest X-rays"
DEMO_MINUTES = 1.0

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, everything else on standard error.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite what exists at -o.")]
ModelArgument = Annotated[str, typer.Argument(help="A delivered model's folder, or its run: folder, id or `last`.")]
RunArgument = Annotated[
    str, typer.Argument(help="A run's folder or id, or `last`.", autocompletion=shell_completion.complete_runs)
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Refuse models on other machines, like M3B_OFFLINE=1.")]
LabelWithOption = Annotated[
    Path | None,
    typer.Option(
        help="The folder of a promptable segmenter: images without a mask may be labelled with it, for training only; the "
        "Data Engineer's language model sees them.",
        show_default=False,
    ),
]
SandboxOption = Annotated[
    str | None,
    typer.Option(
        help="auto, bubblewrap, landlock or off; may confine less than before. Default: never less than before.",
        autocompletion=shell_completion.complete_sandboxes,
        show_default=False,
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        help="Loggers, separated by commas: tensorboard, mlflow, trackio, wandb, otel. They write to this machine.",
        show_default=False,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


@with_option_groups
def run(
    request: Annotated[str, typer.Argument(help="What the model should predict from which images, in plain words.")],
    llm: Annotated[
        str | None,
        typer.Option(
            help="provider:model, a provider alone, or rules. Default: what `m3b config llm` set, else rules."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder with raw data, the address of a remote one (s3://, gs://, ssh://), or a data card in JSON. Repeatable."
        ),
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(help="NAME=DIR: an external test set; NAME=manifest.json: its manifest. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. Default: a dated one below runs/.")] = None,
    max_actions: Annotated[
        int | None, typer.Option(help="Tool calls of all roles together. Default: 100.", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Input tokens of all requests, plus output tokens.")] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="US dollars, if the model's prices are known. Default: 5.", show_default=False),
    ] = None,
    max_wall: Annotated[float | None, typer.Option(help="Minutes of the whole run.")] = None,
    train_minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes that training may take. Default: 5, or what --max-wall or --epochs leaves.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            help="Hours of training altogether: compare plans on held-out patients, then train the best one in the last third.",
            show_default=False,
        ),
    ] = None,
    min_gain: Annotated[
        float | None,
        typer.Option(
            help="With --hours: end the search when the expected gain is smaller, in units of the metric.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of splits and bootstrap.")] = 0,
    single_agent: Annotated[
        bool, typer.Option("--single-agent", help="One agent for all stages instead of four.")
    ] = False,
    no_reflect: Annotated[bool, typer.Option("--no-reflect", help="No reflection turns.")] = False,
    no_examples: Annotated[bool, typer.Option("--no-examples", help="No worked examples in prompts.")] = False,
    no_debug: Annotated[bool, typer.Option("--no-debug", help="No second try after a failed script or check.")] = False,
    sandbox: Annotated[
        str, typer.Option(help="auto, bubblewrap, landlock or off.", autocompletion=shell_completion.complete_sandboxes)
    ] = "auto",
    phi: Annotated[
        str, typer.Option(help="mask hides what identifies a person from previews; allow shows it.")
    ] = "mask",
    offline: OfflineOption = False,
    tools: Annotated[
        str,
        typer.Option(
            help="Which calls of tools count: native (by the provider's protocol alone) or auto (in text too)."
        ),
    ] = "auto",
    stream: Annotated[
        bool | None,
        typer.Option(help="Show the model's text as it arrives. Default: on a terminal.", show_default=False),
    ] = None,
    confirm: Annotated[
        bool | None,
        typer.Option(
            help="Ask before training whether the data is read correctly. Default: on a terminal, if the evidence is weak.",
            show_default=False,
        ),
    ] = None,
    label_with: LabelWithOption = None,
    log: LogOption = None,
    send_images: Annotated[
        bool,
        typer.Option(
            "--send-images",
            help="The language model may look at training and validation images; never test images, or images with text in them.",
        ),
    ] = False,
    training: TrainingOptions = NO_TRAINING_OPTIONS,
    engine: EngineOptions = NO_ENGINE_OPTIONS,
    dataset: DatasetOptions = NO_DATASET_OPTIONS,
    remote: MirrorOptions = NO_MIRROR_OPTIONS,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Build a model: from a request and raw data to a tested folder that predicts."""
    from m3b.run.external_sources import parse_external_arguments

    limits = fill_from_config(
        {
            "max_actions": max_actions, "max_tokens": max_tokens, "max_cost": max_cost, "max_wall": max_wall,
            "train_minutes": train_minutes, "offline": offline or None,
        },
        data or [],
    )  # fmt: skip
    is_offline = limits.get("offline") is True
    external_arguments = [remote.localize(argument, offline=is_offline) for argument in external or []]
    options = dict(
        **limits, seed=seed, hours=hours, min_gain=min_gain,
        roles="single" if single_agent else "four", reflect=not no_reflect, examples=not no_examples,
        debug=not no_debug, sandbox=sandbox, phi=phi, tools=tools,
        stream=sys.stderr.isatty() and not quiet if stream is None else stream, manifest=dataset.manifest,
        confirm="weak" if confirm is None else confirm, external=parse_external_arguments(external_arguments),
        label_with=str(label_with.absolute()) if label_with else "", log=log or "", send_images=send_images,
        overrides=dataset.overrides, training=training.with_config(data or []).overrides,
        engine=engine.resolve(data or []),
    )  # fmt: skip
    sources = remote.fetch_sources(data or [], offline=is_offline)
    _print_result_and_exit(_run_pipeline(request, llm, sources, out, options, quiet), as_json=json)


def fill_from_config(flags: dict[str, Any], data: list[str]) -> dict[str, Any]:
    """Return the options that were given, and those of the configuration for the others, as `Pipeline` takes them."""
    from m3b.config import read_config
    from m3b.remote.addresses import is_remote

    settings = read_config(Path(source) for source in data if not is_remote(source))
    values = {name: settings.get(name) if value is None else value for name, value in flags.items()}
    if values.get("max_wall") is not None:
        values["max_wall"] *= 60
    return {name: value for name, value in values.items() if value is not None}


def demo(
    folder: Annotated[Path, typer.Argument(help="Where to put the data and the run.")] = Path("demo"),
    train_minutes: Annotated[float, typer.Option(help="Minutes that training may take.")] = DEMO_MINUTES,
    sandbox: Annotated[
        str, typer.Option(help="auto, bubblewrap, landlock or off.", autocompletion=shell_completion.complete_sandboxes)
    ] = "auto",
    quiet: QuietOption = False,
) -> None:
    """Run the whole pipeline on generated data with the built-in rules: no key, no network, two minutes."""
    from m3b.data.synthetic import make_chest
    from m3b.models import load_model
    from m3b.run.options import Options

    options: dict[str, Any] = {"train_minutes": train_minutes, "sandbox": sandbox}
    Options(**options)  # raises before anything is created
    demo_folder = _find_free_folder(folder)
    data = make_chest(demo_folder / "chest-xrays")
    terminal = make_console()
    terminal.print(f"Invented chest radiographs: {data}", markup=False)
    terminal.print(f'Request: "{DEMO_REQUEST}"\n', markup=False)
    result = _run_pipeline(DEMO_REQUEST, "rules", [str(data)], demo_folder / "run", options, quiet)
    terminal.print()
    for line in format_result(result):
        terminal.print(line, markup=False, soft_wrap=True)
    if result.model_dir is None:
        raise typer.Exit(1)
    unseen_image = sorted((data / "unseen").glob("*.png"))[-1]
    command = f"m3b predict {result.model_dir} {unseen_image}"
    terminal.print(f"\n$ {command}", markup=False, soft_wrap=True)
    with load_model(result.model_dir, unconfined=sandbox == "off") as model:
        predictions = model.predict([str(unseen_image)])
    for prediction in predictions:
        probabilities_text = ", ".join(f"{name}: {value:.3f}" for name, value in prediction.probabilities.items())
        terminal.print(f"{unseen_image.name}: {', '.join(prediction.prediction)} ({probabilities_text})", markup=False)
    raise typer.Exit(0 if result.ok else 1)


def resume(
    run: RunArgument = "last",
    llm: Annotated[str | None, typer.Option(help="Another language model than the run was started with.")] = None,
    sandbox: SandboxOption = None,
    offline: OfflineOption = False,
    log: LogOption = None,
    engine: Annotated[
        str | None,
        typer.Option(help="local, slurm or ray. Default: where the run trained before.", show_default=False),
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Continue a run that was interrupted."""
    from m3b.cli.live import LiveView
    from m3b.run.pipeline import resume as resume_run

    _announce_finished_run(run)
    with interrupt_on_signals(), LiveView(quiet=quiet) as live:
        result = resume_run(
            run,
            llm,
            offline=offline,
            log=log,
            sandbox=cast("SandboxMode | None", sandbox),
            engine=cast("EngineName | None", engine),
            on_event=live,
            ask=_make_question_prompt(live),
        )
    _print_result_and_exit(result, as_json=json)


def train(
    run: RunArgument = "last",
    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes of the added training. Default: those of an interrupted one.", show_default=False),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Drop an added training that was interrupted or failed.")
    ] = False,
    log: LogOption = None,
    sandbox: SandboxOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train the model of a finished run for longer; deliver it if validation says that it is better."""
    from m3b.cli.live import LiveView
    from m3b.run.pipeline import train_more

    with interrupt_on_signals(), LiveView(quiet=quiet) as live:
        mode = cast("SandboxMode | None", sandbox)
        result = train_more(run, minutes, log=log, sandbox=mode, discard=discard, on_event=live)
    _print_result_and_exit(result, as_json=json)


def _announce_finished_run(run: str) -> None:
    """Say that a run has ended and is only shown again, and how to train on."""
    from m3b.cli.output import echo
    from m3b.run.folder import RunFolder
    from m3b.run.result import DELIVERED_STATUSES, FINAL_STATUSES

    run_folder = RunFolder.open(run)
    status = run_folder.load_record().get("status")
    if status in FINAL_STATUSES:
        hint = f" To train its model for longer: {run_folder.format_command('train')} --minutes N"
        echo(
            f"This run has ended ({status}) and is shown again.{hint if status in DELIVERED_STATUSES else ''}", err=True
        )


def _run_pipeline(
    request: str,
    llm: str | None,
    data: Sequence[Source],
    out: Path | None,
    options: dict[str, Any],
    quiet: bool,
) -> Result:
    from m3b.cli.live import LiveView
    from m3b.run.pipeline import Pipeline

    with interrupt_on_signals(), LiveView(quiet=quiet) as live:
        pipeline = Pipeline(llm, data=data, out=out, on_event=live, ask=_make_question_prompt(live), **options)
        return pipeline.run(request)


def _make_question_prompt(live: LiveView) -> Callable[[str], str | None] | None:
    """Return a function that asks the person at the terminal; None if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(question: str) -> str | None:
        with live.pause():
            sys.stderr.write(f"\nA question: {question}\nYour answer (empty for none): ")
            sys.stderr.flush()
            return sys.stdin.readline().strip() or None

    return ask


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP end a run as Ctrl-C does: processes stopped, journal closed, status `cancelled`."""

    def raise_interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous_handlers = {
        signal_number: signal.signal(signal_number, raise_interrupt)
        for signal_number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for signal_number, handler in previous_handlers.items():
            signal.signal(signal_number, handler)


def _find_free_folder(folder: Path) -> Path:
    """Return the folder, or a numbered one next to it if it is not empty, so that the demo can be repeated."""
    for number in range(1, 1000):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not candidate.exists() or (candidate.is_dir() and not any(candidate.iterdir())):
            return candidate.absolute()
    raise UsageError(f"{folder} and 998 numbered folders beside it exist; name another.")


def _print_result_and_exit(result: Result, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
    else:
        terminal = make_console()
        for line in format_result(result):
            terminal.print(line, markup=False, soft_wrap=True)
    raise typer.Exit(0 if result.ok else 2 if result.status == "undecided" else 1)
