"""Both stages of teaching, whole, on a model of random weights."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toy_world import Brush, targets

from m3b.errors import DataError, UsageError
from m3b.interactive.pictures import PictureStyle
from m3b.teaching.chats import ChatRecord, messages_to_chat, read_chats
from m3b.teaching.collation import Collator, to_row
from m3b.teaching.environment import EpisodeSetup, SharedSegmenter
from m3b.teaching.expert_trajectories import TrajectoryFolder, make_trajectories, settings_of
from m3b.teaching.experts import Expert
from m3b.teaching.local_llm import LocalLLM
from m3b.teaching.reinforced import ReinforcedRecipe, _make_reinforced_trainer, teach_reinforced
from m3b.teaching.student_models import LoraSettings, open_student
from m3b.teaching.supervised import SupervisedRecipe, teach_supervised

LOOK = PictureStyle(32, rulers=False)
ONE_STEP = ReinforcedRecipe(
    steps=1, rollouts=2, lr=1e-3, max_turns=2, max_tokens=60, look=LOOK, adapters=LoraSettings(rank=0)
)
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(not (find_spec("trl") and find_spec("peft")), reason="needs trl and peft"),
]


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> list[ChatRecord]:
    out = tmp_path_factory.mktemp("chats") / "out"
    expert = Expert(("hybrid",), 2, min_gain=0.01, enough=0.9, jitter=0.1, look=LOOK)
    make_trajectories(
        targets(4, 1), Brush(), TrajectoryFolder(out, settings_of("toy", "brush", expert, 0.0)), expert, held_out=0.0
    )
    return list(read_chats(out))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_adapters_learn_and_are_merged(student_folder: Path, chats: list[ChatRecord], tmp_path: Path) -> None:
    recipe = SupervisedRecipe(steps=2, batch=2, accumulate=1, lr=1e-2, adapters=LoraSettings(rank=2))
    messages: list[str] = []
    taught = teach_supervised(student_folder, chats, tmp_path / "out", recipe, on_message=messages.append)
    assert [entry["step"] for entry in taught.curve if "loss" in entry] == [1, 2]
    before, after = weights(student_folder), weights(tmp_path / "out")
    assert before.keys() == after.keys(), "a whole model, as any server takes it"
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert not any("embed_tokens" in name or "lm_head" in name for name in changed)
    assert "parameters are trained" in messages[0]
    assert json.loads((tmp_path / "out" / "taught.json").read_text())["stage"] == "supervised"
    assert LocalLLM(tmp_path / "out").facts.vision
    with pytest.raises(UsageError, match="not an empty folder"):
        teach_supervised(student_folder, chats, tmp_path / "out", recipe)


def test_conversations_with_pictures_need_a_model_that_sees(chats: list[ChatRecord], tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "text" / "model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="takes no images"):
        teach_supervised(tmp_path / "text", chats, tmp_path / "out")
    with pytest.raises(DataError, match="no conversation"):
        teach_supervised(tmp_path / "text", [], tmp_path / "none")


@pytest.mark.slow
def test_both_stages_say_the_same_before_the_first_turn(
    student_folder: Path, chats: list[ChatRecord], tmp_path: Path
) -> None:
    student = open_student(student_folder, images=True)
    chat = chats[0]
    (target,) = (candidate for candidate in targets(4, 1) if candidate.case == chat.facts["case"])
    stage = EpisodeSetup([target], SharedSegmenter(Brush()), 2, LOOK)
    trainer = _make_reinforced_trainer(student, stage, tmp_path, ONE_STEP)
    prompts: list[list[int]] = []
    inner = trainer._generate_single_turn

    def listening(prompt_ids, *args, **kwargs):  # type: ignore[no-untyped-def]
        prompts.extend(prompt_ids)
        return inner(prompt_ids, *args, **kwargs)

    trainer._generate_single_turn = listening
    trainer.train()
    taught = Collator(student)([to_row(chat)])["input_ids"][0].tolist()
    assert taught[: len(prompts[0])] == prompts[0]


def test_a_reward_reaches_the_weights_through_tool_turns(
    student_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's words are put into its mouth: one episode boxes the target, the other nothing. What follows from the
    different rewards is TRL's own: advantages, a mask that leaves the tools' answers out, a gradient, new weights."""
    import trl

    (target,) = training_targets = targets(1, 1)
    rows, columns = target.truth.nonzero()
    tight = [int(side / 64 * 1000) for side in (columns.min(), rows.min(), columns.max(), rows.max())]
    words = open_student(student_folder, images=True).tokenizer
    box = '<tool_call>\n{{"name": "add_box", "arguments": {{"box": {0}}}}}\n</tool_call><|im_end|>'
    script = [
        [box.format(tight), box.format([0, 0, 90, 90])],
        ['<tool_call>\n{"name": "stop", "arguments": {"keep": 1}}\n</tool_call><|im_end|>', "Done.<|im_end|>"],
        ["Done.<|im_end|>"],
    ]

    def scripted(self, prompt_ids, *args, **kwargs):  # type: ignore[no-untyped-def]
        turn = script.pop(0)
        assert len(prompt_ids) == len(turn)
        return [words(text, add_special_tokens=False)["input_ids"] for text in turn], None

    monkeypatch.setattr(trl.GRPOTrainer, "_generate_single_turn", scripted)
    recipe = replace(ONE_STEP, max_tokens=300, warm_up=0.0)
    taught = teach_reinforced(student_folder, training_targets, Brush(), tmp_path / "out", recipe)
    assert script == []
    (step,) = (entry for entry in taught.curve if "reward" in entry)
    assert step["rewards/form/mean"] == pytest.approx(0.75)
    assert step["tools/failure_frequency"] == 0
    assert step["reward_std"] > 0.1
    assert step["grad_norm"] > 0
    before, after = weights(student_folder), weights(tmp_path / "out")
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_stage_without_targets_is_refused(student_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no target"):
        teach_reinforced(student_folder, [], Brush(), tmp_path / "out")


@pytest.mark.parametrize("wrong", [{"rollouts": 1}, {"steps": 0}, {"lr": 0.0}, {"beta": -1.0}, {"temperature": 0.0}])
def test_recipes_of_stage_two_have_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        ReinforcedRecipe(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"epochs": 0.0}, {"batch": 0}, {"lr": -1.0}, {"steps": -1}])
def test_recipes_of_stage_one_have_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        SupervisedRecipe(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_diverging_training_says_so(student_folder: Path, chats: list[ChatRecord], tmp_path: Path) -> None:
    recipe = SupervisedRecipe(steps=4, batch=1, accumulate=1, lr=1e30, warm_up=0.0, adapters=LoraSettings(rank=0))
    with pytest.raises(DataError, match="diverged"):
        teach_supervised(student_folder, chats, tmp_path / "out", recipe)


@pytest.mark.slow
def test_a_roles_conversation_teaches_a_model_without_vision(student_folder: Path, tmp_path: Path) -> None:
    """Words and calls alone, as journals give them, on a text model with the same vocabulary."""
    from toy_student import TEMPLATE
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from m3b.messages import Message, ToolCall

    words = open_student(student_folder, images=False).tokenizer
    words.chat_template = TEMPLATE
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "text")
    words.save_pretrained(tmp_path / "text")
    call = ToolCall("c", "undo", {})
    messages = [
        Message("user", "mask"), Message("assistant", "", (call,)), Message("tool", "no mask", call_id="c"),
        Message("assistant", "Done"),
    ]  # fmt: skip
    chat = ChatRecord("run/data_engineer", messages_to_chat(messages), facts={"learn": [False, True]})
    recipe = SupervisedRecipe(steps=2, batch=1, accumulate=1, lr=1e-2, adapters=LoraSettings(rank=2))
    taught = teach_supervised(tmp_path / "text", [chat], tmp_path / "out", recipe)
    assert (taught.folder / "model.safetensors").is_file()
    assert not LocalLLM(tmp_path / "out").facts.vision
