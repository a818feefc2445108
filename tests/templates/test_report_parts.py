"""The report template's parts by themselves: tokens, findings, figures, decoder, search, views, pretrained parts."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from report_kit import Get, modules_of_a_project, plan_of

from m3b.tasks.report import ReportCase
from m3b.tasks.report.metrics import compute_report_metrics

REPORTS = [
    "There is a left pleural effusion of 4.5 cm.",
    "Left effusion, unchanged. Heart normal.",
    "Right pleural effusion. Heart normal.",
    "Right effusion is seen; the heart is enlarged.",
    "No pleural effusion. The heart is enlarged.",
    "Lungs are free of effusion. Heart normal.",
] * 4
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


get = pytest.fixture(scope="module")(modules_of_a_project)


# --- words --------------------------------------------------------------------------------------------------------


@given(text=TEXT)
def test_any_text_survives_the_tokenizer(get: Get, text: str) -> None:
    words = get("m3b.training.report.tokenizer")
    tokenizer = words.ReportTokenizer.train(REPORTS, 300)
    for mark in words.SPECIAL_TOKENS:
        text = text.replace(mark, "")
    assert tokenizer.decode(tokenizer.encode(text)) == words.clean_text(text)


def test_numbers_and_marks_in_a_report(get: Get, tmp_path: Path) -> None:
    words = get("m3b.training.report.tokenizer").ReportTokenizer.train(REPORTS, 300)
    words.save(tmp_path / "t.json")
    again = get("m3b.training.report.tokenizer").ReportTokenizer.load(tmp_path / "t.json")
    assert again.decode(again.encode("a 12.75 mm nodule, 3x4 cm²")) == "a 12.75 mm nodule, 3x4 cm²"
    assert not set(words.encode("[EOS] effusion [IMPRESSION]")) & words.marks


def test_missing_and_long_sections_are_not_learnt(get: Get) -> None:
    module = get("m3b.training.report.tokenizer")
    words, limits = module.ReportTokenizer.train(REPORTS, 300), {"findings": 6, "impression": 4}
    f, i, end, no = words.findings, words.impression, words.end, module.IGNORED_TARGET
    first_tokens, second_tokens = words.encode("Heart normal"), words.encode("normal")
    inputs, targets = words.sequence({"findings": "Heart normal", "impression": "normal"}, limits)
    assert (inputs, targets) == ([f, *first_tokens, i, *second_tokens], [*first_tokens, i, *second_tokens, end])
    inputs, targets = words.sequence({"findings": "Heart normal", "impression": ""}, limits)
    assert (inputs, targets) == ([f, *first_tokens], [*first_tokens, no])  # what follows the findings is unknown
    assert words.sequence({"findings": "", "impression": "normal"}, limits) == (
        [i, *second_tokens],
        [*second_tokens, end],
    )
    inputs, targets = words.sequence({"findings": REPORTS[0] * 3, "impression": "normal"}, limits)
    assert inputs[7] == i
    assert targets[6] == no  # the end of a cut section is not learnt
    assert words.split([f, *first_tokens, i, *second_tokens, end, f]) == {
        "findings": "Heart normal",
        "impression": "normal",
    }


# --- findings and figures -----------------------------------------------------------------------------------------


def test_mined_findings_split_the_reports_and_respect_denials(get: Get) -> None:
    findings = get("m3b.training.report.findings")
    names = findings.mine_findings(REPORTS)
    assert "effusion + left" in names or "left" in names
    assert any("enlarged" in name for name in names)
    expected_names = ["effusion", "effusion + left", "effusion + right", "enlarged + heart", "lungs"]
    table = findings.label_reports(REPORTS[:6], ["effusion", "effusion + left", "effusion + right", "enlarged + heart"])
    assert table[:, 0].tolist() == [True, True, True, True, False, False], expected_names
    assert table[:, 1].tolist() == [True, True, False, False, False, False]
    assert table[:, 2].tolist() == [False, False, True, True, False, False]
    assert findings.label_reports(["The heart is enlarged."], ["enlarged + heart", "heart + enlarged"]).any()
    assert findings.mine_findings(["All is well."] * 20) == []
    stock_reports = ["Image demonstrates well effusion.", "Study shows no change.", "Image reveals nodule."] * 6
    mined = {word for name in findings.mine_findings(stock_reports) for word in name.split(" + ")}
    assert mined == {"effusion", "nodule"}, "what every report says whatever it finds is no finding"
    german = ["Kein Erguss.", "Erguss links.", "Rundherd rechts, kein Erguss.", "Unauffällig."] * 5
    assert findings.label_reports(german[:4], ["erguss"])[:, 0].tolist() == [False, True, False, False]


WORD = st.sampled_from(["effusion", "no", "left", "heart", "2.5", "mm", "."])
LINE = st.lists(WORD, min_size=4, max_size=12).map(" ".join)


@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=6))
def test_bleu_is_that_of_the_trusted_metrics(get: Get, pairs: list[tuple[str, str]]) -> None:
    truth, generated = [a for a, _ in pairs], [b for _, b in pairs]
    cases = [ReportCase(str(k), str(k), a, b) for k, (a, b) in enumerate(pairs)]
    want = compute_report_metrics(cases, only="bleu_4")
    assert get("m3b.training.report.text_metrics").bleu(truth, generated) == pytest.approx(want["bleu_4"], abs=1e-9)
    assert get("m3b.training.report.text_metrics").bleu(truth, generated, 1) == pytest.approx(want["bleu_1"], abs=1e-9)


@given(patients=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20), seed=st.integers(0, 5))
def test_shuffled_cases_are_another_patients(get: Get, patients: list[str], seed: int) -> None:
    order = get("m3b.training.report.text_metrics").shuffle_between_patients(patients, seed)
    if order is None:
        assert max(patients.count(name) for name in patients) * 2 > len(patients)
    else:
        assert sorted(order) == list(range(len(patients)))
        assert all(patients[k] != patients[int(donor)] for k, donor in enumerate(order))


def test_label_f1_agrees_with_scikit_learn(get: Get) -> None:
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(0)
    truth, predicted = rng.random((30, 4)) < 0.4, rng.random((30, 4)) < 0.4
    assert get("m3b.training.report.text_metrics").label_f1(truth, predicted) == pytest.approx(
        f1_score(truth, predicted, average="macro")
    )


# --- decoder and search -------------------------------------------------------------------------------------------


def test_word_by_word_equals_all_at_once(get: Get) -> None:
    torch.manual_seed(0)
    text = get("m3b.training.report.decoder").TextDecoder(40, 32, 2, 4, 0.0, 16).eval()
    memory, keep, tokens = torch.randn(2, 5, 32), torch.ones(2, 5, dtype=torch.bool), torch.randint(40, (2, 7))
    keep[0, 3:] = False
    all_logits, _ = text.advance(tokens, text.begin(memory, keep))
    state, steps = text.begin(memory, keep), []
    for k in range(7):
        logits, state = text.advance(tokens[:, k : k + 1], state)
        state = state.select_rows(torch.arange(2))
        steps.append(logits)
    assert torch.allclose(torch.cat(steps, dim=1), all_logits, atol=1e-5)
    memory[0, 3:] = 9.0  # what is not kept has no say
    assert torch.allclose(text.advance(tokens, text.begin(memory, keep))[0], all_logits, atol=1e-5)
    memory[1] += 1.0  # what is kept has
    assert not torch.allclose(text.advance(tokens, text.begin(memory, keep))[0][1], all_logits[1], atol=1e-3)


class Chain:
    """A text model whose next word depends on the last one only, so that the best text can be found by trying all."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def begin(self, memory: torch.Tensor, keep: torch.Tensor) -> Any:
        return SimpleNamespace(select_rows=lambda rows: self.begin(memory, keep))

    def advance(self, tokens: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        return self.table[tokens], state


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), penalty=st.sampled_from([0.0, 0.7, 1.0]))
def test_a_wide_beam_finds_the_best_text_of_all(get: Get, seed: int, penalty: float) -> None:
    """Tokens: 0 pad, 1 unknown, 2 findings, 3 impression, 4 end, 5 and 6 words; one to two words a section."""
    words = SimpleNamespace(pad=0, unknown=1, findings=2, impression=3, end=4)
    logs = torch.randn(7, 7, generator=torch.Generator().manual_seed(seed)).mul(2).log_softmax(dim=1)
    rules = get("m3b.training.report.beam_search").DecodingRules(
        words, ("findings", "impression"), 1, {"findings": 2, "impression": 2}, 0
    )
    options: list[list[int]] = [list(part) for n in (1, 2) for part in itertools.product((5, 6), repeat=n)]
    every = [[2, *first, 3, *second, 4] for first, second in itertools.product(options, options)]

    def worth(sequence: list[int]) -> float:
        total = sum(float(logs[a, b]) for a, b in itertools.pairwise(sequence))
        return total / len(sequence) ** penalty

    memory, keep = torch.zeros(1, 1, 4), torch.ones(1, 1, dtype=torch.bool)
    got = get("m3b.training.report.beam_search").search_beams(
        Chain(logs), memory, keep, rules, beams=40, length_penalty=penalty
    )[0]
    assert got in every
    assert worth(got) == pytest.approx(max(map(worth, every)), abs=1e-5)
    greedy = get("m3b.training.report.beam_search").search_beams(
        Chain(logs), memory, keep, rules, beams=1, length_penalty=penalty
    )[0]
    assert greedy in every


def test_lengths_repeats_and_single_sections(get: Get) -> None:
    words = SimpleNamespace(pad=0, unknown=1, findings=2, impression=3, end=4)
    logits = torch.full((7, 7), -5.0)
    logits[:, 5] = 5.0  # says 5 for ever
    memory, keep = torch.zeros(3, 1, 4), torch.ones(3, 1, dtype=torch.bool)
    make, search = (
        get("m3b.training.report.beam_search").DecodingRules,
        get("m3b.training.report.beam_search").search_beams,
    )
    long = search(Chain(logits), memory, keep, make(words, ("findings",), 1, {"findings": 6, "impression": 0}, 0), 2)
    assert long == [[2, 5, 5, 5, 5, 5, 5, 4]] * 3
    varied = search(Chain(logits), memory, keep, make(words, ("findings",), 1, {"findings": 9, "impression": 0}, 3), 1)[
        0
    ]
    runs = [tuple(varied[k : k + 3]) for k in range(1, len(varied) - 3)]
    assert len(runs) == len(set(runs))
    min_length_rules = make(words, ("findings",), 9, {"findings": 9, "impression": 0}, 3)
    varied = search(Chain(logits), memory, keep, min_length_rules, 1)[0]
    runs = [tuple(varied[k : k + 3]) for k in range(1, len(varied) - 3)]
    assert len(runs) == len(set(runs)), "below the least length too"
    logits[:, 4] = 9.0  # wants to end at once
    rules = make(words, ("impression",), 3, {"findings": 0, "impression": 5}, 0)
    assert search(Chain(logits), memory, keep, rules, 2)[0] == [3, 5, 5, 5, 4]


# --- the whole ----------------------------------------------------------------------------------------------------


def test_missing_views_have_no_say(get: Get) -> None:
    torch.manual_seed(0)
    model = get("m3b.training.report.network").build_model(plan_of()).eval()
    pixels, views = torch.randn(3, 2, 1, 32, 32), torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    logits = model(pixel_values=pixels, views=views)["logits"]
    changed = pixels.clone()
    changed[1, 1] = 7.0
    assert torch.allclose(model(pixel_values=changed, views=views)["logits"], logits, atol=1e-5)
    changed[0, 1] = 7.0
    assert not torch.allclose(model(pixel_values=changed, views=views)["logits"][0], logits[0], atol=1e-4)
    swapped = model(pixel_values=pixels.flip(1), views=views)["logits"]
    assert not torch.allclose(swapped[2], logits[2], atol=1e-4)  # views are told apart
    alone = model(pixel_values=pixels[:, 0])["logits"]
    assert torch.allclose(alone[1], logits[1], atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"contrastive": 0.5}, {"findings": [], "shares": []}, {"dims": 3, "size": [16] * 3}]
)
def test_every_weight_learns_and_the_text_reaches_the_encoder(get: Get, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plan = plan_of(**changes)
    plan["network"] |= {"truth": 0.0, "hide_image": 0.0, "hide_findings": 0.0}
    model = get("m3b.training.report.network").build_model(plan).train()
    tokens = torch.randint(5, 40, (3, 9))
    batch = {"pixel_values": torch.randn(3, 2, 1, *plan["size"]), "views": torch.ones(3, 2), "tokens": tokens}
    batch |= {"targets": tokens.roll(-1, 1), "findings": torch.ones(3, len(plan["findings"]))}
    output = model(**batch)
    output["loss"].backward()
    still = [name for name, p in model.named_parameters() if p.numel() and p.grad is None]
    assert not still
    model.zero_grad()
    parts = get("m3b.training.report.loss").ReportLoss({**plan, "findings_weight": 0.0, "contrastive": 0.0})
    model.loss = parts
    model(**batch)["loss"].backward()
    assert float(next(model.encoder.features.parameters()).grad.abs().sum()) > 0


def test_texts_are_written_from_the_images(get: Get) -> None:
    """Four images that differ in one bright corner, and four texts: only the image tells which."""
    torch.manual_seed(0)
    plan = plan_of(views=1, findings=[], shares=[], max_tokens={"findings": 4, "impression": 3}, word_dropout=0.0)
    plan["network"] |= {"image_gradient": 1.0}
    model = get("m3b.training.report.network").build_model(plan)
    pixels = torch.zeros(4, 1, 1, 32, 32)
    for k, (y, x) in enumerate(itertools.product((4, 20), repeat=2)):
        pixels[k, 0, 0, y : y + 8, x : x + 8] = 2.0
    tokens = torch.tensor([[2, 10 + k, 20 + k, 3, 30 + k] for k in range(4)])
    targets = torch.tensor([[10 + k, 20 + k, 3, 30 + k, 4] for k in range(4)])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        noisy = pixels + 0.1 * torch.randn_like(pixels)
        loss = model(noisy, torch.ones(4, 1), tokens, targets, torch.zeros(4, 0))["loss"]
        loss.backward()
        optimizer.step()
    words = SimpleNamespace(pad=0, unknown=1, findings=2, impression=3, end=4, split=lambda s: s)
    assert model.eval().write(pixels, None, plan, words) == [[2, 10 + k, 20 + k, 3, 30 + k, 4] for k in range(4)]
    order = torch.tensor([2, 3, 0, 1])
    assert model.write(pixels[order], None, plan, words)[0][1] == 12


# --- few steps ----------------------------------------------------------------------------------------------------


def _short_plan(**network: Any) -> dict[str, Any]:
    plan = {"lr": 0.002, "batch": 8, "validation_share": 0.15, "network": network}
    return {**plan, "augment": {"flip": [], "rotate": 9, "noise": 0.05}}


@pytest.mark.parametrize(
    ("epochs", "share", "message"),
    [(10, 0.0, "not augmented"), (60, 0.0, "not augmented"), (130, 0.5, "augmented at 50%"), (400, 1.0, "")],
)
def test_images_are_altered_as_far_as_there_are_epochs_for_it(
    get: Get, epochs: int, share: float, message: str
) -> None:
    plan, epoch = _short_plan(), 17  # of 160 studies, 136 for training
    steps = {"encoder": 8 * epochs * epoch // 10, "words": 99, "report": epochs * epoch // 5}
    messages = get("m3b.training.report.short_training").adapt_to_few_steps(plan, steps, 160, {"lr"})
    assert plan["augment"] == {"flip": [], "rotate": pytest.approx(9 * share), "noise": pytest.approx(0.05 * share)}
    assert plan["lr"] == 0.002
    assert message in " ".join(messages)
    assert bool(messages) is bool(message)


def test_what_was_set_and_what_begins_pretrained_is_left(get: Get) -> None:
    adapt, few_steps = (
        get("m3b.training.report.short_training").adapt_to_few_steps,
        {"encoder": 100, "words": 50, "report": 50},
    )
    overridden_plan = _short_plan()
    assert adapt(overridden_plan, few_steps, 160, {"augment.rotate"}) == ["lr 0.006, since the steps are few"]
    assert overridden_plan["augment"] == _short_plan()["augment"]
    for network in ({"text_model": "x"}, {"image_model": "y"}, {"config": {"builder": "z"}}):
        plan = _short_plan(**network)
        assert adapt(plan, few_steps, 160, set()) == []
        assert plan == _short_plan(**network)


def test_a_plan_without_findings_has_no_stages(get: Get) -> None:
    plan = _short_plan()
    assert "not augmented" in " ".join(
        get("m3b.training.report.short_training").adapt_to_few_steps(plan, {"report": 100}, 160, set())
    )
