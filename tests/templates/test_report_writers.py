"""Writers of the registry in the report template: adapters on a language model, and the image tower beside it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from report_kit import Get, assemble_report, modules_of_a_project
from template_kit import call

pytestmark = pytest.mark.skipif(not find_spec("peft"), reason="needs peft")
REPORTS = ["There is a left pleural effusion of 4.5 cm.", "Left effusion, unchanged. Heart normal.", "No effusion."] * 4
VOCABULARY = 300
SIDE = 32
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": VOCABULARY,
    "initializer_range": 0.2,  # of a model that was trained: small random weights give no word a chance
}
VISION_CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": 8,
}


get = pytest.fixture(scope="module")(modules_of_a_project)


def _model(kind: str) -> Any:
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        Gemma3Config,
        GPT2Config,
        LlamaConfig,
        LlavaConfig,
    )

    torch.manual_seed(0)
    if kind == "gpt2":
        return AutoModelForCausalLM.from_config(
            GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=256, vocab_size=VOCABULARY, initializer_range=0.2)
        )
    if kind == "llama":
        return AutoModelForCausalLM.from_config(LlamaConfig(**TEXT, tie_word_embeddings=False))
    if kind == "gemma3":
        text = {**TEXT, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512, "sliding_window": 64}
        marks = {"image_token_index": 299, "boi_token_index": 298, "eoi_token_index": 297}
        return AutoModelForImageTextToText.from_config(
            Gemma3Config(text_config=text, vision_config=VISION_CONFIG, mm_tokens_per_image=4, **marks)
        )
    text, vision = (
        {"model_type": "llama", **TEXT},
        {"model_type": "clip_vision_model", "projection_dim": 16, **VISION_CONFIG, "num_hidden_layers": 2},
    )
    return AutoModelForImageTextToText.from_config(
        LlavaConfig(text_config=text, vision_config=vision, image_token_index=299)
    )


def _folder(place: Path, words: Any, kind: str) -> Path:
    """A tiny model of random weights, in the layout in which the real one is published."""
    from transformers import PreTrainedTokenizerFast

    _model(kind).save_pretrained(place)
    PreTrainedTokenizerFast(tokenizer_object=words.tokenizer).save_pretrained(place)
    return place


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma3"])
def test_adapters_learn_and_go_into_the_weights(get: Get, tmp_path: Path, kind: str) -> None:
    words = get("m3b.training.report.tokenizer").ReportTokenizer.train(REPORTS, VOCABULARY)
    folder = str(_folder(tmp_path, words, kind))
    text = get("m3b.training.report.lora").AdaptedText(folder, len(words), 64, 4, sorted(words.marks))
    learnt = {name for name, parameter in text.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name in ("marks", "head_rows") for name in learnt)
    before = {name: value.clone() for name, value in text.named_parameters() if name not in learnt}
    tokens = torch.tensor([words.sequence({"findings": REPORTS[0]}, {"findings": 12, "impression": 4})[0]])
    memory, keep = torch.randn(1, 3, 32), torch.ones(1, 3, dtype=torch.bool)
    optimizer = torch.optim.AdamW([p for p in text.parameters() if p.requires_grad], lr=1e-2)

    def loss() -> torch.Tensor:
        logits = text.advance(tokens[:, :-1], text.begin(memory, keep))[0]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    first = loss().item()
    for _ in range(60):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    text.eval()
    assert loss().item() < 0.6 * first
    assert all(torch.equal(value, dict(text.named_parameters())[name]) for name, value in before.items())
    saved = {name: value.clone() for name, value in text.state_dict().items()}
    assert set(saved) == learnt, "a checkpoint holds what was learnt alone"
    again = get("m3b.training.report.lora").AdaptedText(folder, len(words), 64, 4, sorted(words.marks)).eval()
    again.load_state_dict(saved)
    with torch.no_grad():
        expected = text.advance(tokens, text.begin(memory, keep))[0]
        assert torch.equal(again.advance(tokens, again.begin(memory, keep))[0], expected)
        again.merge()
        merged = get("m3b.training.report.pretrained_writer").PretrainedText(folder, len(words), 64, False).eval()
        merged.load_state_dict(again.state_dict())
        merged_logits = merged.advance(tokens, merged.begin(memory, keep))[0]
    assert torch.allclose(merged_logits, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["gemma3", "llava"])
def test_an_image_tower_is_that_of_the_writer(get: Get, tmp_path: Path, kind: str) -> None:
    folders, words = (
        get("m3b.training.report.model_folders"),
        get("m3b.training.report.tokenizer").ReportTokenizer.train(REPORTS, VOCABULARY),
    )
    folder = str(_folder(tmp_path, words, kind))
    assert folders.has_image_tower(folder)
    assert folders.read_image_side(folder) == SIDE
    tower = folders.load_image_model(folder, True).eval()
    image = torch.rand(2, 3, SIDE, SIDE)
    with torch.no_grad():
        pooled = _model(kind).base_model.eval().get_image_features(pixel_values=image).pooler_output
        expected = pooled if isinstance(pooled, torch.Tensor) else torch.stack(list(pooled))
        tokens = tower(image)
        assert torch.allclose(tokens.transpose(1, 2), expected, atol=1e-5)
        shell = folders.load_image_model(folder, False).eval()
        shell.load_state_dict(tower.state_dict())
        assert torch.equal(shell(image), tokens)
    assert not any("language_model" in name for name in tower.state_dict())


def test_a_folder_without_an_image_tower_or_a_tokenizer(get: Get, tmp_path: Path) -> None:
    words = get("m3b.training.report.tokenizer").ReportTokenizer.train(REPORTS, VOCABULARY)
    folder = _folder(tmp_path / "llama", words, "llama")
    assert not get("m3b.training.report.model_folders").has_image_tower(str(folder))
    (folder / "m3b-start.json").write_text(json.dumps({"entry": "llava-rad"}))
    plan: dict[str, Any] = {"task": "report", "dims": 2, "network": {}, "batch": 8, "intensity": {"mode": "each"}}
    set_ = get("m3b.training.plan_settings").apply_override
    messages = get("m3b.training.report.writers").start_writer(
        plan, [f"network.pretrained={folder}", "network.lora=4"], set_
    )
    assert "words of llava-rad" in messages
    assert "images by an encoder from scratch" in messages
    assert plan["network"]["lora"] == 4
    assert "image_model" not in plan["network"]
    (folder / "tokenizer.json").unlink()
    with pytest.raises(SystemExit, match=r"tokenizer\.json"):
        get("m3b.training.report.writers").start_writer(plan, [f"network.pretrained={folder}"], set_)
    assert get("m3b.training.report.writers").start_writer(plan, [], set_) == ""
    assert get("m3b.training.report.writers").start_writer(plan, ["network.pretrained=no-such-thing"], set_) == ""


@pytest.mark.slow
def test_medgemma_from_its_folder_to_reports_elsewhere(get: Get, tmp_path: Path) -> None:
    project = assemble_report(tmp_path / "work")
    call(project, "example/make_example.py", "--cases", "40")
    texts = [
        " ".join(filter(None, record["report"].values()))
        for record in json.loads((project / "Datapath/train.json").read_text())
    ]
    folder = _folder(
        tmp_path / "medgemma", get("m3b.training.report.tokenizer").ReportTokenizer.train(texts, VOCABULARY), "gemma3"
    )
    printed = call(project, "plan.py", "--minutes", "0.5", "--set", "device=cpu", f"network.pretrained={folder}", "max_steps=3",
                "max_tokens.findings=30", "max_tokens.impression=10", "network.lora=4").stdout  # fmt: skip
    assert "words of medgemma (licence" in printed
    assert f"its image tower at {SIDE} pixels" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["channels"], plan["size"], plan["network"]["lora"]) == (3, [SIDE, SIDE], 4)
    call(project, "train.py")
    call(project, "export.py", "--out", str(tmp_path / "model"))
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert "lora" not in config["plan"]["network"]
    assert str(folder) not in json.dumps(config)
    assert config["start"]["chosen"] == "pretrained"
    requirements = (tmp_path / "model/requirements.txt").read_text()
    assert "transformers" in requirements
    assert "peft" not in requirements
    folder.rename(tmp_path / "gone")
    records = json.loads((project / "Datapath/train.json").read_text())
    image = project / (
        records[0]["image_path"] if isinstance(records[0]["image_path"], str) else records[0]["image_path"][0]
    )
    prediction = json.loads(call(tmp_path / "model", "predict.py", str(image)).stdout)
    assert isinstance(prediction, list | dict)
