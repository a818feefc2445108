"""The cases of `m3b view`: which may be looked at, and image, reference and prediction as layers on one grid."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from m3b.data.records import Record, Report
from m3b.isolation.reader.inprocess import InProcessReader
from m3b.models import Prediction, case_layers
from m3b.models.case_layers import LayersRequest, choose_steps, read_case
from m3b.models.overlay import DrawnBox
from m3b.run.folder import RunFolder
from m3b.serve.view.case_list import TEST, VALIDATION, ListedCase, list_cases
from m3b.serve.view.case_routes import list_case_facts
from view_kit import get_key, open_client, write_box_run, write_run, write_volume_run


def find_cases(run: Path, part: str) -> list[ListedCase]:
    return [case for case in list_cases(RunFolder(run)).cases if case.part == part]


def get_layers(client: TestClient, run: Path, case: ListedCase, channel: int = 0) -> dict[str, Any]:
    response = client.get(f"/runs/{get_key(run)}/cases/{case.id}/layers?channel={channel}")
    assert response.status_code == 200, response.text
    return dict(response.json())


def read_nifti(content: bytes) -> Any:
    return nib.Nifti1Image.from_bytes(gzip.decompress(content))


def test_only_test_cases_of_the_report_are_listed_and_the_worst_prediction_first(tmp_path: Path) -> None:
    write_volume_run(tmp_path / "run", n_tests=12)
    cases = list_cases(RunFolder(tmp_path / "run"))
    parts = [case.part for case in cases.cases]
    assert (parts.count("training"), parts.count("validation"), parts.count("test")) == (2, 1, 9)
    assert (cases.n_tests, cases.n_hidden_tests) == (12, 3)
    values = [case.value for case in cases.cases if case.value is not None]
    assert values == sorted(values)
    assert parts[-2:] == ["training", "training"], "cases without a prediction come last"
    client = open_client(tmp_path)
    page = client.get(f"/runs/{get_key(tmp_path / 'run')}/cases")
    assert page.status_code == 200
    assert page.text.count("/cases/") == 0, "addresses are relative"
    assert page.text.count('href="cases/') == 12
    hidden = {f"image{n}.nii.gz" for n in range(15)} - {case.record.key for case in cases.cases}
    assert len(hidden) == 3
    assert not any(name in page.text for name in hidden)


def test_image_and_masks_of_a_volume_lie_on_one_grid(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    client, case = open_client(tmp_path), find_cases(run, TEST)[0]
    data = get_layers(client, run, case)
    (image,) = data["images"]
    assert image["isVolume"]
    assert [layer["source"] for layer in image["layers"]] == ["reference", "prediction"]
    assert [name for name, _ in data["legend"]] == ["organ", "lesion"]
    responses = [client.get(item["address"]) for item in (image, *image["layers"])]
    volume, reference, prediction = (read_nifti(response.content) for response in responses)
    stored = nib.load(run / f"locked/{case.record.key}")
    assert np.allclose(nib.as_closest_canonical(volume).affine, nib.as_closest_canonical(stored).affine)
    values = [np.asarray(nib.as_closest_canonical(item).dataobj) for item in (volume, stored)]
    assert np.array_equal(*values)
    mask = nib.as_closest_canonical(nib.load(run / "locked" / str(case.record.mask)))
    assert np.array_equal(nib.as_closest_canonical(prediction).dataobj, mask.dataobj), "prediction: filled"
    outline = np.asarray(nib.as_closest_canonical(reference).dataobj)
    assert 0 < (outline > 0).sum() < (np.asarray(mask.dataobj) > 0).sum(), "reference: the outline"
    assert np.array_equal(reference.affine, volume.affine)
    assert volume.header["cal_max"] > volume.header["cal_min"]
    centre = np.linalg.inv(mask.affine) @ [*image["centre"], 1]
    assert np.asarray(mask.dataobj)[tuple(centre[:3].round().astype(int))] > 0


def test_boxes_are_shares_of_the_picture_and_those_of_a_low_score_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_box_run(run)
    client = open_client(tmp_path)
    data = get_layers(client, run, find_cases(run, TEST)[0])
    (image,) = data["images"]
    assert not image["isVolume"]
    assert [(box["source"], box["corners"], box["score"]) for box in image["boxes"]] == [
        ("reference", [10 / 80, 5 / 40, 30 / 80, 25 / 40], None),
        ("prediction", [11 / 80, 6 / 40, 31 / 80, 26 / 40], 0.9),
    ]
    assert len(data["notes"]) == 1
    picture = Image.open(io.BytesIO(client.get(image["address"]).content))
    assert (picture.format, picture.size) == ("PNG", (80, 40))


@pytest.mark.parametrize("case_id", ["../../../run.json", "..%2f..%2frun.json", "0" * 16, "%00", "image3.nii.gz"])
def test_what_is_no_id_of_a_listed_case_is_not_found(tmp_path: Path, case_id: str) -> None:
    write_volume_run(tmp_path / "run", n_tests=3)
    client, key = open_client(tmp_path), get_key(tmp_path / "run")
    for address in (f"/runs/{key}/cases/{case_id}", f"/runs/{key}/cases/{case_id}/layers"):
        assert client.get(address).status_code == 404
    hidden = client.get(f"/runs/{'f' * 16}/cases")
    assert hidden.status_code == 404


def test_a_locked_test_case_that_the_report_does_not_show_is_not_found(tmp_path: Path) -> None:
    import hashlib

    run = tmp_path / "run"
    write_volume_run(run, n_tests=12)
    listed_keys = {case.record.key for case in list_cases(RunFolder(run)).cases}
    hidden = next(f"image{n}.nii.gz" for n in range(3, 15) if f"image{n}.nii.gz" not in listed_keys)
    case_id = hashlib.sha256(hidden.encode()).hexdigest()[:16]
    assert open_client(tmp_path).get(f"/runs/{get_key(run)}/cases/{case_id}/layers").status_code == 404


@pytest.mark.parametrize("layer", ["7-0.nii.gz", "0-9.nii.gz"])
def test_a_layer_that_a_case_does_not_have_is_not_found(tmp_path: Path, layer: str) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    address = f"/runs/{get_key(run)}/cases/{find_cases(run, TEST)[0].id}/{layer}"
    assert open_client(tmp_path).get(address).status_code == 404


def test_pages_take_the_token(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    client = open_client(tmp_path)
    client.cookies.clear()
    for page in ("cases", f"cases/{find_cases(run, TEST)[0].id}/layers", "data", "manifest"):
        assert client.get(f"/runs/{get_key(run)}/{page}").status_code == 401


def test_an_image_that_was_deleted_or_is_broken_is_told_without_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    case, second_case = find_cases(run, TEST)[:2]
    (run / f"locked/{case.record.key}").unlink()
    (run / f"locked/{second_case.record.key}").write_bytes(b"no volume")
    client = open_client(tmp_path)
    for item in (case, second_case):
        data = get_layers(client, run, item)
        assert (data["images"], len(data["notes"])) == ([], 1)
        assert str(tmp_path) not in json.dumps(data)
        assert client.get(f"/runs/{get_key(run)}/cases/{item.id}").status_code == 200


def test_masks_of_another_grid_are_left_out_with_a_note(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    case = find_cases(run, TEST)[0]
    far_away = nib.Nifti1Image(np.ones((5, 4, 3), np.uint8), np.diag([9, 9, 9, 1]))
    far_away.affine[:3, 3] = 5000
    nib.save(far_away, run / "locked" / str(case.record.mask))
    data = get_layers(open_client(tmp_path), run, case)
    (image,) = data["images"]
    assert "reference" not in [layer["source"] for layer in image["layers"]]
    assert len(data["notes"]) == 1


def test_a_huge_volume_is_thinned_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3, shape=(60, 24, 16))
    monkeypatch.setattr(case_layers, "MAX_VOXELS", 6000)
    case = find_cases(run, TEST)[0]
    request = LayersRequest(run / "locked", "segmentation", case.record.key)
    layers = InProcessReader().run_job(case_layers.READ_CASE_JOB, request)
    (image,) = layers.images
    assert np.prod(image.size) <= 6000
    assert len(layers.notes) == 1
    thinned, labels = read_nifti(image.content), read_nifti(image.layers[0].content)
    assert thinned.shape == labels.shape == image.size
    assert np.allclose(np.linalg.norm(thinned.affine[:3, :3], axis=0), np.array(choose_steps((24, 60, 16))) * [1, 1, 2])


@pytest.mark.parametrize("shape", [(512, 512, 900), (7, 5000, 5000), (3, 3, 3), (1, 1, 10**9)])
def test_steps_thin_the_longest_axes_first(shape: tuple[int, ...]) -> None:
    steps = choose_steps(shape)
    thinned_shape = [-(-size // step) for size, step in zip(shape, steps, strict=True)]
    assert np.prod(thinned_shape, dtype=float) <= case_layers.MAX_VOXELS
    if np.prod(shape, dtype=float) <= case_layers.MAX_VOXELS:
        assert set(steps) == {1}
    else:
        assert np.prod(thinned_shape, dtype=float) > case_layers.MAX_VOXELS / 2


def test_a_case_without_a_stored_prediction_shows_its_reference(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    client = open_client(tmp_path)
    for part in ("training", VALIDATION):
        case = find_cases(run, part)[0]
        data = get_layers(client, run, case)
        assert {layer["source"] for layer in data["images"][0]["layers"]} == {"reference"}
        assert client.get(f"/runs/{get_key(run)}/cases/{case.id}").status_code == 200
    (run / "locked/answers/answers.json").unlink()
    data = get_layers(open_client(tmp_path), run, find_cases(run, TEST)[0])
    assert {layer["source"] for layer in data["images"][0]["layers"]} == {"reference"}


def test_a_report_case_shows_its_views_and_both_texts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "locked").mkdir(parents=True)
    texts = [Report(f"Findings {number}.", "Normal.") for number in range(4)]
    for number in range(4):
        for view in range(2):
            Image.new("L", (30 + 10 * view, 40), 60 * number).save(run / f"locked/{number}_{view}.png")
    records = [
        Record((f"{number}_0.png", f"{number}_1.png"), patient=f"p{number}", report=text)
        for number, text in enumerate(texts)
    ]
    row = {"image": list(records[3].images), "reference": "Findings 3. Normal.", "prediction": "Opacity."}
    row["image"] = records[3].key
    answers = [Prediction(records[3].image, findings="Opacity.", impression="")]
    write_run(run, "report", records[:3], records[3:], {}, answers=answers, test_rows=[row])
    client, case = open_client(tmp_path), find_cases(run, TEST)[0]
    data = get_layers(client, run, case)
    assert [image["size"] for image in data["images"]] == [[30, 40], [40, 40]]
    assert data["text"] == texts[3].text
    page = client.get(f"/runs/{get_key(run)}/cases/{case.id}").text
    assert "Opacity." in page
    assert "Findings 3." in page


def test_one_channel_of_a_volume_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "locked").mkdir(parents=True)
    for number, value in enumerate((10, 90)):
        array = np.full((8, 6, 4), value, np.int16)
        array[0, 0, 0] = 0
        nib.save(nib.Nifti1Image(array, np.eye(4)), run / f"locked/{number}.nii.gz")
    from m3b.data.records import Channels

    image = Channels((("T1", "0.nii.gz"), ("T2", "1.nii.gz")))
    records = [Record(image, ("a",), patient="p0"), Record(image, ("b",), patient="p1")]
    write_run(run, "diagnosis", records[:1], records[1:], {"a": 0, "b": 1})
    client, case = open_client(tmp_path), find_cases(run, "training")[0]
    for channel, value in ((0, 10), (1, 90), (7, 90)):
        data = get_layers(client, run, case, channel)
        assert data["channels"] == ["T1", "T2"]
        assert read_nifti(client.get(data["images"][0]["address"]).content).get_fdata().max() == value


def test_classes_that_overlap_have_volumes_of_their_own(tmp_path: Path) -> None:
    masks = np.zeros((2, 6, 6, 4), bool)
    masks[0, 1:5, 1:5], masks[1, 2:4, 2:4] = True, True
    marks = case_layers._Marks("prediction", masks, ())
    volumes = case_layers._make_label_volumes(marks, masks.shape[1:], (slice(None),) * 3, False)
    assert [sorted(np.unique(volume)) for volume in volumes] == [[0, 1], [0, 2]]


def test_a_prediction_set_names_its_classes(tmp_path: Path) -> None:
    write_box_run(tmp_path / "run")
    case = find_cases(tmp_path / "run", TEST)[0]
    row = {"prediction_set": {"classes": ["clear", "opacity"], "level": 0.9}}
    facts = dict(list_case_facts(replace(case, row=row), ""))
    assert facts["prediction set: classes"] == "clear, opacity"
    assert facts["prediction set: level"] == "0.900"


def test_a_run_without_an_index_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"format": 2, "id": "run", "status": "working", "data": []}))
    client = open_client(tmp_path)
    for page in ("cases", "data"):
        assert client.get(f"/runs/{get_key(run)}/{page}").status_code == 200
    assert client.get(f"/runs/{get_key(run)}/manifest").status_code == 404


def test_rows_that_were_edited_are_no_error(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_volume_run(run, n_tests=3)
    broken = {"image": "image1.nii.gz", "probabilities": {"a": []}}
    rows = [{"image": "image0.nii.gz", "dice": {"organ": "much"}}, {"image": 7}, broken]
    (run / "work/Logout/valid_predictions.json").write_text(json.dumps(rows))
    (run / "locked/predictions.json").write_text("[5, {}]")
    client = open_client(tmp_path)
    assert client.get(f"/runs/{get_key(run)}/cases").status_code == 200
    for case in find_cases(run, VALIDATION):
        assert client.get(f"/runs/{get_key(run)}/cases/{case.id}").status_code == 200


def test_reading_names_the_case_that_is_missing(tmp_path: Path) -> None:
    from m3b.errors import DataError

    write_volume_run(tmp_path / "run", n_tests=3)
    with pytest.raises(DataError):
        read_case(LayersRequest(tmp_path / "run/locked", "segmentation", "other.nii.gz"))


def test_frames_of_a_clip_are_spread_evenly_with_their_masks_and_boxes() -> None:
    clip = np.zeros((3, 20, 30, 100), np.uint8)
    masks = np.zeros((1, 20, 30, 100), bool)
    masks[0, 5:9, 5:9, 99] = True
    marks = case_layers._Marks("reference", masks, [DrawnBox((2.0, 3.0, 0.0, 8.0, 9.0, 1.0), 0)])
    notes: list[str] = []
    frames = case_layers._make_pictures(clip, "", [marks], notes)
    assert (len(frames), len(notes)) == (case_layers.MAX_FRAMES, 1)
    assert (frames[0].title, frames[-1].title) == ("frame 1 of 100", "frame 100 of 100")
    assert [len(frame.layers) for frame in frames] == [0] * 47 + [1]
    assert [len(frame.boxes) for frame in frames] == [1] + [0] * 47
    assert frames[0].boxes[0].corners == (3 / 30, 2 / 20, 9 / 30, 8 / 20)


def test_a_large_picture_is_scaled_and_says_so() -> None:
    notes: list[str] = []
    (image,) = case_layers._make_pictures(np.zeros((3, 100, 5000), np.uint8), "", [], notes)
    assert (image.size, len(notes)) == ((2048, 41), 1)
