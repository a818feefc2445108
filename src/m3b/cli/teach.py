"""`m3b trajectories`, `m3b interactive trajectories` and `m3b teach ...`: from runs and masks to a fine-tuned model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.interactive import IndexArgument, SegmenterOption, TurnsOption, format_exclusions
from m3b.cli.output import print_json
from m3b.cli.run import JsonOption
from m3b.errors import UsageError

app = typer.Typer(help="Teach a small local model, by trajectories or by reward.", no_args_is_help=True)

ModelArgument = Annotated[Path, typer.Argument(help="A local folder with a model of transformers.")]
ChatsArgument = Annotated[Path, typer.Argument(help="A folder of trajectories, or one .jsonl file.")]
NewFolderArgument = Annotated[Path, typer.Argument(help="A new folder.")]
RankOption = Annotated[int, typer.Option("--rank", min=0, help="Rank of the LoRA adapters; 0 trains all weights.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0)]
PictureSideOption = Annotated[
    int, typer.Option("--side", help="Pixels of the longer side of pictures as the model sees them.")
]


def make_expert_trajectories(
    index: IndexArgument,
    out: Annotated[Path, typer.Argument(help="A new folder, or an unfinished one with the same settings.")],
    segmenter: SegmenterOption,
    modes: Annotated[
        list[str] | None, typer.Option("--way", help="hybrid (box, then clicks) or points; default both.")
    ] = None,
    turns: TurnsOption = 5,
    min_gain: Annotated[float, typer.Option(help="Minimum gain in IoU of a step.")] = 0.015,
    min_iou: Annotated[
        float, typer.Option(help="Minimum IoU of the last mask; other trajectories are excluded.")
    ] = 0.7,
    retries: Annotated[int, typer.Option(help="Number of further tries if a step gains too little.")] = 5,
    jitter: Annotated[float, typer.Option(help="Noise of box sides, as a share of the target.")] = 0.08,
    tremor: Annotated[float, typer.Option(help="Noise of clicks, in pixels (standard deviation).")] = 2.0,
    held_out: Annotated[float, typer.Option(help="Share of the patients for validation.")] = 0.1,
    side: PictureSideOption = 768,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N targets.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Make expert trajectories from the masks of the training cases, to train an agent that prompts a segmenter."""
    from itertools import islice

    from m3b.interactive.pictures import PictureStyle
    from m3b.interactive.segmenters.loading import open_segmenter
    from m3b.interactive.targets import TargetSet
    from m3b.teaching.expert_trajectories import TrajectoryFolder, make_trajectories, settings_of
    from m3b.teaching.experts import PROMPT_MODES, Expert

    expert = Expert(
        ways=tuple(modes) if modes else PROMPT_MODES, max_turns=turns, min_gain=min_gain, retries=retries, min_iou=min_iou,  # type: ignore[arg-type]
        jitter=jitter, tremor=tremor, seed=seed, look=PictureStyle(side),
    )  # fmt: skip
    loaded_segmenter = open_segmenter(segmenter)
    training_targets = TargetSet.from_folder(index, "train")
    collection = TrajectoryFolder(out, settings_of(index.absolute(), loaded_segmenter.name, expert, held_out))
    training_targets.skip = collection.done_cases
    if collection.done_ids:
        typer.echo(f"going on: {len(collection.done_ids)} trajectories were tried before", err=True)
    trajectory_set = make_trajectories(
        islice(training_targets, limit), loaded_segmenter, collection, expert, held_out=held_out
    )
    if training_targets.exclusions:
        typer.echo(f"left out: {format_exclusions(training_targets.exclusions)}", err=True)
    if json:
        print_json(trajectory_set.summary)
        return
    summary = trajectory_set.summary
    typer.echo(
        f"{summary['kept']} of {summary['tried']} trajectories kept ({summary['train']} train, {summary['validation']} validation)"
    )
    if summary["kept"]:
        typer.echo(f"IoU {summary['first_iou']:.3f} after the first turn, {summary['final_iou']:.3f} at the end; "
                   f"{summary['mean_turns']:.2f} turns")  # fmt: skip
    if summary["left_out"]:
        typer.echo(f"not kept: {format_exclusions(summary['left_out'])}")
    typer.echo(f"ten of them as pictures: {out / 'pictures'}")


def make_role_trajectories(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, or one run.")],
    out: NewFolderArgument,
    role: Annotated[str, typer.Option("--role", help="The role: data_engineer, task_manager, ...")],
    include_incomplete: Annotated[
        bool, typer.Option("--every", help="Also runs that did not complete; the reward accounts for that.")
    ] = False,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Exclude longer ones (an estimate).")] = None,
    json: JsonOption = False,
) -> None:
    """Make training trajectories of a role from the journals of runs, with m3b's own checks as the reward."""
    from m3b.run.folder import list_runs
    from m3b.teaching.role_trajectories import RoleTrajectories, write_role_trajectories

    if not runs.is_dir():
        raise UsageError(f"There is no folder {runs}.")
    reader = RoleTrajectories(role, include_incomplete=include_incomplete, max_tokens=max_tokens)
    summary = write_role_trajectories(reader.collect(list_runs(runs)), reader, out)
    if json:
        print_json(summary)
        return
    typer.echo(f"{summary['trajectories']} trajectories of the role {role}; mean reward {summary['mean_reward']:.3f}; "
               f"{summary['accepted_at_once']} accepted at once")  # fmt: skip
    if summary["left_out"]:
        typer.echo(f"left out: {format_exclusions(summary['left_out'])}", err=True)
    typer.echo(f"written to {out / 'train.jsonl'}; teach a model on it: m3b teach supervised {out} MODEL OUT")


@app.command("supervised")
def run_supervised(
    chats: ChatsArgument,
    model: ModelArgument,
    out: NewFolderArgument,
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")] = 2.0,
    steps: Annotated[int, typer.Option("--steps", min=0, help="Number of steps, instead of epochs.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Conversations per device and batch.")] = 2,
    accumulate: Annotated[int, typer.Option("--accumulate", min=1, help="Batches per step.")] = 4,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate.")] = 1e-4,
    rank: RankOption = 16,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum length of a conversation; longer ones are an error.")
    ] = 8192,
    min_reward: Annotated[float, typer.Option(help="Exclude conversations with a lower reward.")] = 0.0,
    seed: SeedOption = 0,
) -> None:
    """Stage one: learn whole trajectories (of `m3b trajectories` or `m3b interactive trajectories`)."""
    from m3b.teaching.chats import read_chats
    from m3b.teaching.student_models import LoraSettings
    from m3b.teaching.supervised import SupervisedRecipe, teach_supervised

    recipe = SupervisedRecipe(
        epochs=epochs, steps=steps, batch=batch, accumulate=accumulate, lr=lr, max_length=max_tokens, seed=seed,
        adapters=LoraSettings(rank=rank),
    )  # fmt: skip
    training_chats = [chat for chat in read_chats(chats) if chat.reward >= min_reward]
    validation_file = chats / "validation.jsonl"
    validation_chats = list(read_chats(validation_file)) if chats.is_dir() and validation_file.is_file() else []
    training_result = teach_supervised(
        model,
        training_chats,
        out,
        recipe,
        validation=validation_chats,
        on_message=lambda text: typer.echo(text, err=True),
    )
    losses = [entry["loss"] for entry in training_result.curve if "loss" in entry]
    typer.echo(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end; written to {training_result.folder}")


@app.command("reinforced")
def run_reinforced(
    index: IndexArgument,
    model: ModelArgument,
    out: NewFolderArgument,
    segmenter: SegmenterOption,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of the optimiser.")] = 300,
    rollouts: Annotated[
        int, typer.Option("--rollouts", help="Episodes for each target, compared with each other.")
    ] = 8,
    targets: Annotated[int, typer.Option("--targets", min=1, help="Targets per step and device.")] = 1,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate.")] = 1e-6,
    rank: RankOption = 16,
    turns: TurnsOption = 5,
    side: PictureSideOption = 768,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N targets.")] = None,
    vllm: Annotated[bool, typer.Option("--vllm", help="Run the episodes with vLLM.")] = False,
    seed: SeedOption = 0,
) -> None:
    """Stage two: run episodes on the training cases, and learn from those with a higher reward (verifiable reward)."""
    from m3b.interactive.pictures import PictureStyle
    from m3b.interactive.segmenters.loading import open_segmenter
    from m3b.interactive.targets import TargetSet, take_targets
    from m3b.teaching.reinforced import ReinforcedRecipe, teach_reinforced
    from m3b.teaching.student_models import LoraSettings

    recipe = ReinforcedRecipe(
        steps=steps, rollouts=rollouts, targets=targets, lr=lr, max_turns=turns, seed=seed, vllm=vllm, look=PictureStyle(side),
        adapters=LoraSettings(rank=rank),
    )  # fmt: skip
    loaded_segmenter = open_segmenter(segmenter)
    training_targets = TargetSet.from_folder(index, "train")
    episode_targets = take_targets(training_targets, limit)
    if not episode_targets:
        raise UsageError(
            f"No training case of {index} holds a target: {format_exclusions(training_targets.exclusions)}."
        )
    training_result = teach_reinforced(
        model, episode_targets, loaded_segmenter, out, recipe, on_message=lambda text: typer.echo(text, err=True)
    )
    rewards = [entry["reward"] for entry in training_result.curve if "reward" in entry]
    typer.echo(
        f"mean reward {rewards[0]:.3f} at first, {rewards[-1]:.3f} at the end; written to {training_result.folder}"
    )
