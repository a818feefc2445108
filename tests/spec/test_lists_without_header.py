"""Lists of `patient file label source` without a header: columns by what they hold, the split by the lists."""

from __future__ import annotations

from pathlib import Path

from spec_kit import picture

from m3b.data.spec.execute import execute
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey


def listed_without_header(root: Path, parts: dict[str, int]) -> Path:
    """Lists of `patient file label source`, divided by spaces; two or three pictures of a patient follow each other."""
    number = 0
    for part, count in parts.items():
        lines = []
        for at in range(count):
            for _ in range(2 + at % 2):
                number += 1
                name = f"img-{number * 7919 % 10007:05d}.png"
                picture(root / "images" / name)
                patient = 4000 + 31 * (at + 500 * (part == "test_x"))
                lines.append(f"{patient} {name} {('negative', 'positive')[at % 2]} {('rsna', 'bimcv')[at % 3 > 0]}")
        (root / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return root


REQUESTED = Ask("diagnosis", "Tell positive from negative chest X-rays")


def test_lists_without_header_give_labels_and_the_split(tmp_path: Path) -> None:
    root = listed_without_header(tmp_path / "d", {"train_x": 24, "test_x": 12})
    found = propose(survey(root), REQUESTED)
    assert sufficient(found) == ""
    made = execute(found[0].spec, root, name="set", work=tmp_path)
    assert (len(made.train), len(made.test)) == (60, 30)
    assert set(made.values) == {"negative", "positive"}


def test_rows_of_one_value_in_a_list_without_header_stay_together(tmp_path: Path) -> None:
    root = listed_without_header(tmp_path / "d", {"cases": 40})
    found = propose(survey(root), REQUESTED)
    assert sufficient(found) == ""
    made = execute(found[0].spec, root, name="set", work=tmp_path)
    assert not made.patients, "nothing says that they are patients"
    of = {line.split()[1]: line.split()[0] for line in (root / "cases.txt").read_text().splitlines()}
    sides = [{of[str(record.image).rpartition("/")[2]] for record in part} for part in (made.train, made.test)]
    assert not sides[0] & sides[1]
