"""`m3b segment` and `m3b interactive ...`: masks by prompting a segmenter, and their measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.delivered import Unconfined, open_model
from m3b.cli.output import print_json, refuse_overwriting
from m3b.cli.run import ForceOption, JsonOption, OfflineOption
from m3b.errors import UsageError

app = typer.Typer(help="Interactive segmentation: measure a segmenter, train a small one.", no_args_is_help=True)

SegmenterOption = Annotated[
    Path,
    typer.Option(
        "--segmenter", help="A folder with a promptable segmenter: SAM, MedSAM, SAM 2, SAM 3's tracker, or m3b's own."
    ),
]
IndexArgument = Annotated[Path, typer.Argument(help="A run, or a folder with Datapath/train.json and masks.")]
TurnsOption = Annotated[int, typer.Option("--turns", min=1, help="Maximum number of masks for an image.")]


def segment(
    image: Annotated[Path, typer.Argument(help="A picture or a volume.")],
    target: Annotated[str, typer.Argument(help='What to segment, e.g. "the left kidney".')],
    segmenter: SegmenterOption,
    out: Annotated[Path, typer.Option("-o", "--out", help="A new folder for the mask and a picture of every turn.")],
    llm: Annotated[str | None, typer.Option("--llm", help="A model that takes images, as for `m3b run`.")] = None,
    start: Annotated[
        Path | None, typer.Option("--start", help="A delivered m3b segmentation model whose mask is to be corrected.")
    ] = None,
    turns: TurnsOption = 5,
    offline: OfflineOption = False,
    slice_index: Annotated[
        int | None,
        typer.Option("--slice", help="The slice of a volume to prompt, from 0; the middle one if not given."),
    ] = None,
    unconfined: Unconfined = False,
    json: JsonOption = False,
) -> None:
    """Segment what a phrase names: a model with vision prompts a segmenter, looks at the mask and corrects it."""
    from m3b.interactive import segment as run_segment

    if not image.exists():
        raise UsageError(f"There is no {image}.")
    result = run_segment(
        image,
        target,
        llm=llm,
        segmenter=segmenter,
        start=None if start is None else open_model(start, unconfined=unconfined),
        max_turns=turns,
        slice_index=slice_index,
        out=out,
        offline=offline,
    )
    if json:
        print_json(result.to_json())
    else:
        if result.kept_turn:
            typer.echo(f"{target}: mask {result.kept_turn} of {len(result.turns)}, expected IoU {result.score:.2f}")
            typer.echo(f"written to {result.mask_file}")
        else:
            status_text = (
                "the model says that the target is not in the image" if result.status == "absent" else result.status
            )
            typer.echo(f"{target}: no mask ({status_text})")
        if result.reason:
            typer.echo(result.reason, err=True)
    raise typer.Exit(1 if result.status == "failed" else 0)


@app.command("bench")
def bench(
    index: IndexArgument,
    segmenter: SegmenterOption,
    llm: Annotated[str | None, typer.Option("--llm", help="Also measure this language model as the agent.")] = None,
    turns: TurnsOption = 5,
    offline: OfflineOption = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Measure only the first N targets.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Random seed of the simulated user.")] = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .json file for all measurements.")] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Measure a segmenter on the test cases of an index: Dice by turn, clicks to 0.90, with oracles for comparison."""
    from m3b.interactive.benchmark import run_benchmark
    from m3b.interactive.segmenters.loading import open_segmenter
    from m3b.interactive.targets import TargetSet, take_targets
    from m3b.llm import connect

    if out is not None:
        refuse_overwriting([out], force=force)
    model = None if llm is None else connect(llm, local_only=offline)
    loaded_segmenter = open_segmenter(segmenter)
    test_targets = TargetSet.from_folder(index, "test")
    targets = take_targets(test_targets, limit)
    if not targets:
        raise UsageError(f"No test case of {index} holds a target: {format_exclusions(test_targets.exclusions)}.")
    benchmark = run_benchmark(
        targets, loaded_segmenter, llm=model, turns=turns, seed=seed, exclusions=test_targets.exclusions
    )
    summary = benchmark.to_json()
    if out is not None:
        import json as json_module

        from m3b.writing import write_text_atomically

        write_text_atomically(out, json_module.dumps(summary, indent=1))
    if json:
        print_json(summary)
        return
    patients = len({target.patient for target in targets})
    typer.echo(f"{len(targets)} targets of {patients} patients; 95 % intervals over patients; {loaded_segmenter.name}")
    typer.echo(benchmark.format_table())
    if test_targets.exclusions:
        typer.echo(f"left out: {format_exclusions(test_targets.exclusions)}", err=True)


@app.command("train")
def train(
    index: IndexArgument,
    out: Annotated[Path, typer.Argument(help="A new folder for the segmenter.")],
    minutes: Annotated[float, typer.Option("--minutes", help="How long to train.")] = 10.0,
    size: Annotated[int, typer.Option("--size", help="Side of the network's input in pixels, a multiple of 8.")] = 128,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
) -> None:
    """Train a small promptable segmenter on the training cases of an index, with simulated prompts."""
    from m3b.interactive.segmenter_training import SegmenterRecipe, train_segmenter
    from m3b.interactive.targets import TargetSet

    training_targets = TargetSet.from_folder(index, "train")
    recipe = SegmenterRecipe(minutes=minutes, size=size, seed=seed)
    typer.echo(f"reading the training cases of {training_targets.base}", err=True)
    folder = train_segmenter(list(training_targets), out, recipe, on_message=lambda text: typer.echo(text, err=True))
    if training_targets.exclusions:
        typer.echo(f"left out: {format_exclusions(training_targets.exclusions)}", err=True)
    typer.echo(f"written to {folder}; measure it: m3b interactive bench {index} --segmenter {folder}")


def format_exclusions(exclusions: dict[str, int]) -> str:
    """Return the reasons for exclusions with their counts in one line."""
    return "; ".join(f"{reason} ({count})" for reason, count in sorted(exclusions.items())) or "there are none"
