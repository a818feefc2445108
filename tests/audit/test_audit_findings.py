"""Every finding of the audit, found where it is and not found where it is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from m3b.data.index import Index, Record
from m3b.data.synthetic import radiograph
from m3b.dataset.audit import Audit, audit_index

RANDOM = np.random.default_rng(11)
CHESTS = [radiograph(RANDOM, number % 2 == 1) for number in range(40)]
CLASSES = ("clear", "opacity")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for at, array in enumerate(CHESTS):
        Image.fromarray(array).save(tmp_path / f"{at}.png")
    return tmp_path


def record(at: int, **changes: object) -> Record:
    return replace(Record(f"{at}.png", (CLASSES[at % 2],), f"p{at}"), **changes)  # type: ignore[arg-type]


def index(*, train: Sequence[Record] | None = None, test: Sequence[Record] | None = None) -> Index:
    return Index(
        tuple(train if train is not None else map(record, range(20))),
        tuple(test if test is not None else map(record, range(20, 40))),
        CLASSES,
    )


def weights(audit: Audit) -> dict[str, str]:
    return {finding.code: finding.severity for finding in audit.findings}


def test_clean_data_has_no_finding(work: Path) -> None:
    audit = audit_index(index(), work)
    assert audit.findings == ()
    assert (audit.cases, audit.opened) == (40, 40)
    assert audit.counts == {"train": {"clear": 10, "opacity": 10}, "test": {"clear": 10, "opacity": 10}}
    assert audit.patients == {"train": 20, "test": 20}
    assert audit.shapes == {"1x128x128": 40}
    for part in ("train: 20 labels (clear: 10, opacity: 10), 20 patients", "Opened 40 of 40"):
        assert part in audit.summary()
    assert json.loads(json.dumps(audit.to_json()))["cases"] == 40


def test_a_label_outside_the_vocabulary(work: Path) -> None:
    audit = audit_index(index(train=[*map(record, range(19)), record(19, labels=("Opacity",))]), work)
    assert weights(audit) == {"unknown_label": "fix"}, "the unknown label is no class of its own"
    assert "'Opacity'" in audit.findings[0].agent_message
    assert audit.findings[0].cases == ("19.png",)


def test_a_case_without_a_label_among_single_labels(work: Path) -> None:
    audit = audit_index(index(train=[*map(record, range(19)), record(19, labels=())]), work)
    assert weights(audit) == {"no_label": "fix"}
    assert audit.findings[0].cases == ("19.png",)


def test_no_label_is_an_answer_where_several_may_apply(work: Path) -> None:
    train = [*map(record, range(18)), record(18, labels=()), record(19, labels=CLASSES)]
    assert weights(audit_index(index(train=train), work)) == {}


def test_one_class_is_beyond_repair(work: Path) -> None:
    only = index(train=[record(at) for at in range(0, 20, 2)], test=[record(at) for at in range(20, 40, 2)])
    assert weights(audit_index(only, work)) == {"one_class": "reject"}


def test_too_few_cases(work: Path) -> None:
    small_index = index(train=[record(at) for at in range(4)], test=[record(at) for at in range(4, 6)])
    severities = weights(audit_index(small_index, work))
    assert severities["too_few_cases"] == "reject"


def test_a_class_that_one_side_lacks_or_hardly_has(work: Path) -> None:
    clear = [record(at) for at in range(20, 40, 2)]
    audit = audit_index(index(test=clear), work)
    assert weights(audit) == {"class_absent_test": "fix", "small_test": "warn"}
    assert "no case of: opacity. Split again" in audit.findings[0].agent_message
    single_patient_index = index(
        train=[record(at, patient="p1" if at % 2 else f"p{at}") for at in range(20)], test=clear
    )
    assert (
        "All cases of opacity are of one patient, or of one group"
        in audit_index(single_patient_index, work).findings[0].agent_message
    )
    audit = audit_index(index(train=[*(record(at) for at in range(0, 20, 2)), record(1)]), work)
    assert weights(audit) == {"class_rare_train": "warn"}
    scarce_index = index(
        train=[*(record(at) for at in range(0, 20, 2)), record(1)],
        test=[*(record(at) for at in range(20, 40, 2)), record(21)],
    )
    assert weights(audit_index(scarce_index, work)) == {
        "class_scarce_train": "warn",
        "class_scarce_test": "warn",
        "small_test": "warn",
    }


def test_a_class_with_several_cases_of_one_patient_on_a_side(work: Path) -> None:
    train = [record(case, patient="p1" if case % 2 else f"p{case}") for case in range(20)]
    audit = audit_index(index(train=train), work)
    assert weights(audit) == {"class_rare_train": "warn"}
    assert "opacity: 10" in audit.findings[0].agent_message


def test_a_patient_on_both_sides(work: Path) -> None:
    audit = audit_index(index(test=[record(20, patient="p3"), *map(record, range(21, 40))]), work)
    assert weights(audit) == {"patient_overlap": "fix"}
    assert "p3" in audit.findings[0].agent_message


def test_one_patient_for_everything(work: Path) -> None:
    cases = [record(at % 40, patient="unknown") for at in range(60)]
    assert weights(audit_index(index(train=cases[:30], test=cases[30:]), work))["one_patient"] == "fix"


def test_a_case_listed_twice(work: Path) -> None:
    assert weights(audit_index(index(train=[*map(record, range(20)), record(0)]), work)) == {"repeated": "fix"}
    torn = [*map(record, range(20)), record(0, labels=("opacity",))]
    assert weights(audit_index(index(train=torn), work)) == {"contradiction": "fix"}
    both = index(test=[*map(record, range(20, 40)), record(0)])
    assert {"repeated", "patient_overlap"} <= set(weights(audit_index(both, work)))


def test_files_that_are_not_there(work: Path) -> None:
    (work / "5.png").unlink()
    audit = audit_index(index(), work)
    assert weights(audit) == {"missing_file": "fix"}
    assert audit.findings[0].cases == ("5.png",)
    assert audit.opened == 39


def test_a_slice_that_is_not_there(work: Path) -> None:
    audit = audit_index(index(train=[*map(record, range(19)), record(19, image=("19.png", "absent.png"))]), work)
    assert audit.findings[0].cases == ("absent.png",)


def test_images_that_do_not_open(work: Path) -> None:
    (work / "7.png").write_bytes((work / "7.png").read_bytes()[:900])
    (work / "8.png").write_text("not an image", encoding="utf-8")
    audit = audit_index(index(), work)
    assert weights(audit) == {"unreadable": "fix"}
    assert set(audit.findings[0].cases) == {"7.png", "8.png"}


def test_nothing_opens(work: Path) -> None:
    for file in work.glob("*.png"):
        file.write_bytes(b"")
    audit = audit_index(index(), work)
    assert weights(audit) == {"nothing_opens": "reject"}
    assert audit.opened == 0


def test_the_same_pixels_under_two_labels(work: Path) -> None:
    Image.fromarray(CHESTS[0]).save(work / "1.bmp")
    audit = audit_index(index(train=[record(0), record(1, image="1.bmp"), *map(record, range(2, 20))]), work)
    assert weights(audit) == {"same_image_two_classes": "fix"}
    assert set(audit.findings[0].cases) == {"0.png", "1.bmp"}


def test_exact_copies_across_and_within(work: Path) -> None:
    Image.fromarray(CHESTS[0]).save(work / "20.png")
    audit = audit_index(index(), work)
    assert weights(audit) == {"duplicate_across": "fix"}
    assert set(audit.findings[0].cases) == {"0.png", "20.png"}
    Image.fromarray(CHESTS[20]).save(work / "20.png")
    Image.fromarray(CHESTS[0]).save(work / "2.png")
    assert weights(audit_index(index(), work)) == {"duplicate_within": "warn"}


def test_nearly_the_same_image_on_both_sides(work: Path) -> None:
    Image.fromarray(CHESTS[0]).save(work / "20.jpg", quality=80)
    changed = index(test=[record(20, image="20.jpg"), *map(record, range(21, 40))])
    audit = audit_index(changed, work)
    assert weights(audit) == {"near_duplicate_across": "warn"}
    assert set(audit.findings[0].cases) == {"0.png", "20.jpg"}


def test_an_altered_copy_that_a_script_made_goes_back(work: Path) -> None:
    """In a run raw data lies below data/, and everything else was made there."""
    (work / "data").mkdir()
    for number in range(40):
        (work / f"{number}.png").rename(work / f"data/{number}.png")
    Image.fromarray(CHESTS[20][:, ::-1]).save(work / "mirrored.png")
    raw = [record(n, image=f"data/{n}.png") for n in range(40)]
    audit = audit_index(index(train=[record(0, image="mirrored.png"), *raw[1:20]], test=raw[20:]), work)
    assert weights(audit) == {"altered_copy_across": "fix"}
    assert set(audit.findings[0].cases) == {"mirrored.png", "data/20.png"}


def test_nearly_the_same_image_on_one_side_is_no_finding(work: Path) -> None:
    Image.fromarray(CHESTS[0]).save(work / "2.jpg", quality=80)
    train = [record(0), record(1), record(2, image="2.jpg"), *map(record, range(3, 20))]
    assert weights(audit_index(index(train=train), work)) == {}


def test_blank_images(work: Path) -> None:
    for at in (0, 20):
        Image.fromarray(np.zeros((64, 64), np.uint8)).save(work / f"{at}.png")
    audit = audit_index(index(), work)
    assert weights(audit) == {"blank": "warn"}, "blank images are not duplicates of each other"


def test_time_runs_out(work: Path) -> None:
    audit = audit_index(index(), work, max_seconds=0)
    assert weights(audit) == {"not_opened": "warn"}
    assert audit.findings[0].agent_message.startswith("40 images")
    assert audit.opened == 0


def test_progress_is_told(work: Path) -> None:
    np.savez(work / "a.npz", images=RANDOM.integers(0, 255, (60, 16, 16), dtype=np.uint8))
    train = [record(at, image=f"a.npz#images[{at}]") for at in range(60)]
    progress_calls: list[tuple[int, int]] = []
    audit_index(index(train=train), work, on_progress=lambda done, total: progress_calls.append((done, total)))
    assert [total for _, total in progress_calls] == [80]
    assert 50 <= progress_calls[0][0] < 80


def test_sixteen_bits_and_archives_and_volumes(work: Path) -> None:
    for at in range(10):
        Image.fromarray(CHESTS[at].astype(np.uint16) * 100).save(work / f"{at}.png")
    np.savez(work / "a.npz", images=np.stack(CHESTS[10:20]))
    archive = [record(at, image=f"a.npz#images[{at - 10}]") for at in range(10, 20)]
    for at in range(20, 30):
        np.save(work / f"{at}.npy", RANDOM.normal(0, 300, (16, 18, 20)).astype(np.int16))
    volumes = [record(at, image=f"{at}.npy") for at in range(20, 30)]
    slices = [record(at, image=(f"{at}.png", f"{at + 1}.png", f"{at + 2}.png")) for at in range(30, 36)]
    audit = audit_index(index(train=[*map(record, range(10)), *archive], test=[*volumes, *slices]), work)
    assert weights(audit) == {"small_test": "warn", "volumes_among_pictures": "fix"}
    assert audit.opened == 36
    assert set(audit.shapes) == {"1x128x128", "1x16x18x20", "1x128x128x3"}


def test_volumes_among_pictures_and_pictures_among_volumes(work: Path) -> None:
    for at in range(20, 40):
        np.save(work / f"{at}.npy", RANDOM.normal(0, 300, (16, 18, 20)).astype(np.int16))
    pictures, volumes = [*map(record, range(20))], [record(at, image=f"{at}.npy") for at in range(20, 40)]
    audit = audit_index(index(train=pictures, test=volumes[:5]), work)
    assert weights(audit)["volumes_among_pictures"] == "fix"
    audit = audit_index(index(train=volumes, test=pictures[:5]), work)
    assert "volumes_among_pictures" not in weights(audit)


def test_an_item_that_an_archive_does_not_hold(work: Path) -> None:
    np.savez(work / "a.npz", images=np.stack(CHESTS[:3]))
    train = [*map(record, range(19)), record(19, image="a.npz#images[3]")]
    audit = audit_index(index(train=train), work)
    assert weights(audit) == {"unreadable": "fix"}
