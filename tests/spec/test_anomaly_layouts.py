"""Readings of folders of anomaly sets: states, and masks of what is abnormal."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_kit import mask, picture

from m3b.data.index import guess_task, read_index
from m3b.data.spec.execute import Executed, execute, write
from m3b.data.spec.given import spec_of
from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.survey import survey
from m3b.errors import DataError
from m3b.tasks import find_requested_task

SIZE = (20, 24)
REQUEST = "Detect anomalies on brain MRI slices"


def bmad(root: Path, *, masks: bool, normal_masks: bool = False) -> None:
    """`valid|test / good|Ungood / img|anomaly_mask`; without masks there is no level of them."""
    for half in ("valid", "test"):
        for at in range(8):
            for state in ("good", "Ungood"):
                name, inner = f"{'v' if half == 'valid' else 't'}{at:03d}.png", "img/" if masks else ""
                picture(root / half / state / f"{inner}{name}", 90, SIZE)
                if masks and (state == "Ungood" or normal_masks):
                    box = (2, 3, 7, 8 + at) if state == "Ungood" else (0, 0, 0, 0)
                    mask(root / half / state / "anomaly_mask" / name, box, size=SIZE)


def mvtec(root: Path) -> None:
    """`train/good`, `test/<defect>`, `ground_truth/<defect>/<name>_mask.png`."""
    for at in range(12):
        picture(root / "train/good" / f"{at:03d}.png", 90, SIZE)
    for state, count in (("good", 5), ("crack", 6), ("hole", 4)):
        for at in range(count):
            picture(root / "test" / state / f"{at:03d}.png", 90, SIZE)
            if state != "good":
                mask(root / "ground_truth" / state / f"{at:03d}_mask.png", (2, 3, 7, 8 + at), size=SIZE)


def best(root: Path, request: str = REQUEST) -> tuple[Executed, Proposal]:
    found = propose(survey(root), Ask("detection", request))
    assert sufficient(found) == ""
    work = root.with_name("work")
    work.mkdir(exist_ok=True)
    return execute(found[0].spec, root, name="set", work=work), found[0]


def test_anomalies_are_a_detection_unless_their_kind_is_asked_for() -> None:
    assert find_requested_task(REQUEST) == find_requested_task("Anomaly detection in chest X-rays") == "detection"
    assert find_requested_task("Classify anomalies of the retina") == ""
    assert find_requested_task("Which anomaly does the retina show?") == ""


@pytest.mark.parametrize("top", ["", "Brain_AD/", "data/Brain_AD/"])
def test_bmad_with_masks_is_read_with_its_own_split(tmp_path: Path, top: str) -> None:
    root = tmp_path / "raw"
    bmad(root / top, masks=True)
    made, _ = best(root)
    assert (len(made.train), len(made.test), made.values) == (16, 16, {"anomaly": 255})
    for record in (*made.train, *made.test):
        image = str(record.image)
        expected = image.replace("/img/", "/anomaly_mask/") if "/Ungood/" in image else None
        assert record.mask == expected
        assert ("/test/" in image) == (record in made.test)
    assert made.accounting.counts() == {"image": 32, "mask": 16}
    write(made, tmp_path / "work")
    index = read_index(tmp_path / "work", "detection")
    assert index.masked
    assert not index.stated


def test_empty_masks_of_normal_images_are_left_out_and_said(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    bmad(root, masks=True, normal_masks=True)
    made, _ = best(root)
    assert sum(record.mask is not None for record in made.train) == 8
    assert made.accounting.reasons()["the mask of a normal image"][0] == 16
    assert made.accounting.whole


def test_an_abnormal_image_without_its_mask_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    bmad(root, masks=True)
    (root / "valid/Ungood/anomaly_mask/v003.png").unlink()
    made, _ = best(root)
    assert (len(made.train), len(made.test)) == (15, 16)
    reason, example = "an abnormal image of which no mask says where", "valid/Ungood/img/v003.png"
    assert made.accounting.reasons()[reason] == (1, (example,))


def test_bmad_without_masks_tells_states(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    bmad(root, masks=False)
    made, proposal = best(root)
    assert all(r.extra["abnormal"] == ("/Ungood/" in str(r.image)) for r in (*made.train, *made.test))
    assert {str(record.image).split("/")[2] for record in made.train} == {"valid"}
    write(made, tmp_path / "work")
    assert guess_task(tmp_path / "work") == "detection"
    index = read_index(tmp_path / "work", "detection")
    assert index.stated
    assert index.classes == ("anomaly",)
    assert spec_of(proposal.spec.model_dump(mode="json")) == proposal.spec


@pytest.mark.parametrize("top", ["", "bottle/"])
def test_mvtec_has_normal_images_alone_to_learn_from(tmp_path: Path, top: str) -> None:
    root = tmp_path / "raw"
    mvtec(root / top)
    made, _ = best(root)
    assert (len(made.train), len(made.test)) == (12, 15)
    assert all(record.mask is None for record in made.train)
    marked = {str(record.image): record.mask for record in made.test if record.mask}
    assert len(marked) == 10
    assert marked[f"data/set/{top}test/crack/002.png"] == f"data/set/{top}ground_truth/crack/002_mask.png"


def test_a_column_that_says_normal_tells_states(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    rows = ["image,finding"]
    for at in range(24):
        picture(root / "images" / f"x{at:03d}.png", 90, SIZE)
        rows.append(f"x{at:03d}.png,{('normal', 'effusion', 'nodule')[at % 3]}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    made, _ = best(root, "Find anomalies on chest X-rays")
    both = (*made.train, *made.test)
    assert sum(bool(record.extra["abnormal"]) for record in both) == 16
    assert len(both) == 24


def test_where_nobody_speaks_of_anomalies_states_are_not_taken_for_places(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    bmad(root, masks=False)
    found = propose(survey(root), Ask("detection", "Locate the tumour on brain MRI"))
    assert sufficient(found) != ""


def test_a_state_that_no_case_has_is_named(tmp_path: Path) -> None:
    from m3b.data.spec.checking import check

    root = tmp_path / "raw"
    bmad(root, masks=False)
    spec = {
        "task": "detection",
        "images": {"files": {"pattern": "{half}/{state}/{name}.png"}},
        "states": {"source": "{state}", "normal": ["intact"]},
    }
    with pytest.raises(DataError, match=r"states.normal: none of the 32 cases is normal; texts found: Ungood, good"):
        check(spec_of(spec), root)
    check(spec_of({**spec, "states": {"source": "{state}", "normal": ["good"]}}), root)


def test_a_script_that_turns_states_round_is_found(tmp_path: Path) -> None:
    from dataclasses import replace

    from m3b.data.spec.against import compare

    root = tmp_path / "raw"
    bmad(root, masks=False)
    made, proposal = best(root)
    records = [*made.train, *made.test]
    assert compare([proposal], root, "set", records).fits
    turned = [replace(one, extra={"abnormal": not one.extra["abnormal"]}) for one in records]
    found = compare([proposal], root, "set", turned)
    assert (found.what, found.compared, found.agreeing, found.fits) == ("states", 32, 0, False)
