"""Masks as run lengths in tables: what is drawn, how the counting is found out, and what is asked instead."""

from __future__ import annotations

import random
from pathlib import Path

import layout_kit as kit
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from layout_kit_runs import disc, instance_runs, organ_runs, relative_runs, written
from spec_kit import picture, read

from m3b.data.run_lengths import RunRule, decoded, is_relative, runs_of
from m3b.data.spec.execute import Executed, execute
from m3b.data.spec.patterns import PatternError
from m3b.data.spec.proposals import Ask, propose, sufficient
from m3b.data.survey import survey
from m3b.data.survey.annotations.run_lengths import _edge as step_across
from m3b.data.survey.annotations.run_lengths import _followed as which_is_followed
from m3b.dataset.reading import read_mask, read_masks
from m3b.errors import DataError


@given(arrays.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 9))), st.booleans(), st.sampled_from((0, 1)))
def test_what_was_written_is_read(mask: np.ndarray, rows: bool, first: int) -> None:
    for relative in (False, True):
        text = written(mask, rows=rows, first=first, relative=relative)
        rule = RunRule("rows" if rows else "columns", 0 if relative else first, relative)
        assert np.array_equal(decoded(runs_of(text) or [], mask.shape, rule), mask)


@given(st.text(max_size=30) | st.from_regex(r"(\d{1,3} ){0,6}", fullmatch=True))
def test_any_cell_is_runs_or_none(cell: str) -> None:
    runs = runs_of(cell)
    assert runs is None or len(runs) % 2 == 0


@pytest.mark.parametrize(
    ("cell", "runs"),
    [
        ("-1", []),
        ("", []),
        ("NaN", []),
        ("3 2 9 4", [3, 2, 9, 4]),
        ("[3, 2]", [3, 2]),
        ("3 2 9", None),
        ("1.5 2", None),
    ],
)
def test_cells(cell: str, runs: list[int] | None) -> None:
    assert runs_of(cell) == runs


def test_starts_that_fall_back_count_from_run_to_run() -> None:
    assert is_relative([30, 4, 6, 4])
    assert not is_relative([30, 4, 60, 4])


def made(root: Path, want: kit.Want, work: Path) -> Executed:
    found = propose(survey(root), Ask(want.task, want.request))
    assert sufficient(found) == ""
    work.mkdir(exist_ok=True)
    return execute(found[0].spec, root, name="set", work=work)


def masks_of(done: Executed, work: Path) -> dict[str, np.ndarray]:
    return {
        Path(str(one.image)).stem: read_mask(str(one.mask), str(work)).array.squeeze() != 0
        for one in (*done.train, *done.test)
    }


def test_runs_from_run_to_run_and_images_without_any(tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    want = relative_runs(root, kit.Names(), random.Random(0))
    found = masks_of(made(root, want, work), work)
    for at in range(24):
        mask = disc((40, 40), at) if at % 4 != 3 else np.zeros((40, 40), bool)
        assert np.array_equal(found[f"1.2.276.{1000 + 7 * at}.{at}"], mask)


def test_the_rows_of_an_image_are_united(tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    names = kit.Names()
    found = masks_of(made(root, instance_runs(root, names, random.Random(0)), work), work)
    for at in range(24):
        wanted = np.any([disc((32, 48), 100 * at + more) for more in range(1 + at % 3)], axis=0)
        assert np.array_equal(found[f"slide{names.gap}{kit.number(names, at)}"], wanted)


def test_classes_lie_along_the_rows(tmp_path: Path) -> None:
    root, work = tmp_path / "raw", tmp_path / "work"
    names = kit.Names()
    done = made(root, organ_runs(root, names, random.Random(0)), work)
    one = next(
        one
        for one in (*done.train, *done.test)
        if Path(str(one.image)).stem == f"case{names.gap}{kit.number(names, 7)}"
    )
    assert isinstance(one.mask, dict)
    both = read_masks(one.mask, done.values, str(work))
    order = list(done.values)
    for more, name in enumerate(("stomach", "small_bowel")):
        assert np.array_equal(both[order.index(name)], disc((32, 48), 700 + more))


def test_noise_follows_no_outline() -> None:
    """By chance, outlines of either order lie where noise steps more: over 300 sets of images, none is decided."""
    for seed in range(300):
        draw = np.random.default_rng(seed)
        both = [[step_across(disc((40, 40), at), draw.integers(0, 60, (40, 40))) for at in range(12)] for _ in range(2)]
        assert which_is_followed(*both) == ""


def test_a_square_image_that_follows_an_outline_tells() -> None:
    draw = np.random.default_rng(0)
    masks = [disc((40, 40), at) for at in range(12)]
    images = [draw.normal(90, 12, one.shape) + 60 * one for one in masks]
    right = [step_across(mask, image) for mask, image in zip(masks, images, strict=True)]
    turned = [step_across(mask.T, image) for mask, image in zip(masks, images, strict=True)]
    assert which_is_followed(right, turned) == "columns"
    assert which_is_followed(turned, right) == "rows"


def test_square_images_that_do_not_tell_are_asked_about(tmp_path: Path) -> None:
    root, rows = tmp_path / "raw", ["image,rle"]
    for at in range(20):
        picture(root / f"images/p{at:02d}.png", 90, (40, 40))
        rows.append(f"p{at:02d}.png,{written(disc((40, 40), at))}")
    (root / "masks.csv").write_text("\n".join(rows))
    found = propose(survey(root), Ask("segmentation", "Segment lesions on CT slices"))
    assert "down the columns" in sufficient(found)


def test_masks_of_larger_images_are_told(tmp_path: Path) -> None:
    root, rows = tmp_path / "raw", ["image,rle"]
    for at in range(20):
        picture(root / f"images/p{at:02d}.png", 90, (16, 20))
        rows.append(f"p{at:02d}.png,{written(disc((64, 80), at))}")
    (root / "masks.csv").write_text("\n".join(rows))
    found = propose(survey(root), Ask("segmentation", "Segment lesions on CT slices"))
    assert "what size" in sufficient(found)


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"image": "image"}, PatternError, "runs"),
        ({"image": "image", "runs": "mask"}, PatternError, "it has image, rle"),
        ({"image": "image", "runs": "image"}, DataError, "None of the 4"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, columns: dict[str, str], error: type[DataError], said: str) -> None:
    root = tmp_path / "raw"
    for at in range(4):
        picture(root / f"images/p{at}.png", 90, (16, 20))
    (root / "masks.csv").write_text("image,rle\n" + "".join(f"p{at}.png,5 3\n" for at in range(4)))
    masks = {"files": {"pattern": "masks.csv"}, "format": "csv_runs", "classes": {"lesion": 1}, "columns": columns,
             "image": "{name}", "names": {"lesion": ["(none)"]}}  # fmt: skip
    with pytest.raises(error, match=said):
        read(root, tmp_path, task="segmentation", images={"files": {"pattern": "images/{id}.png"}}, masks=masks)
