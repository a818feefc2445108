"""Stage two: reinforce a prompting model by the verifiable reward (TRL's GRPOTrainer on `PromptingEnvironment`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import DataError, UsageError
from m3b.interactive.agent import MAX_TURNS
from m3b.interactive.pictures import DEFAULT_STYLE, PictureStyle
from m3b.interactive.segmenter import Segmenter
from m3b.interactive.targets import Target
from m3b.teaching.chats import tool_to_chat
from m3b.teaching.environment import EpisodeSetup, PromptingEnvironment, SharedSegmenter, make_reward_functions
from m3b.teaching.experts import get_tool_specs
from m3b.teaching.reward import RewardWeights
from m3b.teaching.student_models import (
    MISSING_PACKAGES,
    LoraSettings,
    Student,
    make_new_folder,
    open_student,
    save_student,
)
from m3b.teaching.supervised import (
    OnMessage,
    TrainingResult,
    check_finite,
    describe_trainable,
    make_time_limit,
    select_numbers,
)


@dataclass(frozen=True)
class ReinforcedRecipe:
    """Settings of reinforced training.

    Args:
        steps: of the optimiser.
        rollouts: episodes of one target, which are compared with each other.
        targets: targets a step and device.
        minutes: time limit, if it comes first; None for no limit.
        max_tokens: of an episode after its first turn, pictures included.
        warm_up: share of the steps in which the learning rate rises from 0.
        beta: weight of the divergence from the initial model; 0 for none.
        temperature: of the sampled episodes.
        look: how pictures are drawn; as in the trajectories that the model was trained on.

    Raises:
        UsageError: a number is out of range.
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
    look: PictureStyle = DEFAULT_STYLE
    reward: RewardWeights = field(default_factory=RewardWeights)
    adapters: LoraSettings = field(default_factory=LoraSettings)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.targets < 1 or self.max_turns < 1 or self.max_tokens < 1:
            raise UsageError("steps, targets, max_turns and max_tokens must be at least 1.")
        if self.rollouts < 2:
            raise UsageError(f"{self.rollouts} rollouts cannot be compared with each other; at least 2 are needed.")
        if not self.lr > 0 or self.beta < 0 or not self.temperature > 0:
            raise UsageError("lr and temperature must be above 0, and beta at least 0.")


def teach_reinforced(
    model: str | Path,
    targets: Sequence[Target],
    segmenter: Segmenter,
    out: str | Path,
    recipe: ReinforcedRecipe | None = None,
    *,
    on_message: OnMessage = lambda text: None,
) -> TrainingResult:
    """Let a model play episodes and raise the odds of those that earn more than the others of the same target.

    Several GPUs: `accelerate launch -m m3b teach reinforced ...`.

    Args:
        model: a local folder, usually of stage one.
        targets: targets of the episodes; only training cases belong here.

    Raises:
        UsageError: TRL is not installed; the model cannot be trained like this; `out` is not empty.
        DataError: there is no target, or the training diverged.
    """
    recipe = recipe or ReinforcedRecipe()
    if not targets:
        raise DataError("There is no target to play on.")
    folder = make_new_folder(out)
    student = open_student(model, images=True)
    setup = EpisodeSetup(targets, SharedSegmenter(segmenter), recipe.max_turns, recipe.look, recipe.reward)
    trainer = _make_reinforced_trainer(student, setup, folder, recipe)
    on_message(f"{len(targets)} targets; {recipe.rollouts} episodes of each; {describe_trainable(trainer.model)}")
    trainer.train()
    curve = tuple(select_numbers(entry) for entry in trainer.state.log_history)
    check_finite(curve, recipe.lr)
    if trainer.is_world_process_zero():
        record = {
            "stage": "reinforced",
            "model": str(model),
            "targets": len(targets),
            "recipe": asdict(recipe),
            "curve": curve,
        }
        save_student(trainer.accelerator.unwrap_model(trainer.model), student.processor, folder, record)
    trainer.accelerator.wait_for_everyone()
    return TrainingResult(folder, curve)


def _make_reinforced_trainer(student: Student, setup: EpisodeSetup, folder: Path, recipe: ReinforcedRecipe) -> Any:
    # TRL warns that environments are experimental; the extra pins the version
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    try:
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise UsageError(MISSING_PACKAGES) from error
    functions, weights = make_reward_functions(recipe.reward)
    bf16 = recipe.bf16 if recipe.bf16 is not None else torch.cuda.is_available()
    settings = GRPOConfig(
        output_dir=str(folder / "training"), max_steps=recipe.steps, learning_rate=recipe.lr,
        per_device_train_batch_size=recipe.rollouts * recipe.targets, num_generations=recipe.rollouts,
        gradient_accumulation_steps=1, beta=recipe.beta, temperature=recipe.temperature,
        max_completion_length=recipe.max_tokens, max_tool_calling_iterations=recipe.max_turns + 2,
        reward_weights=weights, logging_steps=1, save_strategy="no", report_to="none", seed=recipe.seed, bf16=bf16,
        gradient_checkpointing=torch.cuda.is_available(), lr_scheduler_type="constant_with_warmup", warmup_steps=recipe.warm_up,
        generation_kwargs={"suppress_tokens": student.suppressed_tokens} if student.suppressed_tokens else None,
        remove_unused_columns=False, disable_tqdm=True, logging_nan_inf_filter=False,
        use_vllm=recipe.vllm, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=student.model, args=settings, train_dataset=Dataset.from_list(setup.to_rows()),
        processing_class=student.processor, reward_funcs=functions, peft_config=recipe.adapters.to_peft_config(),
        callbacks=make_time_limit(recipe.minutes),
        environment_factory=lambda: PromptingEnvironment(setup),
    )  # fmt: skip
    set_tool_schemas(trainer)
    return trainer


def set_tool_schemas(trainer: Any) -> None:
    """Give the model m3b's own tool schemas, as at work and in stage one.

    TRL would read others from the environment's methods.

    Raises:
        UsageError: this version of TRL keeps them elsewhere.
    """
    env_tools = getattr(trainer, "_env_tools", None)
    if not isinstance(env_tools, dict) or list(env_tools) != [None]:
        raise UsageError("This version of TRL keeps the tools of environments elsewhere. Install trl 1.16.")
    trainer._env_tools = {None: [tool_to_chat(tool) for tool in get_tool_specs()]}
