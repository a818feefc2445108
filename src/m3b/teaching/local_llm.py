"""A trained local model in this process: an `LLM` for `m3b.interactive.segment`, for benchmarks and for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.errors import ContextOverflow, RunCancelled
from m3b.llm.base import LLMRequest, ModelFacts
from m3b.llm.text_calls import find_calls
from m3b.messages import ImageContent, Message, Reply, ToolCall, ToolSpec
from m3b.teaching.chats import messages_to_chat, tool_to_chat
from m3b.teaching.collation import insert_images
from m3b.teaching.student_models import Student, open_student


class LocalLLM:
    """A transformers model, prompted as in its training: the same template, pictures in the tools' answers.

    Args:
        model: a local folder, or a student that is open already.
        max_tokens: of one reply.
        temperature: 0 takes the most probable token each time.

    Raises:
        UsageError: the folder holds no suitable model.
    """

    def __init__(self, model: str | Path | Student, *, max_tokens: int = 256, temperature: float = 0.0) -> None:
        self.student = model if isinstance(model, Student) else open_student(model, images=False)
        self.name = f"local:{'student' if isinstance(model, Student) else Path(model).name}"
        self.max_tokens, self.temperature = max_tokens, temperature
        text = self.student.model.config.get_text_config()
        window = int(getattr(text, "max_position_embeddings", 8192))
        self.facts = ModelFacts(window=window, max_output=min(max_tokens, window // 2), price_in=0.0, price_out=0.0,
                           vision=self.student.takes_images)  # fmt: skip
        self.student.model.eval()

    def ask(self, request: LLMRequest) -> Reply:
        """See `LLM.ask`.

        Raises:
            ContextOverflow: the conversation is longer than the window.
            RunCancelled: `request.is_cancelled` said so before the reply was begun.
        """
        if request.is_cancelled is not None and request.is_cancelled():
            raise RunCancelled("The request was cancelled.")
        inputs = self._prepare_inputs(request.messages, request.tools)
        length = int(inputs["input_ids"].shape[1])
        if length + self.max_tokens > self.facts.window:
            raise ContextOverflow(f"The conversation has {length:,} tokens; the window is {self.facts.window:,}.")
        ids = self._generate(inputs)[length:]
        text = self.student.tokenizer.decode(ids, skip_special_tokens=True)
        text_without_calls, text_calls = find_calls(text, request.tools)
        calls = tuple(
            ToolCall(f"call_{len(request.messages)}_{number}", text_call.name, text_call.arguments, text_call.error)
            for number, text_call in enumerate(text_calls)
        )
        usage = replace(self.facts.compute_usage(length, 0, len(ids)), requests=1)
        is_truncated = len(ids) >= self.max_tokens
        return Reply(
            text_without_calls.strip(),
            calls,
            usage,
            "tools" if calls else "length" if is_truncated else "end",
            self.name,
        )

    def _prepare_inputs(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Any:
        student = self.student
        images = (
            [_open_picture(picture) for message in messages for picture in message.images]
            if student.takes_images
            else []
        )
        visible_messages = [message if student.takes_images else replace(message, images=()) for message in messages]
        turns = insert_images(messages_to_chat(visible_messages), images, blocks=student.takes_images)
        encoded = student.processor.apply_chat_template(
            [turns] if student.takes_images else turns, tools=[tool_to_chat(tool) for tool in tools] or None,
            add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
        )  # fmt: skip
        return encoded.to(student.model.device)

    def _generate(self, inputs: Any) -> list[int]:
        import torch

        settings: dict[str, Any] = {"do_sample": self.temperature > 0}
        if self.temperature > 0:
            settings["temperature"] = self.temperature
        if self.student.suppressed_tokens:
            settings["suppress_tokens"] = self.student.suppressed_tokens
        tokenizer = self.student.tokenizer
        with torch.inference_mode():
            output = self.student.model.generate(
                **inputs, max_new_tokens=self.max_tokens, eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id, **settings,
            )  # fmt: skip
        token_ids: list[int] = output[0].tolist()
        return token_ids


def _open_picture(picture: ImageContent) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(picture.data)) as image:
        return image.convert("RGB")
