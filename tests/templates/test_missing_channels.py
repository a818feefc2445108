"""Cases that lack a channel: read, scaled, augmented, trained on and predicted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from template_kit import Run, load

NAMES = ["t1", "flair"]


def picture(file: Path, value: int) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(value)
    Image.fromarray(np.clip(rng.normal(value, 20, (32, 32)), 0, 255).astype(np.uint8)).save(file)
    return str(file)


def test_names_are_those_of_all_cases() -> None:
    channels = load("channels")
    both, flair_only = {"image_path": {"t1": "a", "flair": "b"}}, {"image_path": {"flair": "c"}}
    assert channels.find_channel_names([flair_only, both]) == NAMES
    assert channels.count_missing_channels([flair_only, both], NAMES) == {"t1": 1}
    assert channels.find_channel_names([{"image_path": "a"}]) is None
    for mismatched in ({"image_path": "a"}, {"image_path": {"flair": "b", "t1": "a"}}, {"image_path": {"t2": "d"}}):
        with pytest.raises(SystemExit, match="same channels"):
            channels.find_channel_names([both, mismatched])


@pytest.mark.parametrize("mode", ["percentile", "unit", "foreground"])
def test_a_channel_that_is_missing_is_0_where_the_network_sees_it(tmp_path: Path, mode: str) -> None:
    path = {"flair": picture(tmp_path / "flair.png", 120)}
    plan = {
        "dims": 2,
        "channels": 2,
        "channel_names": NAMES,
        "size": [32, 32],
        "intensity": {"mode": mode, "mean": 0.3},
    }
    image = load("channels").read_case(path, plan)
    assert [str(note) for note in image.notes] == ["missing_channel name=t1"]
    array = load("preprocess").prepare_image(path, plan)
    assert array.shape == (2, 32, 32)
    assert not array[0].any()
    assert array[1].any()
    volumes = load("volume_cache").prepare_image(image, {**plan, "spacing": None})
    assert not volumes[0].any()
    assert volumes[1].any()


def test_channels_are_measured_in_the_cases_that_have_them(tmp_path: Path) -> None:
    channels, sample = load("channels"), load("image_sample")
    paths = [{"t1": picture(tmp_path / "t1.png", 60), "flair": picture(tmp_path / "f.png", 120)}]
    paths += [{"flair": picture(tmp_path / "f2.png", 120)}] * 2
    records = [{"image_path": path} for path in paths]
    images = [sample.measure_image(channels.read_case(path, {"channel_names": NAMES})) for path in paths]
    facts = sample.summarise_sample(images, records)
    assert facts["lacking"] == {"t1": 2}
    assert facts["by_channel"]["t1"]["mean"] == pytest.approx(60, abs=3)
    assert load("named_channels").choose_channel_dropout(facts) == {"channel_dropout": 0.2}
    assert load("named_channels").choose_channel_dropout({"lacking": {}}) == {}


def test_whole_channels_are_left_out_and_one_stays() -> None:
    torch.manual_seed(0)
    augment = load("augment").Augment({"channel_dropout": 0.5, "brightness": 0.5, "noise": 0.1})
    batch = torch.randn(400, 3, 8, 8)
    batch[:100, 0] = 0
    is_present = (augment(batch) != 0).flatten(2).any(2)
    assert not is_present[:100, 0].any(), "what a case lacks stays away, whatever changes brightness"
    assert is_present.any(1).all()
    assert 0.4 < float(is_present[100:].float().mean()) < 0.62
    assert (load("augment").Augment({"noise": 0.1})(batch) != 0).flatten(2).any(2).all()


def test_a_classifier_learns_from_cases_that_lack_channels(project: Path, run: Run) -> None:
    """From the index to predictions of cases with one channel and with both."""
    records = []
    for case in range(40):
        bright = case % 2
        path = {name: picture(project / f"images/{case}_{name}.png", 60 + 90 * bright + case) for name in NAMES}
        if case % 4 > 1:
            path.pop(NAMES[case // 4 % 2])
        records.append({"image_path": path, "labels": [["dark", "bright"][bright]], "patient": f"p{case}"})
    (project / "Datapath/train.json").write_text(json.dumps(records))
    (project / "Datapath/label_dict.json").write_text(json.dumps({"dark": 0, "bright": 1}))
    planned = run(
        "plan.py", "--minutes", "1", "--set", "device=cpu", "max_steps=60", "size=[32,32]", "network.width=8", "folds=1"
    ).stdout
    plan = json.loads((project / "plan.json").read_text())
    assert plan["augment"]["channel_dropout"] == 0.2
    assert "lack" in planned
    run("train.py")
    run("export.py")
    assert json.loads((project / "Logout/metrics.json").read_text())["validation"]["auroc"] > 0.8
    picture(project / "new.png", 150)
    (project / "cases.json").write_text(json.dumps([{"t1": "new.png", "flair": "new.png"}, {"flair": "new.png"}, {}]))
    run("Deliver/predict.py", "--list", "cases.json", "-o", "out.json", check=False)
    both, flair_only, none = json.loads((project / "out.json").read_text())
    assert "notes" not in both
    assert flair_only["notes"] == ["missing_channel name=t1"]
    assert flair_only["probabilities"].keys() == {"dark", "bright"}
    assert "none of the channels" in none["error"]
