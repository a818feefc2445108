"""Masks that were prompted for: they teach under their class's number, and are never on the test side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from spec_kit import mask, picture

from m3b.data.index import read_index
from m3b.data.records import Record
from m3b.data.spec.execute import Executed, execute, write
from m3b.data.spec.given import spec_of
from m3b.data.spec.prompted import LIST
from m3b.dataset.reading import read_mask
from m3b.errors import DataError

SIZE = (20, 24)
SPEC = {
    "task": "segmentation",
    "images": {"files": {"pattern": "{side}/{patient}_{shot}.png", "exclude": ["masks/*"]}},
    "masks": {"files": {"pattern": "masks/{stem}.png"}, "case": "{stem}", "image": "{stem}", "classes": {"lesion": 3}},
    "patient": "{patient}",
}


def made(tmp_path: Path, *, masked: int = 12, cases: int = 24, target: str = "lesion") -> tuple[Path, Path]:
    """Pictures of which the first have masks, and prompted masks of all the others."""
    root, work = tmp_path / "raw", tmp_path / "work"
    (work / "Datapath/prompted").mkdir(parents=True)
    rows = []
    for at in range(cases):
        side = "train" if at % 4 else "test"
        name = f"p{at // 2:02d}_{at % 2}"
        picture(root / side / f"{name}.png", 90, SIZE)
        if at < masked:
            mask(root / "masks" / f"{name}.png", (2, 3, 8, 9), value=3, size=SIZE)
        else:
            marked = np.zeros(SIZE, np.uint8)
            marked[4:9, 5:12] = 1
            Image.fromarray(marked).save(work / "Datapath/prompted" / f"{at}.png")
            rows.append(
                {"image": f"data/set/{side}/{name}.png", "target": target, "file": f"Datapath/prompted/{at}.png"}
            )
    (work / LIST).write_text(json.dumps(rows))
    return root, work


def executed(root: Path, work: Path, **changes: object) -> Executed:
    return execute(spec_of({**SPEC, **changes}), root, name="set", work=work)


def prompted(records: tuple[Record, ...]) -> list[Record]:
    return [record for record in records if record.extra.get("mask_origin") == "prompted"]


def test_they_teach_with_the_number_of_their_class_and_never_test(tmp_path: Path) -> None:
    root, work = made(tmp_path)
    found = executed(root, work)
    assert len(found.train) + len(found.test) == 24
    assert len(prompted(found.train)) == 12
    assert not prompted(found.test)
    assert len(found.test) >= 2
    one = prompted(found.train)[0]
    values = read_mask(str(work / str(one.mask))).array
    assert (set(np.unique(values)), int((values == 3).sum())) == ({0, 3}, 35)
    write(found, work)
    index = read_index(work, "segmentation")
    assert len(prompted(index.train)) == 12, "the origin stands in the index files"
    assert not {record.patient for record in index.train} & {record.patient for record in index.test}


def test_a_patient_with_a_prompted_mask_is_not_drawn_for_testing(tmp_path: Path) -> None:
    root, work = made(tmp_path, masked=13)  # the seventh patient has one mask of each kind
    found = executed(root, work)
    (mixed,) = {one.patient for one in prompted(found.train)} & {one.patient for one in found.train if not one.extra}
    assert mixed == "p06"


def test_of_an_own_test_part_cases_without_a_mask_of_their_own_are_left_out(tmp_path: Path) -> None:
    root, work = made(tmp_path)
    split = {"source": "{side}", "train": ["train"], "test": ["test"]}
    found = executed(root, work, split=split, patient=None)
    assert all("/test/" in str(record.image) for record in found.test)
    assert not prompted(found.test)
    assert len(prompted(found.train)) == 9
    reason = "a test case without a mask of its own: one that was prompted for is no truth"
    assert found.accounting.reasons()[reason][0] == 3
    assert found.accounting.whole


def test_what_is_no_class_of_the_index_is_left_out(tmp_path: Path) -> None:
    root, work = made(tmp_path, target="vessel")
    assert len(prompted(executed(root, work).train)) == 12, "of one class alone any target is that class"
    masks = {**SPEC["masks"], "classes": {"lesion": 3, "edge": 4}}  # type: ignore[dict-item]
    found = executed(root, work, masks=masks)
    assert not prompted(found.train)
    assert found.accounting.reasons()["no mask; what was prompted for is no class of this index"][0] == 12


def test_a_list_that_m3b_did_not_write_is_refused(tmp_path: Path) -> None:
    root, work = made(tmp_path)
    (work / LIST).write_text('[{"image": "x"}]')
    with pytest.raises(DataError, match=r"masks\.json cannot be read: 'target'"):
        executed(root, work)
    (work / LIST).write_text(
        json.dumps([{"image": "data/set/train/p06_1.png", "target": "lesion", "file": "../secret.png"}])
    )
    assert not prompted(executed(root, work).train)
