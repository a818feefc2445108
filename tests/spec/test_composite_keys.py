"""Tables whose rows are found by two columns: patient and side, patient and visit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spec_kit import picture

from m3b.data.spec.composite_keys import with_composite_keys
from m3b.data.spec.execute import execute
from m3b.data.spec.model import FromTable
from m3b.data.spec.proposals import Ask, Proposal, propose, sufficient
from m3b.data.spec.readers import Readers
from m3b.data.survey import survey

REQUEST = "Tell normal from sick eyes on fundus photographs"


def folder(root: Path, second: str, texts: tuple[str, str], name: str = "P{n:03d}_{side}") -> Path:
    """Twenty people with a picture of both sides each, and one grade a side, of which they disagree in half."""
    rows = [f"person,{second},grade,age"]
    for n in range(20):
        for at, text in enumerate(texts):
            picture(root / "eyes" / f"{name.format(n=n, side=text)}.png")
            rows.append(f"P{n:03d},{text},{['normal', 'sick'][(n + at * (n % 4 // 2)) % 2]},{40 + n}")
    (root / "eyes.csv").write_text("\n".join(rows))
    return root


def readings(root: Path) -> tuple[Proposal, Proposal]:
    """The best reading by labels of the grade column, before and after."""
    found = propose(survey(root), Ask("diagnosis", REQUEST))
    first = next(one for one in found if one.spec.labels and "'grade'" in one.title)
    return first, with_composite_keys([first], root, Readers(root))[0]


def truth(root: Path, second: int) -> dict[str, str]:
    rows = [line.split(",") for line in (root / "eyes.csv").read_text().splitlines()[1:]]
    return {f"{row[0]}_{row[second]}": row[2] for row in rows}


def test_patient_and_side_tell_the_rows_apart(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", "eye", ("left", "right"))
    _, one = readings(root)
    assert any(told.startswith("rows of eyes.csv told apart by 'person' and 'eye'") for told in one.evidence)
    done = execute(one.spec, root, name="eyes", work=tmp_path / "work")
    records = (*done.train, *done.test)
    assert {Path(str(one.image)).stem: one.labels[0] for one in records} == truth(root, 1)
    sides = {Path(str(one.image)).stem.split("_")[0]: part for part in ("train", "test") for one in getattr(done, part)}
    for part in ("train", "test"):
        assert all(sides[Path(str(one.image)).stem.split("_")[0]] == part for one in getattr(done, part)), (
            "whole people"
        )
    assert {one.attributes["age"] for one in records} == {str(40 + n) for n in range(20)}


def test_visits_are_numbers_that_mean_the_same(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", "visit", ("1", "2"))
    _, one = readings(root)
    done = execute(one.spec, root, name="eyes", work=tmp_path / "work")
    assert {Path(str(one.image)).stem: one.labels[0] for one in (*done.train, *done.test)} == truth(root, 1)


def test_two_readers_are_no_two_images(tmp_path: Path) -> None:
    before, after = readings(folder(tmp_path / "raw", "reader", ("1", "2")))
    assert after == before


def test_a_table_that_agrees_is_left_as_it_is(tmp_path: Path) -> None:
    root = folder(tmp_path / "raw", "eye", ("left", "right"))
    text = (root / "eyes.csv").read_text().replace("sick", "normal").splitlines()
    agreed = [
        line.replace("normal", "sick") if int(line[1:4] if line[1:4].isdigit() else 0) % 2 else line for line in text
    ]
    (root / "eyes.csv").write_text("\n".join(agreed))
    before, after = readings(root)
    assert after == before


def test_the_reading_may_then_be_taken(tmp_path: Path) -> None:
    from m3b.data.spec.contested import weighed

    root = folder(tmp_path / "raw", "eye", ("left", "right"))
    found: list[Any] = propose(survey(root), Ask("diagnosis", REQUEST))
    assert sufficient(weighed(found, root, Readers(root))) != "", "half the images have two grades"
    better = weighed(with_composite_keys(found, root, Readers(root)), root, Readers(root))
    assert sufficient(better) == ""
    source = better[0].spec.labels.sources[0]
    assert isinstance(source, FromTable)
    assert source.column == "grade"
