"""Whole runs of the shipped templates on the rules, from a folder of raw data to a model that answers new images.

Half a minute and more each, most of it imports and checks, so all but one are slow tests. How good the models are is no
question here: a busy machine trains for a few steps only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import target_kit as kit

from formats.slide_kit import draw_slide, write_slide
from m3b import Pipeline, load_model, verify, write_paper_kit
from m3b.dataset.reading import probe_shape
from m3b.errors import ModelError
from m3b.run.result import Result

MINUTES = 0.1
SHAPES = {"round", "square"}


def whole_run(data: Path, request: str, out: Path, minutes: float = MINUTES) -> Result:
    result = Pipeline("rules", data=[data], out=out, train_minutes=minutes).run(request)
    assert result.status in ("completed", "below_range"), result.reason
    assert result.integrity == "clean"
    assert result.model_dir is not None
    assert result.primary is not None
    assert json.loads((Path(result.model_dir) / "provenance.json").read_text())
    kit = write_paper_kit(out, out / "paper")
    assert f"{result.primary.value:.3f}" in (kit.folder / "results.md").read_text()
    assert verify(out).comparisons[-1].state == "same"
    return result


def answers(result: Result, *images: Any) -> list[Any]:
    """What the delivered model says of images, from a process of its own."""
    return list(load_model(str(result.model_dir)).predict(list(images)))


def index(result: Result) -> list[dict[str, Any]]:
    """All cases, and the names of the labels are those of the data."""
    place = Path(result.run_dir) / "work/Datapath"
    return [case for split in ("train", "test") for case in json.loads((place / f"{split}.json").read_text())]


def task_and_metric(result: Result) -> tuple[str, str]:
    """The task, and the metric that the model was judged by."""
    return result.task, result.primary.name if result.primary else ""


def labels(result: Result) -> set[str]:
    return set(json.loads((Path(result.run_dir) / "work/Datapath/label_dict.json").read_text()))


def test_boxes_in_2d_from_voc_files(tmp_path: Path) -> None:
    data = kit.voc(tmp_path / "smears")
    result = whole_run(data, "Find round and square cells in blood smears, with boxes", tmp_path / "run")
    assert task_and_metric(result) == ("detection", "map_50")
    assert labels(result) == SHAPES
    assert result.metrics.keys() >= {"map_50", "map", "froc"}
    [answer] = answers(result, data / "JPEGImages/smear_000.png")
    assert answer.boxes is not None
    assert all(box.label in SHAPES and len(box.box) == 4 for box in answer.boxes)


@pytest.mark.slow
def test_boxes_in_3d(tmp_path: Path) -> None:
    data = kit.boxed_volumes(tmp_path / "phantoms")
    result = whole_run(data, "Put boxes around the round and square inserts of MRI phantoms", tmp_path / "run")
    assert task_and_metric(result) == ("detection", "map_50")
    assert labels(result) == SHAPES
    assert all(len(box["box"]) == 6 for case in index(result) for box in case["boxes"])
    [answer] = answers(result, data / "scans/scan_000.nii.gz")
    assert all(box.label in SHAPES and len(box.box) == 6 for box in answer.boxes)


@pytest.mark.slow
def test_masks_in_2d(tmp_path: Path) -> None:
    data = kit.outlined(tmp_path / "slides")
    result = whole_run(data, "Segment the nuclei on microscopy slides", tmp_path / "run")
    assert task_and_metric(result) == ("segmentation", "dice")
    image = data / "images/slide_000.png"
    [answer] = load_model(str(result.model_dir)).predict([image], out=tmp_path / "out")
    assert Path(answer.mask).is_file()


@pytest.mark.slow
def test_masks_in_3d_from_a_decathlon_folder(tmp_path: Path) -> None:
    data = kit.decathlon(tmp_path / "shapes")
    result = whole_run(data, "Segment the round and square inserts on MRI", tmp_path / "run")
    assert task_and_metric(result) == ("segmentation", "dice")
    assert labels(result) == SHAPES
    [answer] = load_model(str(result.model_dir)).predict([data / "imagesTr/scan_000.nii.gz"], out=tmp_path / "out")
    assert Path(answer.mask).is_file()


@pytest.mark.slow
def test_masks_on_two_sequences_a_case(tmp_path: Path) -> None:
    """From the folder to the delivered model a sequence is known by its name, and none is stacked."""
    data = kit.sequences(tmp_path / "inserts")
    result = whole_run(data, "Segment the round and square inserts on FLAIR and T1 MRI", tmp_path / "run")
    assert task_and_metric(result) == ("segmentation", "dice")
    assert all(list(case["image_path"]) == ["flair", "t1"] for case in index(result))
    model, case = load_model(str(result.model_dir)), data / "case_000"
    assert model.channels == ("flair", "t1")
    assert "flair=IMAGE t1=IMAGE" in model.card
    [answer] = model.predict({"t1": case / "t1.nii.gz", "flair": case / "flair.nii.gz"}, out=tmp_path / "out")
    assert Path(answer.mask).is_file()
    [partial] = model.predict({"flair": case / "flair.nii.gz"}, out=tmp_path / "out")
    assert Path(partial.mask).is_file()


@pytest.mark.slow
def test_masks_out_of_segments_among_the_slices(tmp_path: Path) -> None:
    """Slices and segmentation lie in one folder under running numbers: the slices alone are the volume, as a folder or a list."""
    data = kit.mixed_dicom(tmp_path / "exports")
    result = whole_run(data, "Segment the round and square inserts on CT", tmp_path / "run")
    assert task_and_metric(result) == ("segmentation", "dice")
    assert labels(result) == SHAPES
    cases = index(result)
    assert {case["image_path"].split("/")[-1] for case in cases} == {f"p{at:03d}" for at in range(16)}
    assert {probe_shape(str(data / f"p{at:03d}"))[2] for at in range(16)} == {kit.DEPTH}
    slices = [data / "p000" / f"{at:04d}.dcm" for at in range(kit.DEPTH)]
    [answer] = load_model(str(result.model_dir)).predict([slices], out=tmp_path / "out")
    assert all(file.is_file() for file in answer.masks.values())


@pytest.mark.slow
def test_classes_of_clips(tmp_path: Path) -> None:
    """A model is trained on whole clips, and answers for them."""
    data = kit.clips(tmp_path / "lungs")
    result = whole_run(data, "Tell effusion from clear lungs on ultrasound clips", tmp_path / "run")
    assert task_and_metric(result) == ("diagnosis", "auroc")
    assert labels(result) == {"effusion", "clear"}
    assert {str(case["image_path"]).rpartition(".")[2] for case in index(result)} == {"gif"}
    [answer] = answers(result, data / "effusion/clip_001.gif")
    assert set(answer.probabilities) == {"effusion", "clear"}


@pytest.mark.slow
def test_masks_out_of_outlines(tmp_path: Path) -> None:
    """LabelMe's polygons are drawn, and what is delivered answers with masks."""
    data = kit.polygons(tmp_path / "fields")
    result = whole_run(data, "Segment round and square cells on microscopy images", tmp_path / "run")
    assert task_and_metric(result) == ("segmentation", "dice")
    assert labels(result) == SHAPES
    assert len(index(result)) == 40
    assert all(isinstance(case["mask_path"], str) for case in index(result)), (
        "outlines that do not overlap: one mask of numbers"
    )
    model = load_model(str(result.model_dir))
    [answer] = model.predict([data / "field_000.png"], out=tmp_path / "out")
    assert Path(answer.mask).is_file()
    assert set(model.classes) == SHAPES


@pytest.mark.slow
def test_masks_of_classes_that_lie_in_each_other(tmp_path: Path) -> None:
    """A pixel of the core is one of the tumour too, in the index, in training and in the answer."""
    data = kit.nested(tmp_path / "slices")
    result = whole_run(data, "Segment the tumor and its core on brain MRI slices", tmp_path / "run", minutes=0.5)
    assert task_and_metric(result) == ("segmentation", "dice")
    assert all(set(case["mask_path"]) == {"tumor", "core"} for case in index(result))
    plan = json.loads((Path(result.run_dir) / "work/plan.json").read_text())
    assert plan["overlap"] is True
    [answer] = load_model(str(result.model_dir)).predict([data / "images/slice_000.png"], out=tmp_path / "out")
    assert all(file.is_file() for file in answer.masks.values())
    assert set(answer.masks) == {"tumor", "core"}


@pytest.mark.slow
def test_lesions_as_masks(tmp_path: Path) -> None:
    """Healthy patients are kept: nothing marked is an answer too."""
    data = kit.lesions(tmp_path / "flair")
    result = whole_run(data, "Detect lesions on brain MRI", tmp_path / "run")
    assert task_and_metric(result) == ("detection", "lesion_f1")
    assert result.metrics.keys() >= {"lesion_f1", "dice"}
    assert len(index(result)) == 24


@pytest.mark.slow
def test_several_labels_an_image(tmp_path: Path) -> None:
    data = kit.several_labels(tmp_path / "xrays")
    result = whole_run(data, "Classify round and square shadows on chest X-rays", tmp_path / "run")
    assert task_and_metric(result) == ("diagnosis", "auroc")
    assert labels(result) == SHAPES
    assert any(len(case["labels"]) == 2 for case in index(result))
    [answer] = answers(result, data / "images/x000.png")
    assert set(answer.probabilities) == SHAPES


@pytest.mark.slow
def test_one_label_a_dicom_series(tmp_path: Path) -> None:
    data = kit.dicom_series(tmp_path / "heads")
    result = whole_run(data, "Tell bleeding from clear on head CT", tmp_path / "run")
    assert (result.task, labels(result)) == ("diagnosis", {"bleeding", "clear"})
    assert len(index(result)) == 32, "a case is a series, not a slice"
    [answer] = answers(result, data / "series/p001")
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_a_number_with_its_unit(tmp_path: Path) -> None:
    data = kit.brightened(tmp_path / "films")
    result = whole_run(data, "Predict the bone density in g on wrist X-rays", tmp_path / "run", minutes=0.3)
    assert task_and_metric(result) == ("regression", "mae")
    assert labels(result) == {"bone density (g)"}
    assert result.metrics.keys() >= {"mae", "rmse", "r2", "pearson"}
    assert result.primary is not None
    assert 20 < (result.primary.baseline or 0) < 45, "the median of the training cases"
    [answer] = answers(result, data / "films/film000.png")
    low, high = answer.extra["interval"]
    assert low < answer.extra["value"] < high
    assert "Predicted against true" in (Path(result.run_dir) / "report.html").read_text()
    card = (Path(str(result.model_dir)) / "README.md").read_text()
    assert "limits of agreement" in card
    assert "| sex | F |" in card
    figures = json.loads((Path(str(result.model_dir)) / "metrics.json").read_text())
    assert {subgroup["group"] for subgroup in figures["details"]["subgroups"]["sex"]} == {"F", "M"}
    assert "attributes" not in (Path(result.run_dir) / "work/Datapath/train.json").read_text()


@pytest.mark.slow
def test_a_diagnosis_with_age_and_sex_beside_the_image(tmp_path: Path) -> None:
    """Asked for, they are read, trained with, answered with, held against the model and written on the card."""
    data = kit.aged(tmp_path / "films")
    result = whole_run(data, "Tell healthy from ill on chest films, using age and sex", tmp_path / "run", minutes=0.3)
    assert task_and_metric(result) == ("diagnosis", "auroc")
    cases = index(result)
    assert {"age", "sex"} == set(cases[0]["covariates"])
    assert sum(case["covariates"]["age"] is None for case in cases) == 7
    assert result.primary is not None
    assert 0.55 < (result.primary.baseline or 0) < 1, "what the covariates alone give, not a coin"
    model, image = load_model(str(result.model_dir)), data / "films/film001.png"
    young, old = model.predict([{"image": image, "age": age, "sex": "F"} for age in (35, 85)])
    assert young.probabilities["ill"] < old.probabilities["ill"]
    with pytest.raises(ModelError, match="it has no age"):
        model.predict([image])
    assert "what the covariates alone give" in model.card
    assert "--with age=VALUE sex=VALUE" in model.card


@pytest.mark.slow
def test_survival_of_patients_some_of_whom_are_censored(tmp_path: Path) -> None:
    data = kit.followed(tmp_path / "scans")
    result = whole_run(data, "Predict the overall survival on chest CT slices", tmp_path / "run", minutes=0.5)
    assert task_and_metric(result) == ("survival", "c_index")
    assert labels(result) == {"overall survival (months)"}
    assert {case["event"] for case in index(result)} == {True, False}
    assert result.primary is not None
    assert result.primary.baseline == 0.5
    assert result.metrics["ibs"]["baseline"] is not None
    [answer] = answers(result, data / "scans/scan000.png")
    assert 0 <= answer.extra["risk"] <= 1
    times, shares = zip(*answer.extra["survival"], strict=True)
    assert list(times) == sorted(times)
    assert list(shares) == sorted(shares, reverse=True)
    card = (Path(str(result.model_dir)) / "README.md").read_text()
    assert "survival curve of the training cases for everybody" in card


@pytest.mark.slow
def test_a_diagnosis_of_studies_of_two_views(tmp_path: Path) -> None:
    """What shows in one view of two is found where the study is answered as a whole."""
    data = kit.two_views(tmp_path / "films")
    result = whole_run(data, "Tell healthy from ill on chest films, from both views", tmp_path / "run", minutes=0.4)
    assert task_and_metric(result) == ("diagnosis", "auroc")
    cases = index(result)
    assert len(cases) == 80
    assert all(case["several"] == "views" and len(case["image_path"]) == 2 for case in cases)
    views = [data / f"films/s001_{view}.png" for view in ("frontal", "lateral")]
    [answer] = answers(result, views)
    assert set(answer.probabilities) == {"healthy", "ill"}
    [alone] = answers(result, views[0])
    assert set(alone.probabilities) == {"healthy", "ill"}


@pytest.mark.slow
def test_grades_in_their_order(tmp_path: Path) -> None:
    data = kit.brightened(tmp_path / "films")
    result = whole_run(data, "Grade the bone density 0 to 3 on wrist X-rays", tmp_path / "run", minutes=0.3)
    assert task_and_metric(result) == ("grading", "qwk")
    assert all("grade" in case for case in index(result))
    assert result.metrics["grade_mae"]["baseline"] is not None
    [answer] = answers(result, data / "films/film000.png")
    assert list(answer.probabilities) == ["0", "1", "2", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("views", [1, 2])
def test_reports_of_one_and_of_several_views(tmp_path: Path, views: int) -> None:
    data = kit.reports(tmp_path / "studies", views=views)
    result = whole_run(data, "Write the report of a chest X-ray", tmp_path / "run")
    assert task_and_metric(result) == ("report", "bleu_4")
    cases = index(result)
    assert len(cases) == 60
    assert {len(case["image_path"]) if isinstance(case["image_path"], list) else 1 for case in cases} == {views}
    images = [data / f"images/s000_{side}.png" for side in ("frontal", "lateral")[:views]]
    [answer] = answers(result, images if views > 1 else images[0])
    assert answer.findings or answer.impression


@pytest.mark.slow
def test_slides_by_their_tiles(tmp_path: Path) -> None:
    data = tmp_path / "slides"
    data.mkdir()
    rows = ["slide,patient,diagnosis"]
    for number in range(24):
        file = data / f"slide_{number:02d}.tif"
        pixels = draw_slide(2048, number, ill=number % 2 == 1)
        write_slide(file, pixels, ("subifds", "pages", "one level")[number % 3], um=0.5)
        rows.append(f"{file.name},P{number:02d},{('healthy', 'tumour')[number % 2]}")
    (data / "labels.csv").write_text("\n".join(rows) + "\n")
    result = whole_run(data, "Tell tumour from healthy on whole slide images", tmp_path / "run")
    assert task_and_metric(result) == ("diagnosis", "auroc")
    plan = json.loads((Path(str(result.model_dir)) / "config.json").read_text())["plan"]
    assert plan["tiles"]["um"] == 0.5 * plan["tiles"]["factor"]
    assert "pooled by gated attention" in (tmp_path / "run/report.html").read_text()
    new = write_slide(tmp_path / "new.svs", draw_slide(2048, 99), "svs", um=0.5)
    first, second = answers(result, new, data / "slide_00.tif")
    assert set(first.probabilities) == set(second.probabilities) == {"healthy", "tumour"}
