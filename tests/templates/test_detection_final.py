"""The end of a detection training: mirrored predictions, cross-fitted thresholds, networks of several folds together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from detection_kit import assemble_detection, box_plan, forget, load_project_module

Part = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble_detection(tmp_path_factory.mktemp("detection") / "work")


@pytest.fixture
def part(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Part]:
    forget()
    monkeypatch.syspath_prepend(str(built))
    monkeypatch.chdir(tmp_path)
    yield lambda name: load_project_module(built, name)
    forget()


@pytest.mark.parametrize("dims", [2, 3])
def test_mirrored_answers_turn_with_the_image(part: Part, dims: int) -> None:
    """Whatever the network: averaged over all sets of axes, a mirrored image has the mirrored boxes."""
    torch.manual_seed(0)
    plan = box_plan(dims, mirror=["h", "w"])
    model = part("m3b.training.detection.network").build_model(plan, with_loss=False).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    inference, decode = part("m3b.training.detection.inference"), part("m3b.training.detection.center_detector").decode
    image = torch.randn(1, 1, *(32,) * dims)
    with torch.no_grad():
        unmirrored = inference.predict_logits(model, image, {**plan, "mirror": []})
        assert torch.equal(unmirrored, model(pixel_values=image)["logits"])
        once, turned = (inference.predict_logits(model, view, plan) for view in (image, image.flip(2)))
    assert torch.allclose(once[:, :2], turned[:, :2].flip(2), atol=1e-4)
    assert not torch.allclose(unmirrored[:, :2], once[:, :2], atol=1e-3)
    original, mirrored = (
        {k: v.numpy() for k, v in zip("bsl", decode(logits, 2, model.cell)[0], strict=True)}
        for logits in (once, turned)
    )
    low, high = 32 - mirrored["b"][:, dims], 32 - mirrored["b"][:, 0]
    back = mirrored["b"].copy()
    back[:, 0], back[:, dims] = low, high
    assert np.allclose(np.sort(original["s"]), np.sort(mirrored["s"]), atol=1e-4)
    for box, score in list(zip(original["b"], original["s"], strict=True))[:5]:
        assert min(np.abs(back - box).max(axis=1) + np.abs(mirrored["s"] - score)) < 1e-2


def _case(final: ModuleType, number: int, *answers: Any) -> Any:
    record = {"image_path": f"{number}.png", "patient": f"p{number}"}
    truth = (np.array([[8.0, 8.0, 16.0, 16.0]]), np.array([0]))
    return final.HeldOutCase(record, number % 2, truth, list(answers), True)


def _boxes(score: float) -> Any:
    """The true box with this score, and a false one with 0.5."""
    return np.array([[8.0, 8.0, 16.0, 16.0], [40.0, 40.0, 48.0, 48.0]]), np.array([score, 0.5]), np.array([0, 0])


@pytest.mark.parametrize(("better", "cases", "axes"), [(True, 12, ["h"]), (False, 12, []), (True, 6, [])])
def test_predictions_are_mirrored_where_that_gains(part: Part, better: bool, cases: int, axes: list[str]) -> None:
    final = part("m3b.training.detection.final_selection")
    poor, good = _boxes(0.3), _boxes(0.9)  # the true box below, or above the false one
    pair = (poor, good) if better else (good, poor)
    selection_cases = [_case(final, number, *pair) for number in range(cases)]
    plan = box_plan(classes=["disc"], augment={"flip": ["h"]}, mirror="auto")
    selection = final.select_settings(plan, selection_cases)
    assert selection["config"]["mirror"] == axes
    assert selection["figures"]["map_50"] == pytest.approx(1.0 if (axes or not better) else 0.5)
    assert [row["fold"] for row in selection["rows"]] == [number % 2 for number in range(cases)]
    explicit_selection = final.select_settings(
        {**plan, "mirror": ["h"]}, [_case(final, number, poor) for number in range(cases)]
    )
    assert explicit_selection["config"]["mirror"] == ["h"], "what the plan names is not chosen"


def test_figures_of_masks_are_those_of_settings_that_the_other_half_chose(part: Part) -> None:
    """Each half of the patients is best at another threshold: chosen on all, the figure would flatter."""
    final, scoring = part("m3b.training.detection.final_selection"), part("m3b.training.detection.scoring")
    people = [f"p{number}" for number in range(24)]
    half = np.random.default_rng(0).permutation(24) % 2
    cases = []
    for name, side in zip(people, half, strict=True):
        chance, truth = np.zeros((16, 16), np.float32), np.zeros((16, 16), bool)
        truth[2:8, 2:8] = True
        chance[2:8, 2:8] = 0.85 if side else 0.35
        chance[2:14, 9:14] = 0.65 if side else 0.15  # false: above the other half's threshold
        counts, overlap = scoring.score_settings(chance, truth)
        answer = (counts[None], overlap[None], 0.9)
        cases.append(final.HeldOutCase({"image_path": name, "patient": name}, 0, [[36]], [answer], True))
    plan = box_plan(classes=["a"], target="masks", mirror="auto")
    fair = final.select_settings(plan, cases)["figures"]["dice"]
    alike = [case for case, side in zip(cases, half, strict=True) if side]
    assert final.select_settings(plan, alike)["figures"]["dice"] == pytest.approx(1.0)
    assert fair < 0.8
    few_case_settings = final.cross_fit_settings(
        np.stack([c.answers[0][0] for c in cases[:6]]), np.stack([c.answers[0][1] for c in cases[:6]]), cases[:6]
    )
    assert len(np.unique(few_case_settings, axis=0)) == 1, "a handful of cases chooses together"
