"""Stage two: a model that prompts is reinforced by the verifiable reward (TRL's GRPOTrainer on `PromptingEnvironment`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import DataError, WrongUse
from m3b.interactive.agent import MAX_TURNS
from m3b.interactive.pictures import USUAL, Look
from m3b.interactive.segmenter import Segmenter
from m3b.interactive.targets import Target
from m3b.teaching.chats import tool_json
from m3b.teaching.environment import PlayedOn, PromptingEnvironment, SharedSegmenter, rewards
from m3b.teaching.experts import specs
from m3b.teaching.reward import Reward
from m3b.teaching.students import NEEDED, Adapters, Student, new_folder, open_student, save_student
from m3b.teaching.supervised import Taught, Tell, _numbers, _trainable
from m3b.teaching.watching import finite, within


@dataclass(frozen=True)
class ReinforcedRecipe:
    """How to reinforce.

    Args:
        steps: of the optimiser.
        rollouts: episodes of one target, which are compared with each other.
        targets: targets a step and device.
        minutes: end after so many, where that comes first; None for no limit.
        max_tokens: of an episode after its first turn, pictures included.
        warm_up: share of the steps in which the learning rate rises from 0.
        beta: weight of the divergence from the model that training began with; 0 for none.
        temperature: of the episodes that are tried.
        look: how pictures are drawn; as in the trajectories that the model was taught on.

    Raises:
        WrongUse: a number is out of range.
    """

    steps: int = 300
    rollouts: int = 8
    targets: int = 1
    lr: float = 1e-6
    warm_up: float = 0.03
    beta: float = 0.0
    temperature: float = 1.0
    max_turns: int = MAX_TURNS
    max_tokens: int = 8192
    minutes: float | None = None
    seed: int = 0
    bf16: bool | None = None
    vllm: bool = False
    look: Look = USUAL
    reward: Reward = field(default_factory=Reward)
    adapters: Adapters = field(default_factory=Adapters)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.targets < 1 or self.max_turns < 1 or self.max_tokens < 1:
            raise WrongUse("steps, targets, max_turns and max_tokens must be at least 1.")
        if self.rollouts < 2:
            raise WrongUse(f"{self.rollouts} rollouts cannot be compared with each other; at least 2 are needed.")
        if not self.lr > 0 or self.beta < 0 or not self.temperature > 0:
            raise WrongUse("lr and temperature must be above 0, and beta at least 0.")


def teach_reinforced(
    model: str | Path,
    targets: Sequence[Target],
    segmenter: Segmenter,
    out: str | Path,
    recipe: ReinforcedRecipe | None = None,
    *,
    tell: Tell = lambda text: None,
) -> Taught:
    """Let a model play episodes and raise the odds of those that earn more than the others of the same target.

    Several GPUs: `accelerate launch -m m3b teach reinforced ...`.

    Args:
        model: a local folder, usually of stage one.
        targets: to play on; only training cases belong here.

    Raises:
        WrongUse: TRL is not installed; the model cannot be taught so; `out` is not empty.
        DataError: there is nothing to play on, or the training diverged.
    """
    recipe = recipe or ReinforcedRecipe()
    if not targets:
        raise DataError("There is no target to play on.")
    folder = new_folder(out)
    student = open_student(model, images=True)
    setup = PlayedOn(targets, SharedSegmenter(segmenter), recipe.max_turns, recipe.look, recipe.reward)
    trainer = _trainer(student, setup, folder, recipe)
    tell(f"{len(targets)} targets; {recipe.rollouts} episodes of each; {_trainable(trainer.model)}")
    trainer.train()
    curve = tuple(_numbers(entry) for entry in trainer.state.log_history)
    finite(curve, recipe.lr)
    if trainer.is_world_process_zero():
        record = {"stage": "reinforced", "model": str(model), "targets": len(targets), "recipe": asdict(recipe),
                "curve": curve}  # fmt: skip
        save_student(trainer.accelerator.unwrap_model(trainer.model), student.processor, folder, record)
    trainer.accelerator.wait_for_everyone()
    return Taught(folder, curve)


def _trainer(student: Student, stage: PlayedOn, place: Path, recipe: ReinforcedRecipe) -> Any:
    os.environ.setdefault(
        "TRL_EXPERIMENTAL_SILENCE", "1"
    )  # that environments are new is known, and pinned by the extra
    try:
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise WrongUse(NEEDED) from error
    functions, weights = rewards(recipe.reward)
    bf16 = recipe.bf16 if recipe.bf16 is not None else torch.cuda.is_available()
    settings = GRPOConfig(
        output_dir=str(place / "training"), max_steps=recipe.steps, learning_rate=recipe.lr,
        per_device_train_batch_size=recipe.rollouts * recipe.targets, num_generations=recipe.rollouts,
        gradient_accumulation_steps=1, beta=recipe.beta, temperature=recipe.temperature,
        max_completion_length=recipe.max_tokens, max_tool_calling_iterations=recipe.max_turns + 2,
        reward_weights=weights, logging_steps=1, save_strategy="no", report_to="none", seed=recipe.seed, bf16=bf16,
        gradient_checkpointing=torch.cuda.is_available(), lr_scheduler_type="constant_with_warmup", warmup_steps=recipe.warm_up,
        generation_kwargs={"suppress_tokens": student.unsaid} if student.unsaid else None,
        remove_unused_columns=False, disable_tqdm=True, logging_nan_inf_filter=False,
        use_vllm=recipe.vllm, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=student.model, args=settings, train_dataset=Dataset.from_list(stage.rows()),
        processing_class=student.processor, reward_funcs=functions, peft_config=recipe.adapters.config(),
        callbacks=within(recipe.minutes),
        environment_factory=lambda: PromptingEnvironment(stage),
    )  # fmt: skip
    offer(trainer)
    return trainer


def offer(trainer: Any) -> None:
    """Tell the model of the tools as at work and in stage one: by m3b's own schemas, not by those that TRL reads from the
    environment's methods.

    Raises:
        WrongUse: this version of TRL keeps them elsewhere.
    """
    env_tools = getattr(trainer, "_env_tools", None)
    if not isinstance(env_tools, dict) or list(env_tools) != [None]:
        raise WrongUse("This version of TRL keeps the tools of environments elsewhere. Install trl 1.16.")
    trainer._env_tools = {None: [tool_json(tool) for tool in specs()]}
