"""Conversations as training data: one JSON object a line, with the pictures as files next to it.

A line holds `id`, `messages` (in the chat format of TRL and transformers, calls as `tool_calls`, pictures as blocks of
the type `image` in their order), `tools` (JSON schemas), `images` (paths relative to the file's folder), `reward` and
`facts`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from m3b.errors import UsageError
from m3b.messages import Message, ToolSpec

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class ChatRecord:
    """One conversation.

    Args:
        messages: as made by `message_to_chat`.
        tools: as made by `tool_to_chat`.
        images: files, in the order of the image blocks.
        reward: the reward of the conversation.
        facts: its source and its results.
    """

    id: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    images: tuple[Path, ...] = ()
    reward: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_line(self, folder: Path) -> str:
        """Return the line for a file in `folder`, with its line break."""
        images = [os.path.relpath(image, folder).replace(os.sep, "/") for image in self.images]
        record = {
            "id": self.id,
            "messages": self.messages,
            "tools": self.tools,
            "images": images,
            "reward": self.reward,
            "facts": dict(self.facts),
        }
        return json.dumps(record, ensure_ascii=False) + "\n"


def message_to_chat(message: Message, tool_names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Convert a turn to the chat format; a picture is represented by its position, not its bytes.

    Args:
        tool_names: call id -> tool name, for a tool's answer.
    """
    content: Any = message.text
    if message.images:
        content = [{"type": "text", "text": message.text}] if message.text else []
        content += [{"type": "image"} for _ in message.images]
    turn: dict[str, Any] = {"role": message.role, "content": content}
    if message.role == "tool":
        turn["name"] = (tool_names or {}).get(message.call_id, "")
    if message.calls:
        turn["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
        ]
    return turn


def messages_to_chat(messages: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """Convert a whole conversation to the chat format."""
    tool_names = {call.id: call.name for message in messages for call in message.calls}
    return tuple(message_to_chat(message, tool_names) for message in messages)


def tool_to_chat(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool's schema in the format of chat templates."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def find_chats_file(path: str | Path) -> Path:
    """Return the file of a data set: itself, or `train.jsonl` in its folder.

    Raises:
        UsageError: there is none.
    """
    expanded = Path(path).expanduser()
    file = expanded / "train.jsonl" if expanded.is_dir() else expanded
    if not file.is_file():
        raise UsageError(
            f"There are no trajectories at {expanded}. `m3b interactive trajectories` makes them from masks, "
            "`m3b trajectories` from runs."
        )
    return file


def read_chats(path: str | Path) -> Iterator[ChatRecord]:
    """Read the conversations of a file, or of `train.jsonl` in a folder.

    Raises:
        UsageError: there is no file, or a line is no conversation or names a missing picture; the message says which.
    """
    file = find_chats_file(path)
    with file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield chat_from_json(json.loads(line), file.parent)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise UsageError(f"{file}, line {number}, is no conversation to train on: {reason}.") from error


def chat_from_json(raw: Any, folder: Path) -> ChatRecord:
    """Return a conversation from its JSON object.

    Raises:
        ValueError, KeyError, TypeError: it is no conversation.
    """
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    messages, images = raw["messages"], raw.get("images") or []
    if not isinstance(messages, list) or not messages or not isinstance(images, list):
        raise ValueError("`messages` is no list of turns, or `images` no list of files")
    image_count = 0
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(f"a turn has none of the roles {', '.join(ROLES)}")
        content = message.get("content")
        image_count += sum(block.get("type") == "image" for block in content) if isinstance(content, list) else 0
    if messages[-1]["role"] != "assistant":
        raise ValueError("its last turn is not the assistant's")
    if image_count != len(images):
        raise ValueError(f"{image_count} turns show a picture, and {len(images)} files are named")
    files = tuple(_resolve_image(folder, str(image)) for image in images)
    return ChatRecord(str(raw.get("id", "")), tuple(messages), tuple(raw.get("tools") or ()), files,
                float(raw.get("reward") or 0), raw.get("facts") or {})  # fmt: skip


def _resolve_image(folder: Path, name: str) -> Path:
    """Return a picture's file, which must lie below the folder of its conversations."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"the picture {name} lies outside of {folder}")
    file = folder / relative
    if not file.is_file():
        raise ValueError(f"the picture {name} is not there")
    return file
