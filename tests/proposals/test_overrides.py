"""What a user fixes: the decision keeps to it, or is a refusal that says what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proposals_kit import write_mask, write_picture

from m3b.dataset.jobs import answer
from m3b.dataset.manifest.overrides import parse_manifest
from m3b.errors import DataError

REQUEST = "Tell pneumonia from normal on chest X-rays"


def run_job(root: Path, do: str, **fields: Any) -> dict[str, Any]:
    """The answer to a job; errors are raised."""
    place = root.parent / f"place-{root.name}"
    place.mkdir(exist_ok=True)
    result = answer({"do": do, "root": str(root), "place": str(place), "seconds": 60, **fields})
    if "error" in result:
        raise DataError(result["error"])
    return result


def propose(root: Path, request: str = REQUEST, **overrides: Any) -> dict[str, Any]:
    outcome: dict[str, Any] = run_job(root, "decide", request=request, overrides=overrides)["outcome"]
    return outcome


def execute(root: Path, manifest: dict[str, Any], work: Path) -> dict[str, Any]:
    (work / "Datapath").mkdir(parents=True)
    job = {"manifest": manifest, "task": manifest["task"], "name": "set", "work": str(work)}
    return run_job(root, "execute", **job)


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    """Sixty pictures of twenty people; two columns of labels, persons under an odd name, a split, and lists."""
    root = tmp_path / "xrays"
    rows = ["file,dx,second,who,part"]
    for number in range(60):
        write_picture(root / f"img/s{number * 37:04d}.png", number)
        labels = f"{['pneumonia', 'normal'][number % 2]},{['normal', 'pneumonia'][number // 3 % 2]}"
        part = "test" if number // 3 % 5 == 0 else "train"
        rows.append(f"s{number * 37:04d}.png,{labels},Q{number // 3:03d}x,{part}")
    (root / "labels.csv").write_text("\n".join(rows))
    (root / "second_visit.txt").write_text("\n".join(f"s{n * 37:04d}.png" for n in range(12)))
    (root / "training_cases.txt").write_text("\n".join(f"s{n * 37:04d}" for n in range(12, 60)))
    (root / "strangers.txt").write_text("\n".join(f"other{n}" for n in range(12)))
    return root


@pytest.mark.parametrize("column", ["dx", "second"])
def test_a_named_column_settles_it(xrays: Path, column: str) -> None:
    outcome = propose(xrays, label_column=column)
    assert outcome["kind"] == "proposed"
    assert outcome["proposals"][0]["manifest"]["labels"]["value"]["value"] == f"{{labels.{column}}}"


def test_patients_split_and_classes_are_those_that_were_named(xrays: Path) -> None:
    outcome = propose(xrays, label_column="dx", patient_column="who", split="part", classes=["pneumonia", "normal"])
    manifest = outcome["proposals"][0]["manifest"]
    assert manifest["patient"]["value"] == "{labels.who}"
    assert manifest["split"]["value"]["value"] == "{labels.part}"
    assert list(manifest["labels"]["classes"]) == ["pneumonia", "normal"]


def test_a_drawn_split_is_drawn(xrays: Path) -> None:
    assert "split" not in propose(xrays, label_column="dx", split="drawn")["proposals"][0]["manifest"]


@pytest.mark.parametrize("file", ["second_visit.txt", "training_cases.txt"])
def test_a_file_lists_one_part(xrays: Path, tmp_path: Path, file: str) -> None:
    outcome = propose(xrays, label_column="dx", split=file)
    facts = execute(xrays, outcome["proposals"][0]["manifest"], tmp_path / "work")
    assert (facts["train"], facts["test"]) == (48, 12)


@pytest.mark.parametrize("overrides", [{"split": "strangers.txt"}, {"classes": ["normal", "covid"]}])
def test_what_nothing_keeps_to_is_refused(xrays: Path, overrides: dict[str, Any]) -> None:
    outcome = propose(xrays, label_column="dx", **overrides)
    assert outcome["kind"] == "refuse"
    assert outcome["refusal"]["code"] == "overrides_not_met"


@pytest.mark.parametrize(
    "overrides",
    [{"labels": "other.csv"}, {"label_column": "grade"}, {"masks": "masks"}, {"split": "folders"}, {"split": "fold"}],
)
def test_names_that_are_not_there_are_refused(xrays: Path, overrides: dict[str, Any]) -> None:
    option = f"--{next(iter(overrides)).replace('_', '-')}"
    with pytest.raises(DataError, match=option):
        run_job(xrays, "check", overrides=overrides)


def test_names_that_are_there_are_accepted(xrays: Path) -> None:
    overrides = {"labels": "labels.csv", "label_column": "dx", "patient_column": "who", "split": "part"}
    assert run_job(xrays, "check", overrides=overrides) == {}


def test_masks_are_those_of_the_named_folder(tmp_path: Path) -> None:
    root = tmp_path / "scans"
    for number in range(30):
        write_picture(root / f"images/c{number:02d}.png", number)
        for place, reader in enumerate(("first", "second")):
            write_mask(root / f"{reader}/c{number:02d}.png", number + 100 * place)
    for reader in ("first", "second"):
        outcome = propose(root, "Segment the lesion", masks=reader)
        assert outcome["kind"] == "proposed"
        masks = outcome["proposals"][0]["manifest"]["masks"]
        other_reader = {"first": "second", "second": "first"}[reader]
        assert masks["files"].startswith(f"{reader}/") or masks["exclude"] == [f"{other_reader}/*"]
    assert propose(root, "Segment the lesion")["kind"] == "ask"


def test_a_manifest_is_counted_and_compared_with_its_proposal(xrays: Path) -> None:
    proposed = propose(xrays, label_column="dx")["proposals"][0]["manifest"]
    edited = {**proposed, "labels": {**proposed["labels"], "classes": {"normal": ["normal"]}}}
    facts = run_job(xrays, "count", manifest=edited, proposal=proposed)
    assert facts["excluded_cases"][0]["count"] == 30
    assert facts["training"]["cases"] + facts["testing"]["cases"] == 30
    assert facts["difference"]
    assert not run_job(xrays, "count", manifest=proposed, proposal=proposed)["difference"]


def test_an_invalid_manifest_names_the_part(xrays: Path) -> None:
    with pytest.raises(DataError, match="labels"):
        run_job(
            xrays, "count", manifest={"task": "diagnosis", "images": {"files": "img/*.png"}, "labels": {"colums": {}}}
        )


def test_a_script_that_made_other_labels_is_found(xrays: Path, tmp_path: Path) -> None:
    manifest = propose(xrays, label_column="dx")["proposals"][0]["manifest"]
    work = tmp_path / "work"
    execute(xrays, manifest, work)
    job = {
        "request": REQUEST,
        "overrides": {"label_column": "dx"},
        "task": "diagnosis",
        "name": "set",
        "base": str(work),
    }
    equal = run_job(xrays, "compare", **job)
    assert equal["fits"]
    assert (equal["compared"], equal["agreeing"], equal["missing"], equal["expected"]) == (60, 60, 0, True)
    train_file, test_file = (work / f"Datapath/{part}.json" for part in ("train", "test"))
    n_training = 45 - len(json.loads(test_file.read_text()))
    records = json.loads(train_file.read_text())[:n_training]
    for record in records[:20]:
        record["labels"] = ["normal" if record["labels"] == ["pneumonia"] else "pneumonia"]
    train_file.write_text(json.dumps(records))
    changed = run_job(xrays, "compare", **job)
    assert not changed["fits"]
    assert changed["leaves_out"]
    assert (changed["compared"], changed["agreeing"], changed["missing"]) == (45, 25, 15)


@pytest.mark.parametrize("classes", [(), ("tumour",)])
def test_names_of_one_tumour_in_several_series_are_one_class(tmp_path: Path, classes: tuple[str, ...]) -> None:
    names = ("GTV_Mass_CT", "GTV_Mass_PET", "oesophagus")
    images = [{"id": number, "file_name": f"{number:02d}.png", "width": 48, "height": 40} for number in range(30)]
    for number in range(30):
        write_picture(tmp_path / "images" / f"{number:02d}.png", number)
    box = [4, 4, 12, 12]
    annotations = [
        {"id": number, "image_id": number, "category_id": 1 + number % 3, "bbox": box, "area": 144}
        for number in range(30)
    ]
    categories = [{"id": 1 + place, "name": name} for place, name in enumerate(names)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    outcome = run_job(tmp_path, "decide", request="Find the tumour on CT with boxes", classes=classes)["outcome"]
    assert outcome["proposals"][0]["manifest"]["boxes"]["classes"] == {"tumour": ["GTV_Mass_CT", "GTV_Mass_PET"]}


def test_faults_of_a_manifest_are_named_by_their_keys() -> None:
    values = {
        "task": "diagnosis",
        "images": {"files": "a/*.png", "case": 3},
        "labels": {"value": "{folder0}", "clases": {}},
    }
    with pytest.raises(DataError) as error:
        parse_manifest(values)
    assert "images.case should be a valid string, and is 3" in str(error.value)
    assert "labels.clases is no key of a manifest" in str(error.value)


@pytest.mark.parametrize("dimension", ["2d", "3d"])
def test_the_card_says_whether_slices_are_volumes(tmp_path: Path, dimension: str) -> None:
    for name in ("normal", "pneumonia"):
        for patient in range(12):
            for number in range(6):
                write_picture(tmp_path / name / f"{name[0]}{patient:02d}" / f"{number:03d}.png", number)
    outcome = run_job(tmp_path, "decide", request="Tell pneumonia from normal on chest CT", dimension=dimension)[
        "outcome"
    ]
    images = outcome["proposals"][0]["manifest"]["images"]
    assert (images.get("several") == "slices") == (dimension == "3d")
