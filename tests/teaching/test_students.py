"""Models that can be taught are opened, others are refused; conversations become batches whose loss is the agent's words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from m3b.llm import LLMRequest

pytest.importorskip("transformers")
import torch
from toy_student import TEMPLATE
from toy_world import Brush, targets

from m3b.errors import ContextOverflow, DataError, UsageError
from m3b.interactive.agent import EpisodeRequest, run_episode
from m3b.interactive.episode import Episode
from m3b.interactive.pictures import PictureStyle
from m3b.messages import Message, ToolCall
from m3b.teaching.chats import ChatRecord, messages_to_chat, read_chats, tool_to_chat
from m3b.teaching.collation import IGNORE_INDEX, Collator, to_row
from m3b.teaching.evaluation import compare_scores, play_episodes
from m3b.teaching.expert_trajectories import TrajectoryFolder, make_trajectories, settings_of
from m3b.teaching.experts import CLOSING_MESSAGE, Expert, get_tool_specs
from m3b.teaching.local_llm import LocalLLM
from m3b.teaching.student_models import LoraSettings, open_student

LOOK = PictureStyle(32, rulers=False)


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> list[ChatRecord]:
    out = tmp_path_factory.mktemp("chats") / "out"
    expert = Expert(("hybrid",), 2, min_gain=0.01, enough=0.9, jitter=0.1, look=LOOK)
    make_trajectories(
        targets(3, 1),
        Brush(),
        TrajectoryFolder(out, settings_of("toy", "brush", expert, 0.0)),
        expert,
        held_out=0.0,
    )
    return list(read_chats(out))


def broken(folder: Path, out: Path, **config: Any) -> Path:
    shutil.copytree(folder, out)
    file = out / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return out


def test_a_student_that_sees_is_known_by_its_config(student_folder: Path) -> None:
    student = open_student(student_folder, images=True)
    assert student.takes_images
    assert student.tokenizer.eos_token == "<|im_end|>"


def test_folders_that_hold_no_student_are_told(student_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model folder"):
        open_student(tmp_path / "none", images=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no config\.json"):
        open_student(tmp_path / "empty", images=False)
    pickled = broken(student_folder, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(UsageError, match="only pickled ones"):
        open_student(pickled, images=False)
    unknown = broken(student_folder, tmp_path / "unknown", model_type="no_such_model")
    with pytest.raises(UsageError, match="cannot be opened"):
        open_student(unknown, images=True)


def test_a_model_without_vision_is_not_shown_pictures(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="takes no images"):
        open_student(tmp_path, images=True)


@pytest.mark.parametrize("template", ["{{ messages[0].content[0].text }}", "{{ raise_exception('no tools') }}"])
def test_a_template_without_tools_is_refused(student_folder: Path, tmp_path: Path, template: str) -> None:
    place = broken(student_folder, tmp_path / "deaf")
    (place / "chat_template.jinja").write_text(template)
    with pytest.raises(UsageError, match="does not render calls"):
        open_student(place, images=True)


def test_the_loss_is_on_the_agents_words_alone(student_folder: Path, chats: list[ChatRecord]) -> None:
    student = open_student(student_folder, images=True)
    batch = Collator(student)([to_row(chat) for chat in chats])
    for number, chat in enumerate(chats):
        learnt = batch["labels"][number]
        learnt_text = student.tokenizer.decode(learnt[learnt != IGNORE_INDEX])
        calls = [call for message in chat.messages for call in message.get("tool_calls", [])]
        expected = [
            f'<tool_call>\n{{"name": "{call["function"]["name"]}", "arguments": {json.dumps(call["function"]["arguments"])}}}'
            "\n</tool_call>"
            for call in calls
        ]
        assert learnt_text == "".join(f"{text}<|im_end|>" for text in [*expected, CLOSING_MESSAGE])
    assert len(batch["image_grid_thw"]) == sum(len(chat.images) for chat in chats)


def test_turns_that_failed_are_left_out_of_the_loss(student_folder: Path, chats: list[ChatRecord]) -> None:
    student = open_student(student_folder, images=True)
    turns = sum(message["role"] == "assistant" for message in chats[0].messages)
    learn = [False, *[True] * (turns - 1)]
    partial_chat = ChatRecord("x", chats[0].messages, chats[0].tools, chats[0].images, facts={"learn": learn})
    all_labels, partial_labels = (Collator(student)([to_row(chat)])["labels"][0] for chat in (chats[0], partial_chat))
    learnt_text = student.tokenizer.decode(partial_labels[partial_labels != IGNORE_INDEX])
    assert "add_box" not in learnt_text
    assert learnt_text.endswith(f"{CLOSING_MESSAGE}<|im_end|>")
    assert int((all_labels != IGNORE_INDEX).sum()) > int((partial_labels != IGNORE_INDEX).sum())
    wrong = ChatRecord("x", chats[0].messages, chats[0].tools, chats[0].images, facts={"learn": [True]})
    with pytest.raises(DataError, match="there are 1"):
        Collator(student)([to_row(wrong)])


def test_long_conversations_are_an_error_and_not_cut(student_folder: Path, chats: list[ChatRecord]) -> None:
    with pytest.raises(DataError, match="more than max_length 20"):
        Collator(open_student(student_folder, images=True), max_length=20)([to_row(chats[0])])


def test_a_template_without_marks_says_what_to_do(student_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    place = broken(student_folder, tmp_path / "unmarked")
    unmarked_template = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    (place / "chat_template.jinja").write_text(unmarked_template)
    with pytest.raises(UsageError, match="generation"):
        Collator(open_student(place, images=True))


def test_at_work_it_is_asked_as_it_was_taught(student_folder: Path, chats: list[ChatRecord]) -> None:
    """The words before the agent's first turn are those of the batch, token by token."""
    model = LocalLLM(student_folder, max_tokens=2)
    chat = chats[0]
    (target,) = (candidate for candidate in targets(3, 1) if candidate.case == chat.facts["case"])
    generate_inputs: list[Any] = []
    generated = model._generate
    model._generate = lambda inputs: generate_inputs.append(inputs) or generated(inputs)  # type: ignore[method-assign, func-returns-value]
    run_episode(Episode(Brush(), target.image), EpisodeRequest("disk", 2, style=LOOK), model)
    prompt_ids = generate_inputs[0]["input_ids"][0].tolist()
    taught = Collator(model.student)([to_row(chat)])
    assert taught["input_ids"][0].tolist()[: len(prompt_ids)] == prompt_ids
    torch.testing.assert_close(
        generate_inputs[0]["pixel_values"], taught["pixel_values"][: len(generate_inputs[0]["pixel_values"])]
    )


def test_a_model_of_random_weights_ends_within_its_budget(student_folder: Path) -> None:
    scores = play_episodes(targets(2, 3), Brush(), LocalLLM(student_folder, max_tokens=4), max_turns=2, style=LOOK)
    assert [episode_score.is_valid for episode_score in scores] == [False, False]
    assert compare_scores(scores, scores)["rise"]["mean"] == 0


def test_what_it_writes_is_read_as_calls(student_folder: Path) -> None:
    model = LocalLLM(student_folder)
    words = '<tool_call>\n{"name": "add_box", "arguments": {"box": [1, 2, 3, 4]}}\n</tool_call><|im_end|>'
    ids = model.student.tokenizer(words)["input_ids"]
    model._generate = lambda inputs: [*inputs["input_ids"][0].tolist(), *ids]  # type: ignore[method-assign]
    reply = model.ask(LLMRequest([Message("user", "Target: disk")], get_tool_specs()))
    assert (reply.calls[0].name, reply.calls[0].arguments) == ("add_box", {"box": [1, 2, 3, 4]})
    assert reply.stop == "tools"
    assert reply.usage.output_tokens == len(ids)


def test_a_conversation_longer_than_the_window_is_told(student_folder: Path) -> None:
    with pytest.raises(ContextOverflow, match="the window is 2,048"):
        LocalLLM(student_folder).ask(LLMRequest([Message("user", "x " * 3000)]))


def test_words_alone_make_batches_too(student_folder: Path) -> None:
    """A role's conversations have no pictures; they are read by the tokenizer alone."""
    from m3b.teaching.student_models import Student

    seeing = open_student(student_folder, images=False)
    student = Student(seeing.model, seeing.tokenizer, False)
    student.processor.chat_template = TEMPLATE
    call = ToolCall("c", "undo", {})
    messages = [
        Message("user", "mask"),
        Message("assistant", "", (call,)),
        Message("tool", "no mask", call_id="c"),
        Message("assistant", "Done"),
    ]
    tools = tuple(tool_to_chat(tool) for tool in get_tool_specs())
    two = [ChatRecord(str(n), messages_to_chat(messages[: 4 * n]), tools) for n in (1, 1)]
    batch = Collator(student)([{"chat": to_row(chat)["chat"]} for chat in two])
    assert batch["input_ids"].shape == batch["labels"].shape
    learnt = batch["labels"][0]
    assert student.tokenizer.decode(learnt[learnt != IGNORE_INDEX]) == (
        '<tool_call>\n{"name": "undo", "arguments": {}}\n</tool_call><|im_end|>Done<|im_end|>'
    )


def test_adapters_have_bounds() -> None:
    assert LoraSettings(rank=0).to_peft_config() is None
    with pytest.raises(UsageError):
        LoraSettings(rank=-1)
    pytest.importorskip("peft")
    assert LoraSettings(rank=4).to_peft_config().lora_alpha == 8
