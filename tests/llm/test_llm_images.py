"""Images in messages: on every wire for models that see, and said to be left out for those that do not."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llm_server import Answer as answer
from llm_wires import FACTS, START, TOOLS, OpenAIWire, both
from PIL import Image

from m3b.errors import BadRequest
from m3b.llm import LLMRequest, tokens
from m3b.llm.wire_chat import ChatWire
from m3b.llm.wire_responses import ResponsesWire
from m3b.messages import ImageContent, Message, ToolCall


def picture(kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), 90).save(file, kind)
    return file.getvalue()


PNG = picture()
ENCODED = base64.b64encode(PNG).decode()
SEES = replace(FACTS, vision=True)


@pytest.mark.parametrize(("kind", "name"), [("PNG", "png"), ("JPEG", "jpeg"), ("GIF", "gif"), ("WEBP", "webp")])
def test_the_kind_is_told_by_the_first_bytes(tmp_path: Path, kind: str, name: str) -> None:
    file = tmp_path / "image"
    file.write_bytes(picture(kind))
    assert ImageContent.from_file(file) == ImageContent(picture(kind), f"image/{name}")


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="Convert it to PNG"):
        ImageContent(b"II*\0 a TIFF")


@both
def test_a_user_shows_an_image(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("A grey square.")))
    llm = wire.llm(provider.url, clock.retry())
    llm.facts = SEES
    llm.ask(LLMRequest([START[0], Message("user", "What is this?", images=(ImageContent(PNG),))], TOOLS))
    content = provider.requests[0]["messages"][-1]["content"]
    parts = {part["type"]: part for part in content}
    if wire is OpenAIWire:
        assert parts["image_url"]["image_url"]["url"] == f"data:image/png;base64,{ENCODED}"
        assert [part["type"] for part in content] == ["text", "image_url"]
    else:
        assert parts["image"]["source"] == {"type": "base64", "media_type": "image/png", "data": ENCODED}
    assert parts["text"]["text"] == "What is this?"


@both
def test_a_model_that_sees_nothing_is_told_so(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("I cannot see it.")))
    talk = [START[0], Message("user", "Look.", images=(ImageContent(PNG), ImageContent(PNG)))]
    wire.llm(provider.url, clock.retry()).ask(LLMRequest(talk, TOOLS))
    sent = json.dumps(provider.requests[0])
    assert ENCODED not in sent
    assert "2 images are left out here" in sent


TALK = [
    *START,
    Message("assistant", "", (ToolCall("a", "list_files", {}), ToolCall("b", "read_files", {}))),
    Message("tool", "first", call_id="a", images=(ImageContent(PNG),)),
    Message("tool", "second", call_id="b"),
]


@both
def test_a_tool_shows_an_image(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(answer(wire.text("ok")), answer(wire.text("ok")))
    llm = wire.llm(provider.url, clock.retry())
    llm.facts = SEES
    llm.ask(LLMRequest(TALK, TOOLS))
    llm.ask(LLMRequest([*TALK, Message("user", "Go on.")], TOOLS))
    first, second = (request["messages"] for request in provider.requests)
    if wire is OpenAIWire:
        assert [turn["role"] for turn in first[-3:]] == ["tool", "tool", "user"]
        assert first[-1]["content"][1]["image_url"]["url"].endswith(ENCODED)
        assert [turn["role"] for turn in second[-3:]] == ["tool", "tool", "user"]
        assert second[-1]["content"][0]["text"] == "Go on."
        assert second[-1]["content"][1] == first[-1]["content"][1]
    else:
        result = first[-1]["content"][0]
        assert [block["type"] for block in result["content"]] == ["text", "image"]
        assert result["content"][1]["source"]["data"] == ENCODED
        assert first[-1]["content"][1]["content"] == "second"


def test_images_go_before_the_next_turn_of_the_assistant() -> None:
    turns = ChatWire("m").to_body(LLMRequest([*TALK, Message("assistant", "I see.")]), SEES)["messages"]
    assert [turn["role"] for turn in turns[-4:]] == ["tool", "tool", "user", "assistant"]


def test_the_responses_wire() -> None:
    with_vision = json.dumps(ResponsesWire("m").to_body(LLMRequest(TALK, TOOLS), SEES))
    assert ENCODED in with_vision
    hidden = json.dumps(ResponsesWire("m").to_body(LLMRequest(TALK, TOOLS), FACTS))
    assert ENCODED not in hidden
    assert "One image is left out here" in hidden


def test_images_count_in_the_estimate() -> None:
    text_message = Message("user", "Look.")
    assert (
        tokens.estimate_message_tokens(replace(text_message, images=(ImageContent(PNG),)))
        == tokens.estimate_message_tokens(text_message) + tokens.MAX_TOKENS_PER_IMAGE
    )


@both
def test_a_refusal_of_images_is_passed_on_with_advice(wire: Any, provider: Any, clock: Any) -> None:
    provider.will(*[answer(wire.error("image content is not supported"), 400) for _ in range(2)])
    llm = wire.llm(provider.url, clock.retry())
    llm.facts = SEES
    with pytest.raises(BadRequest, match=r"image content is not supported.*--send-images"):
        llm.ask(LLMRequest(TALK, TOOLS))
    with pytest.raises(BadRequest) as refusal:
        llm.ask(LLMRequest(START, TOOLS))
    assert "--send-images" not in str(refusal.value)
