"""Models to train: opened from a local folder, fitted with adapters, written as a folder that can be served."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m3b.errors import UsageError
from m3b.interactive.segmenters.loading import PICKLE_SUFFIXES

MISSING_PACKAGES = "Teaching needs TRL and peft: pip install 'm3b[train-agents]'."
NO_TOOL_TEMPLATE = (
    "has a chat template that does not render calls of tools and their answers. Use a model that knows tools, such as "
    "Qwen3-VL (with images) or Qwen3 (without)."
)


@dataclass(frozen=True)
class LoraSettings:
    """Settings of low-rank adapters (LoRA), which are trained instead of the weights.

    Args:
        rank: of the adapters; 0 trains all weights.
        alpha: their scale, divided by the rank; by default twice the rank.
        modules: names of the layers with adapters; `all-linear` for all but the last.

    Raises:
        UsageError: a number is negative.
    """

    rank: int = 16
    alpha: int | None = None
    dropout: float = 0.0
    modules: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        if self.rank < 0 or (self.alpha is not None and self.alpha < 1) or not 0 <= self.dropout < 1:
            raise UsageError("The rank of adapters is 0 (none) or more, alpha at least 1, dropout from 0 to below 1.")

    def to_peft_config(self) -> Any:
        """Return the settings for peft; None if all weights are trained.

        Raises:
            UsageError: peft is not installed.
        """
        if not self.rank:
            return None
        try:
            from peft import LoraConfig
        except ImportError as error:
            raise UsageError(MISSING_PACKAGES) from error
        modules = self.modules if isinstance(self.modules, str) else list(self.modules)
        return LoraConfig(
            r=self.rank, lora_alpha=self.alpha or 2 * self.rank, lora_dropout=self.dropout, target_modules=modules,
            task_type="CAUSAL_LM",
        )  # fmt: skip


@dataclass(frozen=True)
class Student:
    """A model, and the processor that turns conversations into its input.

    Args:
        model: a transformers model.
        processor: a processor if the model takes images, else a tokenizer.
        takes_images: whether it takes images.
    """

    model: Any
    processor: Any
    takes_images: bool

    @property
    def tokenizer(self) -> Any:
        return getattr(self.processor, "tokenizer", self.processor)

    @property
    def suppressed_tokens(self) -> list[int]:
        """Tokens that stand for pictures: a generated one would refer to a picture that does not exist."""
        names = ("image_token_id", "video_token_id")
        token_ids = [getattr(self.processor, name, None) for name in names] if self.takes_images else []
        return sorted({token_id for token_id in token_ids if isinstance(token_id, int)})


def open_student(folder: str | Path, *, images: bool) -> Student:
    """Open a transformers model with its processor. Nothing is downloaded; the model's own code is not run.

    Args:
        images: whether it has to take images.

    Raises:
        UsageError: no such folder, no config, only pickled weights, a model without vision although images are needed,
            no chat template that renders tools; the message says what to do.
    """
    path = Path(folder).expanduser()
    takes_images = _inspect_model_folder(path)
    if images and not takes_images:
        raise UsageError(
            f"The model in {path} takes no images, and these conversations show some. Use a vision-language model, "
            "for instance one of Qwen3-VL."
        )
    try:
        import transformers
    except ImportError as error:
        raise UsageError(MISSING_PACKAGES) from error
    model_class = transformers.AutoModelForImageTextToText if takes_images else transformers.AutoModelForCausalLM
    processor_class = transformers.AutoProcessor if takes_images else transformers.AutoTokenizer
    try:
        processor = processor_class.from_pretrained(path, local_files_only=True)
        model = model_class.from_pretrained(path, local_files_only=True, use_safetensors=True)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        first_line = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise UsageError(f"The model in {path} cannot be opened: {first_line}") from error
    student = Student(model, processor, takes_images)
    _check_template(student, path)
    return student


def save_student(model: Any, processor: Any, out: Path, record: dict[str, Any]) -> None:
    """Write a whole model, adapters merged into its weights, so that any server of transformers models can load it.

    Args:
        record: how it was trained, for `taught.json`.
    """
    merged_model = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
    merged_model.save_pretrained(out, safe_serialization=True)
    processor.save_pretrained(out)
    (out / "taught.json").write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")


def make_new_folder(out: str | Path) -> Path:
    """Create the folder to write to.

    Raises:
        UsageError: it is not empty, or cannot be created.
    """
    path = Path(out).expanduser()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} exists and is not an empty folder. Name another one.")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {path} cannot be made: {error}.") from error
    return path


def _inspect_model_folder(path: Path) -> bool:
    """Return whether the model of a folder takes images, from its config alone."""
    if not path.is_dir():
        raise UsageError(f"There is no model folder {path}. Fetch one with `hf download MODEL --local-dir DIR`.")
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} holds no config.json, so it is no model folder of transformers.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} is no JSON object.")
    if not list(path.glob("*.safetensors")):
        pickle_names = sorted(
            weight_file.name for weight_file in path.iterdir() if weight_file.suffix in PICKLE_SUFFIXES
        )
        problem = (
            f"only pickled ones ({pickle_names[0]}), which can run code when they are opened"
            if pickle_names
            else "none at all"
        )
        raise UsageError(
            f"{path} holds no weights as safetensors, {problem}. Convert them on a machine that you trust: "
            "load with transformers and save_pretrained(DIR, safe_serialization=True)."
        )
    return any(key in config for key in ("vision_config", "vision_tower", "image_token_id"))


def _check_template(student: Student, path: Path) -> None:
    """Check that calls and answers appear in what the template renders."""
    name, argument, answer_text = "a_tool_of_m3b", "an_argument", "what it said"
    call = {"type": "function", "function": {"name": name, "arguments": {argument: 7}}}
    messages: Sequence[dict[str, Any]] = [
        {"role": "user", "content": _to_content("hello", student.takes_images)},
        {"role": "assistant", "content": _to_content("", student.takes_images), "tool_calls": [call]},
        {"role": "tool", "name": name, "content": _to_content(answer_text, student.takes_images)},
        {"role": "assistant", "content": _to_content("done", student.takes_images)},
    ]
    if not getattr(student.processor, "chat_template", None):
        raise UsageError(f"The model in {path} has no chat template. Use an instruction-tuned model that knows tools.")
    from jinja2 import TemplateError

    try:
        rendered = student.processor.apply_chat_template(messages, tokenize=False)
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        raise UsageError(f"The model in {path} {NO_TOOL_TEMPLATE} ({type(error).__name__}: {error})") from error
    if not all(part in rendered for part in (name, argument, answer_text)):
        raise UsageError(f"The model in {path} {NO_TOOL_TEMPLATE}")


def _to_content(text: str, takes_images: bool) -> Any:
    return [{"type": "text", "text": text}] if takes_images else text
