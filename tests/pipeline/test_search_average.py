"""`m3b run --hours` with the template: the average of candidates that err independently is trained, delivered and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import REQUEST, TRAIN, actor, check_end, combine_calls, of_kind, play, say, script, write

from m3b import Pipeline, TrainingOverrides, load_model, resume, verify
from m3b.events import CandidateMeasured, Event, PromptSent
from m3b.facts import SearchSummary
from m3b.run.training_overrides import to_plan_command

pytest.importorskip("optuna")
MINUTES = 9.0
TRAINING = TrainingOverrides(
    steps=27, folds=2, device="cpu", network="small_cnn", pretrained="none",
    settings={
        "lr": 1e-6, "size": [24, 24], "network.width": 8, "network.dropout": 0.1, "label_smoothing": 0.0, "augment.rotate": 5,
        "precision": "fp32", "linear_probe.weights": "none", "tta.use": False,
    },
)  # fmt: skip
"""Everything but the weight decay is fixed."""
RECIPE = '''
import torch
from torch import nn
from m3b.training.diagnosis.recipe import DiagnosisRecipe


class ErringNetwork(nn.Module):
    """How bright the brightest part of a picture is, and an error of each picture: with a large weight decay it is the opposite."""

    def __init__(self, weight_decay):
        super().__init__()
        self.error = -4 if weight_decay > 0.2 else 4 if weight_decay > 0.05 else 9
        self.register_buffer("direction", torch.randn(24 * 24, generator=torch.Generator().manual_seed(0)))
        self.head = nn.Linear(24 * 24, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        pixels = x.flatten(1)
        pixels = pixels / pixels.std(dim=1, keepdim=True)
        skew = pixels.mean(dim=1) - pixels.median(dim=1).values
        logit = (20 * (skew - 0.1)).clamp(-2, 2) + self.error * torch.sin(pixels @ self.direction)
        return torch.stack([-logit, logit], dim=1) / 8 + self.head(pixels - pixels.mean(dim=1, keepdim=True))


class Recipe(DiagnosisRecipe):
    def build_network(self, plan, load=True):
        return ErringNetwork(plan["weight_decay"])
'''
MODULE = [
    script("cp -r resources/templates/diagnosis/. ."),
    combine_calls(write({"recipe.py": RECIPE}), script(to_plan_command(TRAINING, "diagnosis", MINUTES))),
    say("The project is in place."),
]


def draw_spots(folder: Path, patients: int) -> Path:
    """Class folders with one grey picture a patient; each with the class `spot` has a bright one."""
    random = np.random.default_rng(0)
    for number in range(patients):
        name, picture = ("plain", "spot")[number % 2], random.normal(90, 12, (24, 24))
        if name == "spot":
            x, y = random.integers(4, 14, 2)
            picture[y : y + 7, x : x + 7] += 50
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(folder / name / f"p{number:03d}.png")
    return folder


def interrupt_at_second_figure(event: Event) -> None:
    if isinstance(event, CandidateMeasured) and event.number == 2:
        raise KeyboardInterrupt


def interrupt_before_the_last_training(event: Event) -> None:
    if isinstance(event, PromptSent) and event.role == "model_trainer":
        raise KeyboardInterrupt


@pytest.mark.slow
def test_an_average_is_delivered_after_interruptions(tmp_path: Path) -> None:
    data, out = draw_spots(tmp_path / "spots", 300), tmp_path / "run"
    player = actor(play(module=MODULE, model=[script(TRAIN), say("Trained.")]))
    started = Pipeline(
        player, data=[data], out=out, hours=5.0, train_minutes=MINUTES, training=TRAINING,
        on_event=interrupt_at_second_figure,
    ).run(REQUEST)  # fmt: skip
    check_end(started, "cancelled")
    check_end(resume(out, player, on_event=interrupt_before_the_last_training), "cancelled")
    (artifact,) = [event for event in of_kind(out, "artifact") if event["artifact"] == "search_summary"]
    summary = SearchSummary.model_validate(artifact["value"])
    ensemble = summary.ensemble
    assert ensemble is not None
    assert ensemble.selected, ensemble
    assert ensemble.low > 0
    assert summary.value == ensemble.value
    plan = json.loads((out / "work/plan.json").read_text())
    assert len(plan["recipes"]["settings"]) == len(ensemble.candidates)
    first_plan = json.loads((out / "locked/search/plan.json").read_text())
    decays = {item.number: item.settings.get("weight_decay", first_plan["weight_decay"]) for item in summary.candidates}
    recipes = [{**plan, **settings} for settings in plan["recipes"]["settings"]]
    assert [recipe["weight_decay"] for recipe in recipes] == [decays[number] for number in ensemble.candidates]
    result = resume(out, player)
    check_end(result, result.status, "the average of candidates")
    assert len([event for event in of_kind(out, "artifact") if event["artifact"] == "search_summary"]) == 1
    assert result.test_looks == 1
    model = Path(result.model_dir or "")
    config = json.loads((model / "config.json").read_text())
    assert len(config["weights"]) == 2
    assert config["plan"]["recipes"]["settings"] == plan["recipes"]["settings"]
    provenance = json.loads((model / "provenance.json").read_text())
    assert provenance["search"]["ensemble"] == ensemble.model_dump(mode="json")
    assert "The average of candidates" in (model / "README.md").read_text()
    answers = load_model(model).predict(sorted(data.glob("*/*.png"))[:3], out=tmp_path / "predicted")
    assert all(sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-3) for answer in answers)
    assert verify(out).ok
