"""The report template from outside: what plan.py refuses, and parts from local folders of pretrained models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from report_kit import Get, modules_of_a_project, plan_of

REPORTS = ["There is a left pleural effusion of 4.5 cm.", "Left effusion, unchanged. Heart normal.", "No effusion."] * 4


get = pytest.fixture(scope="module")(modules_of_a_project)


def test_what_cannot_be_planned_is_named(get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get("example.make_example").make_example(tmp_path, 30, size=32)
    monkeypatch.chdir(tmp_path)
    plan, index = get("m3b.training.report.plan"), tmp_path / "Datapath/train.json"
    records = json.loads(index.read_text(encoding="utf-8"))

    def make_plan(*settings: str, **record_fields: Any) -> dict[str, Any]:
        index.write_text(json.dumps([{**record, **record_fields} for record in records]))
        plan.main(["--set", "network.image_width=8", "network.width=32", *settings])
        return dict(json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")))

    with pytest.raises(SystemExit, match="cannot be split"):
        make_plan(patient="p")
    with pytest.raises(SystemExit, match="none with a report"):
        make_plan(report={"findings": "", "impression": None})
    with pytest.raises(SystemExit, match="must be an object"):
        make_plan(report="Normal.")
    with pytest.raises(SystemExit, match="not in label_dict"):
        make_plan(labels=["disc"])
    with pytest.raises(SystemExit, match="has no setting 'speed'"):
        make_plan("speed=3")
    make_plan()
    (tmp_path / "Datapath/label_dict.json").write_text('{"disc": 0, "square": 1}')
    with pytest.raises(SystemExit, match="to its end first"):
        get("m3b.training.report.export").main([])
    sized_plan = make_plan("lr=0.01", "size=[24,24]", labels=["disc"])
    assert (sized_plan["lr"], sized_plan["size"], sized_plan["classes"]) == (0.01, [24, 24], ["disc", "square"])
    assert sized_plan["shares"][:2] == [1.0, 0.0]
    assert len(sized_plan["shares"]) == 2 + len(sized_plan["findings"])
    limited_plan = make_plan("vocabulary=300", "max_tokens.findings=60")  # both were once taken and forgotten
    assert (limited_plan["vocabulary"], limited_plan["max_tokens"]["findings"]) == (300, 60)
    assert set(limited_plan["max_tokens"]) == set(sized_plan["max_tokens"]), (
        "one of them is set, the other stays planned"
    )
    facts, steps = {"cases": 500, "different": 495}, {"words": 50, "report": 49}
    (warning,) = get("m3b.training.report.plan_cost").warn_if_hopeless(facts, limited_plan, steps)
    assert "495 of 500" in warning
    assert "report 49; at least 200 are needed" in warning
    assert (
        get("m3b.training.report.plan_cost").warn_if_hopeless(
            {"cases": 500, "different": 90}, limited_plan, {"words": 300, "report": 400}
        )
        == []
    )
    assert make_plan(report={"findings": "", "impression": "Normal."})["sections"] == ["impression"]


def _tiny_language_model(folder: Path, words: Any, kind: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    sizes: dict[str, Any] = {"vocab_size": len(words)}
    model: Any
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=256, **sizes))
    else:
        config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, **sizes)
        config.tie_word_embeddings = False
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words.tokenizer).save_pretrained(folder)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_local_language_model_is_the_writer(get: Get, tmp_path: Path, kind: str) -> None:
    module = get("m3b.training.report.tokenizer")
    _tiny_language_model(tmp_path, module.ReportTokenizer.train(REPORTS, 300), kind)
    words = module.ReportTokenizer.from_model_folder(tmp_path)
    assert words.decode(words.encode("Left effusion.")) == "Left effusion."
    make = get("m3b.training.report.pretrained_writer").PretrainedText
    torch.manual_seed(0)
    text = make(str(tmp_path), len(words) + 3, 64, True).eval()
    memory, keep, tokens = torch.randn(2, 5, 32), torch.ones(2, 5, dtype=torch.bool), torch.randint(40, (2, 4))
    with torch.no_grad():
        all_logits, _ = text.advance(tokens, text.begin(memory, keep))
        state = text.begin(memory, keep).select_rows(torch.tensor([0, 0, 1]))
        for k in range(4):
            logits, state = text.advance(tokens[[0, 0, 1], k : k + 1], state)
    assert torch.allclose(logits[:, 0], all_logits[[0, 0, 1], 3], atol=1e-4)
    shell = make(str(tmp_path), len(words) + 3, 64, False)  # from its configuration, as in the deliverable
    shell.load_state_dict(text.state_dict())
    with torch.no_grad():
        assert torch.allclose(shell.eval().advance(tokens, shell.begin(memory, keep))[0], all_logits, atol=1e-5)
    if kind == "gpt2":
        with pytest.raises(SystemExit, match="has 256 positions"):
            make(str(tmp_path), len(words), 300, True)


def test_a_local_image_model_is_the_encoder(get: Get, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    ViTModel(
        ViTConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            image_size=32,
            patch_size=8,
        )
    ).save_pretrained(tmp_path)
    plan = plan_of(channels=3)
    plan["network"]["image_model"] = str(tmp_path)
    model = get("m3b.training.report.network").build_model(plan)
    assert model(pixel_values=torch.randn(2, 2, 3, 32, 32))["logits"].shape == (2, 2)
    assert model.encoder.positions == 17
    train = get("m3b.training.report.train")
    for warm, expected_share in ((False, 0.05), (True, 0.05 * train.ENCODER_LR_FACTOR)):
        slow = [*model.encoder.parameters(), *model.head.parameters()] if warm else []
        groups = train.parameter_groups(plan, model, model.encoder, slow)
        pictures = {id(parameter) for parameter in model.encoder.features.parameters()}
        shares = {share for part, share in groups if pictures & {id(parameter) for parameter in part}}
        assert sorted(shares) == [pytest.approx(expected_share)], (
            "a pretrained encoder was trained at the whole rate, and forgot"
        )
        assert sum(len(part) for part, _ in groups) == len(list(model.parameters()))
