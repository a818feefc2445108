"""Stage one: a model learns whole trajectories by supervision (TRL's SFTTrainer, LoRA by default)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from m3b.errors import DataError, UsageError
from m3b.teaching.chats import ChatRecord
from m3b.teaching.collation import Collator, to_row
from m3b.teaching.student_models import (
    MISSING_PACKAGES,
    LoraSettings,
    Student,
    make_new_folder,
    open_student,
    save_student,
)


def make_time_limit(minutes: float | None) -> list[Any]:
    """Return the callbacks that end a training after `minutes`; none for None."""
    if minutes is None:
        return []
    import time

    from transformers import TrainerCallback

    deadline = time.monotonic() + 60 * minutes

    class _TimeLimit(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = control.should_training_stop or time.monotonic() > deadline

    return [_TimeLimit()]


def check_finite(curve: Sequence[Mapping[str, float]], lr: float) -> None:
    """Check that a training has not diverged.

    Raises:
        DataError: a loss or the norm of a gradient is not a number.
    """
    for entry in curve:
        if any(not math.isfinite(entry.get(name, 0.0)) for name in ("loss", "grad_norm")):
            step = int(entry.get("step", 0))
            raise DataError(f"The training diverged at step {step}: its loss is not a number. Lower lr ({lr:g}).")


OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class SupervisedRecipe:
    """Settings of training on trajectories.

    Args:
        epochs: passes over the data.
        steps: exact number of optimiser steps instead of epochs; 0 to use epochs.
        batch: conversations a step and device.
        accumulate: batches a step.
        warm_up: share of the steps in which the learning rate rises from 0.
        minutes: time limit, if it comes first; None for no limit.
        max_length: maximum tokens of a conversation; None for no limit.

    Raises:
        UsageError: a number is out of range.
    """

    epochs: float = 2.0
    steps: int = 0
    batch: int = 2
    accumulate: int = 4
    lr: float = 1e-4
    warm_up: float = 0.03
    weight_decay: float = 0.0
    max_length: int | None = 8192
    minutes: float | None = None
    seed: int = 0
    bf16: bool | None = None
    adapters: LoraSettings = field(default_factory=LoraSettings)

    def __post_init__(self) -> None:
        if not self.epochs > 0 or self.steps < 0:
            raise UsageError("epochs must be above 0 and steps at least 0.")
        if self.batch < 1 or self.accumulate < 1 or not self.lr > 0:
            raise UsageError("batch and accumulate must be at least 1, and lr above 0.")


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training stage.

    Args:
        curve: a row for each logged step, with the trainer's names of values.
    """

    folder: Path
    curve: tuple[dict[str, float], ...]


def teach_supervised(
    model: str | Path,
    chats: Sequence[ChatRecord],
    out: str | Path,
    recipe: SupervisedRecipe | None = None,
    *,
    validation: Sequence[ChatRecord] = (),
    on_message: OnMessage = lambda text: None,
) -> TrainingResult:
    """Train a model on conversations and write it as a folder of its own.

    Several GPUs: `accelerate launch -m m3b teach supervised ...`.

    Args:
        model: a local transformers folder.
        validation: conversations whose loss is measured after each epoch.

    Raises:
        UsageError: TRL is not installed; the model cannot be trained with these conversations; `out` is not empty.
        DataError: there is nothing to train on, or the training diverged.
    """
    recipe = recipe or SupervisedRecipe()
    if not chats:
        raise DataError("There is no conversation to train on.")
    folder = make_new_folder(out)
    student = open_student(model, images=any(chat.images for chat in chats))
    trainer = _make_supervised_trainer(student, chats, validation, folder, recipe)
    on_message(f"{len(chats)} conversations; {describe_trainable(trainer.model)}")
    trainer.train()
    curve = tuple(select_numbers(entry) for entry in trainer.state.log_history)
    check_finite(curve, recipe.lr)
    if trainer.is_world_process_zero():
        record = {
            "stage": "supervised",
            "model": str(model),
            "conversations": len(chats),
            "recipe": asdict(recipe),
            "curve": curve,
        }
        save_student(trainer.accelerator.unwrap_model(trainer.model), student.processor, folder, record)
    trainer.accelerator.wait_for_everyone()
    return TrainingResult(folder, curve)


def _make_supervised_trainer(
    student: Student,
    chats: Sequence[ChatRecord],
    validation: Sequence[ChatRecord],
    folder: Path,
    recipe: SupervisedRecipe,
) -> Any:
    try:
        import torch
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer
    except ImportError as error:
        raise UsageError(MISSING_PACKAGES) from error
    bf16 = recipe.bf16 if recipe.bf16 is not None else torch.cuda.is_available()
    settings = SFTConfig(
        output_dir=str(folder / "training"), num_train_epochs=recipe.epochs, max_steps=recipe.steps or -1,
        per_device_train_batch_size=recipe.batch, per_device_eval_batch_size=recipe.batch,
        gradient_accumulation_steps=recipe.accumulate, learning_rate=recipe.lr, warmup_steps=recipe.warm_up,
        weight_decay=recipe.weight_decay, lr_scheduler_type="cosine", logging_steps=1, save_strategy="no",
        eval_strategy="epoch" if validation else "no", report_to="none", seed=recipe.seed, bf16=bf16,
        gradient_checkpointing=torch.cuda.is_available(), max_length=None, remove_unused_columns=False,
        disable_tqdm=True, logging_nan_inf_filter=False,
        dataset_kwargs={"skip_prepare_dataset": True}, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    data = Dataset.from_list([to_row(chat) for chat in chats])
    validation_data = Dataset.from_list([to_row(chat) for chat in validation]) if validation else None
    if not student.takes_images:
        data, validation_data = (
            dataset.remove_columns("images") if dataset is not None else None for dataset in (data, validation_data)
        )
    return SFTTrainer(
        model=student.model, args=settings, train_dataset=data, eval_dataset=validation_data, processing_class=student.processor,
        data_collator=Collator(student, recipe.max_length), peft_config=recipe.adapters.to_peft_config(),
        callbacks=make_time_limit(recipe.minutes),
    )  # fmt: skip


def describe_trainable(model: Any) -> str:
    parts = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    trained_count = sum(size for size, is_trained in parts if is_trained)
    return f"{trained_count:,} of {sum(size for size, _ in parts):,} parameters are trained"


def select_numbers(entry: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in entry.items() if isinstance(value, int | float)}
