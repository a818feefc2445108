"""Collate conversations into batches by the model's own chat template; only the assistant's tokens have loss."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3b.errors import DataError, UsageError
from m3b.teaching.chats import ChatRecord
from m3b.teaching.student_models import MISSING_PACKAGES, Student

IGNORE_INDEX = -100
"""Label of a token without loss."""


def to_row(chat: ChatRecord) -> dict[str, Any]:
    """Return a conversation as a row of a data set.

    The conversation is stored as one text, because a table would give every call the arguments of all others, as empty
    ones.
    """
    conversation = {"messages": chat.messages, "tools": chat.tools, "learn": chat.facts.get("learn")}
    return {"chat": json.dumps(conversation), "images": [str(image) for image in chat.images]}


def insert_images(
    messages: Sequence[Mapping[str, Any]], images: Sequence[Any], *, blocks: bool
) -> list[dict[str, Any]]:
    """Return messages with the images in their positions.

    Args:
        blocks: whether text becomes a block too, as processors expect.
    """
    remaining, filled_messages = list(images), []
    for message in messages:
        content = message.get("content", "")
        if isinstance(content, list):
            content = [
                {"type": "image", "image": remaining.pop(0)}
                if block["type"] == "image" and "image" not in block
                else block
                for block in content
            ]
        elif blocks:
            content = [{"type": "text", "text": content or ""}]
        filled_messages.append({**message, "content": content})
    return filled_messages


def get_training_template(processor: Any) -> str | None:
    """Return the template to train with: None for the model's own if it marks the assistant's tokens, else TRL's copy.

    Raises:
        UsageError: there is neither.
    """
    if re.search(r"\{%-?\s*generation\s*-?%\}", processor.chat_template):
        return None
    try:
        from trl.chat_template_utils import get_training_chat_template

        template: str | None = get_training_chat_template(processor)
    except ImportError as error:
        raise UsageError(MISSING_PACKAGES) from error
    except ValueError as error:
        raise UsageError(
            "The model's chat template does not mark the assistant's words, and TRL knows no copy of it that does. Put "
            "{% generation %} ... {% endgeneration %} around them in its chat_template.jinja."
        ) from error
    return template


class Collator:
    """Collates conversations into batches.

    Args:
        student: the model for which inputs are made.
        max_length: maximum tokens of a conversation; a longer one is an error, since a truncated one has no end to
            learn.
    """

    def __init__(self, student: Student, max_length: int | None = None) -> None:
        self.student, self.max_length = student, max_length
        self.template = get_training_template(student.processor)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return `input_ids`, `attention_mask`, `labels` (batch, tokens), and the inputs for images.

        Raises:
            DataError: a conversation is longer than allowed, or has no token of the assistant.
        """
        chats = [json.loads(table_row["chat"]) for table_row in rows]
        batch = self._render_with_images(chats, rows) if self.student.takes_images else self._render_text(chats)
        mask = batch.pop("assistant_masks")
        if self.max_length is not None and batch["input_ids"].shape[1] > self.max_length:
            raise DataError(
                f"A conversation has {batch['input_ids'].shape[1]:,} tokens, more than max_length {self.max_length:,}. "
                "Raise it, leave long conversations out (--max-tokens), or show smaller pictures (--side)."
            )
        if not mask.any(dim=1).all():
            raise DataError(
                "The chat template marks no word of the assistant's in a conversation: nothing can be learnt."
            )
        for table_row, chat in zip(mask, chats, strict=True):
            if chat["learn"] is not None:
                _mask_turns(table_row, chat["learn"])
        labels = batch["input_ids"].clone()
        labels[(batch["attention_mask"] == 0) | (mask == 0)] = IGNORE_INDEX
        return {**batch, "labels": labels}

    def _render_with_images(
        self, chats: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        tools = chats[0]["tools"]
        if any(chat["tools"] != tools for chat in chats):
            raise DataError(
                "Conversations with pictures have to offer the same tools. Train on one data set at a time."
            )
        messages = [
            insert_images(chat["messages"], [_open_image(file) for file in table_row["images"]], blocks=True)
            for chat, table_row in zip(chats, rows, strict=True)
        ]
        encoded = self.student.processor.apply_chat_template(
            messages, tools=tools or None, chat_template=self.template, tokenize=True, return_dict=True,
            return_tensors="pt", return_assistant_tokens_mask=True,
            processor_kwargs={"padding": True, "padding_side": "right", "add_special_tokens": False},
        )  # fmt: skip
        return _to_tensors(encoded)

    def _render_text(self, chats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        import torch

        tokenizer = self.student.processor
        columns: dict[str, list[Any]] = {"input_ids": [], "attention_mask": [], "assistant_masks": []}
        for chat in chats:
            encoded = tokenizer.apply_chat_template(
                chat["messages"], tools=chat["tools"] or None, chat_template=self.template, tokenize=True,
                return_dict=True, return_assistant_tokens_mask=True,
            )  # fmt: skip
            columns["input_ids"].append(torch.tensor(encoded["input_ids"]))
            columns["attention_mask"].append(torch.ones(len(encoded["input_ids"]), dtype=torch.long))
            columns["assistant_masks"].append(torch.tensor(encoded["assistant_masks"]))
        padding_values = {
            "input_ids": tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        }
        return {
            name: torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding_values.get(name, 0))
            for name, parts in columns.items()
        }


def _mask_turns(mask: Any, learn: Sequence[bool]) -> None:
    """Remove the turns that are no example from a mask over tokens, in place.

    Args:
        learn: for each of the assistant's turns whether it is learnt.

    Raises:
        DataError: the mask has another number of turns.
    """
    import torch

    is_marked = mask.bool()
    previous_marked = torch.cat([is_marked.new_zeros(1), is_marked[:-1]])
    turn_number = torch.cumsum(is_marked & ~previous_marked, 0)  # the turn that a token belongs to, from 1
    if int(turn_number[-1]) != len(learn):
        raise DataError(
            f"The chat template marks {int(turn_number[-1])} turns of the assistant's; there are {len(learn)}."
        )
    for turn, is_example in enumerate(learn, 1):
        if not is_example:
            mask[turn_number == turn] = 0


def _to_tensors(encoded: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {name: value if torch.is_tensor(value) else torch.tensor(value) for name, value in encoded.items()}


def _open_image(file: str) -> Any:
    from PIL import Image

    with Image.open(Path(file)) as image:
        return image.convert("RGB")
