"""The diagnosis template on studies of several views: gathered, pooled, trained for a few steps and delivered."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from template_kit import Run

PLAN = {"task": "diagnosis", "classes": ["a", "b"], "multi_label": False, "dims": 2, "channels": 1, "size": [16, 16],
        "network": {"name": "small_cnn", "width": 4}, "views": 2}  # fmt: skip


@pytest.fixture
def studies() -> ModuleType:
    return importlib.import_module("m3b.training.diagnosis.views")


def test_views_are_gathered_and_missing_ones_told(studies: ModuleType) -> None:
    images, places = studies.index_views([["a", "b"], "c", ["d", "e", "f"]], PLAN)
    assert images == ["a", "b", "c", "d", "e"], "a third view has no room"
    assert places.tolist() == [[0, 1], [2, -1], [3, 4]]
    pixels, is_present = studies.gather_views(np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1) + 1, places)
    assert pixels[..., 0, 0, 0].tolist() == [[1, 2], [3, 0], [4, 5]]
    assert is_present.tolist() == [[1, 1], [1, 0], [1, 1]]
    records = [{"image_path": ["a", "b"], "several": "views"}, {"image_path": "c"}]
    assert studies.count_views(records) == 2
    assert studies.count_views([{"image_path": ["a", "b"]}]) == 1, "slices of a volume"


def test_the_order_of_views_and_what_stands_for_a_missing_one_do_not_matter(studies: ModuleType) -> None:
    import torch

    torch.manual_seed(0)
    model = importlib.import_module("m3b.training.diagnosis.network").build_model(PLAN).eval()
    pair = torch.randn(3, 2, 1, 16, 16)
    both = torch.ones(3, 2)
    with torch.no_grad():
        logits = model(pair, views=both)["logits"]
        assert torch.allclose(logits, model(pair.flip(1), views=both)["logits"], atol=1e-5)
        alone = torch.tensor([[1.0, 0.0]] * 3)
        changed_pair = pair.clone()
        changed_pair[:, 1] = 7.0
        assert torch.allclose(model(pair, views=alone)["logits"], model(changed_pair, views=alone)["logits"], atol=1e-5)
        assert not torch.allclose(logits, model(pair, views=alone)["logits"], atol=1e-3)
    with pytest.raises(ValueError, match="`views` is required"):
        model(pair)


@pytest.mark.slow
def test_from_data_to_prediction(project: Path, run: Run) -> None:
    """A finding that shows in one of two views, whichever it is; a fifth of the studies has one view alone."""
    random, records = np.random.default_rng(0), []
    place = project / "data/example"
    place.mkdir(parents=True)
    for number in range(120):
        ill, finding_view = number % 2, int(random.integers(2))
        names = []
        for view in range(1 if number % 5 == 4 else 2):
            image = random.normal(80, 12, (32, 32))
            if ill and (view == finding_view or number % 5 == 4):
                image[8:24, 8:24] += 90
            names.append(f"data/example/s{number:03d}_{view}.png")
            Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(project / names[-1])
        views = {"image_path": names, "several": "views"} if len(names) > 1 else {"image_path": names[0]}
        records.append({**views, "labels": [("clear", "ill")[ill]], "patient": f"p{number}"})
    (project / "Datapath").mkdir(exist_ok=True)
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"clear": 0, "ill": 1}))
    settings = ("device=cpu", "network.width=8", "max_steps=60", "folds=1", "threads=1", "tta.use=true")
    assert "up to 2 views a case" in run("plan.py", "--minutes", "1", "--set", *settings).stdout
    assert "done: validation" in run("train.py").stdout
    assert json.loads((project / "Logout/metrics.json").read_text())["validation"]["auroc"] > 0.9
    run("export.py")
    cases = [records[1]["image_path"], records[1]["image_path"][0], ["data/example/gone.png"]]
    (project / "cases.json").write_text(json.dumps(cases))
    run("Deliver/predict.py", "--list", "cases.json", "-o", "out.json", check=False)
    both, single_view, missing = json.loads((project / "out.json").read_text())
    assert both["image"] == cases[0]
    assert both["probabilities"]["ill"] > 0.5
    assert 0 <= single_view["probabilities"]["ill"] <= 1
    assert "error" in missing
    code = (
        f"import sys, json; sys.path.insert(0, 'Deliver'); import parts; case = {cases[0]!r}\n"
        "part = parts.parts()['model']; [pair] = parts.examples([case])['model']\n"
        "print(json.dumps([part['inputs'], parts.answer(part['module'](*pair)[0])]))"
    )
    inputs, graph = json.loads(run("-c", code).stdout.splitlines()[-1])
    assert inputs == ["image", "views"]
    assert graph["probabilities"] == pytest.approx(both["probabilities"], abs=1e-3)
