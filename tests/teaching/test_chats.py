"""Files of conversations: written, read back, and refused where they cannot be trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from m3b.errors import UsageError
from m3b.messages import ImageContent, Message, ToolCall, ToolSpec
from m3b.teaching.chats import ChatRecord, messages_to_chat, read_chats, tool_to_chat

PNG = ImageContent(b"\x89PNG\r\n\x1a\n")


def conversation() -> list[Message]:
    call = ToolCall("c1", "look", {"at": [1, 2]})
    return [
        Message("system", "You look."),
        Message("user", "Look at this.", images=(PNG,)),
        Message("assistant", "", (call,)),
        Message("tool", "seen", call_id="c1", images=(PNG,)),
        Message("assistant", "Done."),
    ]


def write_chat_file(folder: Path, **changed: Any) -> Path:
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(PNG.data)
    chat = ChatRecord("one", messages_to_chat(conversation()), (), (folder / "a.png", folder / "b.png"), 0.5)
    raw = json.loads(chat.to_line(folder)) | changed
    file = folder / "train.jsonl"
    file.write_text(json.dumps(raw) + "\n")
    return file


def test_turns_have_the_form_of_chat_templates() -> None:
    user, call, answer = messages_to_chat(conversation())[1:4]
    assert user["content"] == [{"type": "text", "text": "Look at this."}, {"type": "image"}]
    assert call["tool_calls"] == [{"type": "function", "function": {"name": "look", "arguments": {"at": [1, 2]}}}]
    assert answer["name"] == "look"
    assert tool_to_chat(ToolSpec("look", "Looks.", {"type": "object"}))["function"]["parameters"] == {"type": "object"}


def test_a_line_reads_back(tmp_path: Path) -> None:
    file = write_chat_file(tmp_path)
    assert json.loads(file.read_text())["images"] == ["a.png", "b.png"]
    (chat,) = read_chats(tmp_path)
    assert chat.messages == tuple(messages_to_chat(conversation()))
    assert chat.images == (tmp_path / "a.png", tmp_path / "b.png")
    assert chat.reward == 0.5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"messages": []}, "no list of turns"),
        ({"messages": [{"role": "expert", "content": "x"}]}, "none of the roles"),
        ({"messages": [{"role": "user", "content": "x"}], "images": []}, "not the assistant's"),
        ({"images": ["a.png"]}, "2 turns show a picture, and 1 files"),
        ({"images": ["a.png", "gone.png"]}, "gone.png is not there"),
        ({"images": ["a.png", "../b.png"]}, "lies outside"),
        ({"images": ["a.png", "/etc/hostname"]}, "lies outside"),
    ],
)
def test_what_cannot_be_trained_on_is_told_by_its_line(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    file = write_chat_file(tmp_path, **changed)
    with pytest.raises(UsageError, match=f"line 1, is no conversation.*{message}"):
        list(read_chats(file))


def test_a_line_that_is_no_json_or_lacks_its_turns(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    for text, message in (("{", "line 1"), ("[]\n", "no JSON object"), ("{}\n", "it has no 'messages'")):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            list(read_chats(file))


def test_a_folder_without_trajectories_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="m3b interactive trajectories"):
        list(read_chats(tmp_path))
