"""The few-shot engine as a project: plan.py, train.py, export.py, predict.py, for states, masks and normal images alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detection_kit import assemble_detection
from fewshot_kit import clip_backbone, conv_backbone, pictures
from PIL import Image
from template_kit import call

from m3b.training.ranking_metrics import auroc

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = assemble_detection(tmp_path / "work")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delenv("M3B_WEIGHTS", raising=False)
    for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    return place


def write_backbone(project: Path, tmp_path: Path, kind: str) -> str:

    folder = clip_backbone(tmp_path / "clip") if kind == "clip" else conv_backbone(tmp_path / "conv")
    return str(folder)


def predict_elsewhere(project: Path, tmp_path: Path, *images: str) -> list[dict[str, object]]:
    """By the delivered folder alone, elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    os.rename(project / "Deliver", elsewhere)
    done = call(project, str(elsewhere / "predict.py"), *images, "-o", "answers.json", check=False)
    assert done.returncode == int(any(name.endswith(".json") for name in images)), done.stderr[-2000:]
    assert str(tmp_path) not in (elsewhere / "config.json").read_text()
    answers: list[dict[str, object]] = json.loads((project / "answers.json").read_text())
    return answers


def documented_settings(project: Path) -> list[str]:
    """Names of the settings that the README's table about the few-shot engine speaks of."""
    table = (project / "README.md").read_text().split("### Of the few-shot engine")[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def has_setting(plan: Any, name: str) -> bool:
    """Whether a plan has a setting; `a.*` is every one of a."""
    first, _, subkey = name.partition(".")
    return (
        bool(plan.get(first)) if subkey == "*" else first in plan and (not subkey or has_setting(plan[first], subkey))
    )


def test_states_from_plan_to_predictions(project: Path, tmp_path: Path) -> None:
    pictures(project, 20, 20)
    conv = write_backbone(project, tmp_path, "conv")
    printed = call(
        project, "plan.py", "--minutes", "5", "--set", f"backbone={conv}", "fewshot.shots=6", "fewshot.draws=2",
        "fewshot.epochs=12", "ordinary.epochs=4",
    ).stdout  # fmt: skip
    assert "engine fewshot: 20 abnormal and 20 normal training cases" in printed
    plan = json.loads((project / "plan.json").read_text())
    assert len(documented_settings(project)) > 10
    assert [name for name in documented_settings(project) if not has_setting(plan, name)] == []
    out = call(project, "train.py").stdout
    assert "draw 2, image" in out
    assert "fewshot: AUROC" in out
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert set(metrics["over_draws"]) == {"fewshot", "image", "both"}
    assert len(metrics["over_draws"]["fewshot"]["draws"]) == 2
    call(project, "export.py", "--out", "Deliver")
    card = (project / "Deliver/README.md").read_text()
    assert "Trained with 6 examples of each state." in card
    for engine, name in (
        ("fewshot", r"few-shot detector"),
        ("image", r"ordinary network"),
        ("both", r"few-shot detector and ordinary networks together"),
    ):
        summary = metrics["over_draws"][engine]
        (line,) = [line for line in card.splitlines() if re.match(f"- {name}(, delivered)?: ", line)]
        assert ", ".join(f"{value:.3f}" for value in summary["draws"]) in line
        assert f"mean {summary['mean']:.3f}, standard deviation {summary['deviation']:.3f}" in line
    assert card.count(", delivered: ") == 1
    answers = predict_elsewhere(project, tmp_path, "data/x/0.png", "data/x/39.png", "Datapath/train.json")
    assert "error" in answers[2]
    assert all(0 <= float(str(answer["anomaly_score"])) <= 1 for answer in answers[:2])


def test_the_delivered_folder_answers_as_both_together_were_measured(project: Path, tmp_path: Path) -> None:
    pictures(project, 12, 12)
    conv = write_backbone(project, tmp_path, "conv")
    printed = call(
        project, "plan.py", "--minutes", "5", "--set", f"backbone={conv}", "fewshot.shots=4", "fewshot.draws=1",
        "fewshot.epochs=2", "ordinary.epochs=2",
    ).stdout  # fmt: skip
    assert "form an ensemble with it, unless held-out examples favour one of them" in printed
    out = call(project, "train.py").stdout
    (kept_line,) = [line for line in out.splitlines() if line.startswith("kept: ")]
    assert "few-shot and ordinary networks together (mean validation AUROC few-shot" in kept_line
    validation_rows = {row["image"]: row for row in json.loads((project / "Logout/valid_predictions.json").read_text())}
    assert len(validation_rows) == 16, "labelled cases that were not drawn"
    truth, scores = (np.array([row[key] for row in validation_rows.values()]) for key in ("abnormal", "anomaly_score"))
    validation = json.loads((project / "Logout/metrics.json").read_text())["validation"]
    assert validation["cases"] == 16
    assert validation["image_auroc"] == pytest.approx(auroc(truth, scores), abs=1e-4), "of these cases"
    call(project, "export.py", "--out", "Deliver")
    assert "ordinary networks together, delivered: " in (project / "Deliver/README.md").read_text()
    config = json.loads((project / "Deliver/config.json").read_text())
    assert config["together"]["copies"] == 4, "three of parts of the examples, one of all"
    for answer in predict_elsewhere(project, tmp_path, *validation_rows):
        score = validation_rows[str(answer["image"])]["anomaly_score"]
        assert float(str(answer["anomaly_score"])) == pytest.approx(score, abs=1e-4)
        assert Path(project / str(answer["anomaly_map"])).is_file()


def test_the_published_protocol_is_compared_and_not_mixed(project: Path, tmp_path: Path) -> None:
    pictures(project, 6, 6)
    conv = write_backbone(project, tmp_path, "conv")
    call(
        project, "plan.py", "--minutes", "5", "--set", f"backbone={conv}", "fewshot.shots=3", "fewshot.draws=1",
        "fewshot.epochs=1", "ordinary.epochs=1", "fewshot.protocol=paper",
    )  # fmt: skip
    out = call(project, "train.py").stdout
    assert "kept: few-shot" in out or "kept: the ordinary network" in out
    assert set(json.loads((project / "Logout/metrics.json").read_text())["over_draws"]) == {"fewshot", "image"}


def test_adapters_of_another_set_answer_without_any_example(project: Path, tmp_path: Path) -> None:
    pictures(project, 16, 16)
    clip = write_backbone(project, tmp_path, "clip")
    call(
        project, "plan.py", "--minutes", "5", "--set", f"backbone={clip}", "fewshot.epochs=25", "fewshot.compare=false"
    )
    call(project, "train.py")
    call(project, "export.py", "--out", "Deliver")
    taught = tmp_path / "taught"
    os.rename(project / "Deliver", taught)
    pictures(project, 9, 7)
    setting = f"fewshot.adapters={taught}"
    printed = call(project, "plan.py", "--minutes", "1", "--set", f"backbone={clip}", setting, "fewshot.shots=0").stdout
    assert "examples: none (zero-shot)" in printed
    assert "starts with adapters trained on other sets: taught" in printed
    out = call(project, "train.py").stdout
    assert "no examples used: adapters trained on other sets; on 16 labelled cases AUROC" in out
    metrics = json.loads((project / "Logout/metrics.json").read_text())
    assert (metrics["epochs"], metrics["validation"]["cases"]) == ([0], 16)
    call(project, "export.py", "--out", "Deliver")
    assert "Trained without examples of this data" in (project / "Deliver/README.md").read_text()
    usual, ill = predict_elsewhere(project, tmp_path, "data/x/0.png", "data/x/15.png")
    assert float(str(usual["anomaly_score"])) != float(str(ill["anomaly_score"]))


def test_masks_from_a_vision_language_model(project: Path, tmp_path: Path) -> None:
    pictures(project, 12, 12, masks=True)
    clip = write_backbone(project, tmp_path, "clip")
    printed = call(
        project, "plan.py", "--minutes", "5", "--set", f"backbone={clip}", "fewshot.epochs=3", 'prompts.object="image"',
        "fewshot.compare=false",
    ).stdout  # fmt: skip
    assert "too few abnormal cases" in printed
    call(project, "train.py")
    call(project, "export.py", "--out", "Deliver")
    (answer,) = predict_elsewhere(project, tmp_path, "data/x/20.png")
    anomaly_map = np.asarray(Image.open(project / str(answer["anomaly_map"])))
    assert anomaly_map.shape == (40, 44)
    assert anomaly_map.min() >= 0
    assert 500 < anomaly_map.max() <= 1000
    masks = answer["masks"]
    assert isinstance(masks, dict)
    assert set(np.unique(np.asarray(Image.open(project / masks["lesion"])))) <= {0, 1}


def test_normal_images_alone_tell_what_is_unlike_them(project: Path, tmp_path: Path) -> None:
    pictures(project, 10, 0)
    conv = write_backbone(project, tmp_path, "conv")
    printed = call(project, "plan.py", "--minutes", "1", "--set", f"backbone={conv}").stdout
    assert "no abnormal case to learn from" in printed
    call(project, "train.py")
    call(project, "export.py", "--out", "Deliver")
    odd_picture = np.full((40, 44), 90, np.uint8)
    odd_picture[8:24, 8:24] = 255
    Image.fromarray(odd_picture).save(project / "odd.png")
    usual_answer, odd_answer = predict_elsewhere(project, tmp_path, "data/x/0.png", "odd.png")
    assert float(str(odd_answer["anomaly_score"])) > float(str(usual_answer["anomaly_score"]))


def test_without_a_backbone_it_is_said_and_an_ordinary_network_trained(project: Path, tmp_path: Path) -> None:
    pictures(project, 14, 14)
    printed = call(project, "plan.py", "--minutes", "5", "--set", "ordinary.epochs=3").stdout
    assert "a few-shot detector would need a pretrained backbone, and there is none" in printed
    call(project, "train.py")
    call(project, "export.py", "--out", "Deliver")
    (answer,) = predict_elsewhere(project, tmp_path, "data/x/0.png")
    assert set(answer) == {"image", "anomaly_score"}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("backbone=/nowhere", "is no folder"),
        ("fewshot.protocol=other", "it is m3b or paper"),
        ("fewshot.shots=0", "which needs adapters trained on other sets: set fewshot.adapters=FOLDER"),
        ("fewshot.shots=-1", "fewshot.shots is -1; it is a whole number from 0"),
        ("fewshot.shots=true", "fewshot.shots is True; it is a whole number from 0"),
        ("fewshot.adapters=/nowhere", "holds no few-shot detector (config.json)"),
        ("fewshot.draws=0", "fewshot.draws is 0; it is a whole number from 1"),
        ("fewshot.epochs=many", "fewshot.epochs is 'many'; it is a whole number from 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(project: Path, tmp_path: Path, setting: str, says: str) -> None:
    pictures(project, 6, 6)
    done = call(project, "plan.py", "--minutes", "1", "--set", setting, check=False)
    assert done.returncode != 0
    assert says in done.stderr


def test_more_shots_than_cases_are_refused(project: Path, tmp_path: Path) -> None:
    pictures(project, 6, 6)
    conv = write_backbone(project, tmp_path, "conv")
    call(project, "plan.py", "--minutes", "1", "--set", f"backbone={conv}", "fewshot.shots=9")
    done = call(project, "train.py", check=False)
    assert done.returncode != 0
    assert "fewshot.shots is 9, and train.json has 6 readable normal cases" in done.stderr


def test_of_masks_the_better_of_both_detectors_is_kept(project: Path, tmp_path: Path) -> None:
    pictures(project, 14, 14, masks=True)
    conv = write_backbone(project, tmp_path, "conv")
    printed = call(
        project, "plan.py", "--minutes", "0.6", "--set", f"backbone={conv}", "fewshot.epochs=2", "network.width=4",
    ).stdout  # fmt: skip
    assert "half of the minutes go to the ordinary detector on the same cases" in printed
    out = call(project, "train.py").stdout
    (kept_line,) = [line for line in out.splitlines() if line.startswith("kept: ")]
    assert "validation, few-shot against ordinary: dice" in kept_line
    call(project, "export.py", "--out", "Deliver")
    config = json.loads((project / "Deliver/config.json").read_text())
    ordinary = kept_line.startswith("kept: the ordinary detector")
    assert (config["plan"]["engine"] == "patches") == ordinary
    assert ("thresholds" in config) == ordinary
    detector_images = {
        json.dumps(row["image"]) for row in json.loads((project / "Logout/detector/valid_predictions.json").read_text())
    }
    project_images = {
        json.dumps(row["image"]) for row in json.loads((project / "Logout/valid_predictions.json").read_text())
    }
    assert detector_images == project_images, "both are judged on the same cases"
    (answer,) = predict_elsewhere(project, tmp_path, "data/x/20.png")
    assert set(answer) >= {"masks", "boxes", "anomaly_score"}
