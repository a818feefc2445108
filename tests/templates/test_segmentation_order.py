"""Structures in a row, which are learnt as one with a number: when they are, and how they are told apart again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from segmentation_kit import assemble_segmentation, nifti
from template_kit import call, load

from m3b.tasks import get_family

NAMES = [f"V{number}" for number in range(1, 9)]


def _facts(rng: np.random.Generator, cases: int = 12, anywhere: float = 200.0, extra: bool = False) -> dict[str, Any]:
    """Eight structures every 30 mm downwards, of which 120 mm are seen; `extra` puts a ninth between V5 and V6 of some."""
    centres = []
    for case in range(cases):
        top = 150 + rng.uniform(0, anywhere)
        order = [0, 1, 2, 3, 4, 8, 5, 6, 7] if extra and case % 4 == 0 else list(range(8))
        case_centres = {place: np.array([50.0, 40 + 3 * k, top - 30 * k]) for k, place in enumerate(order)}
        centres.append({place: at for place, at in case_centres.items() if 0 < at[2] < 120 or anywhere < 10})
    names = [*NAMES, "extra"] if extra else NAMES
    return {
        "classes": names,
        "labels": {name: place + 1 for place, name in enumerate(names)},
        "overlap": False,
        "dims": 3,
        "spacings": np.ones((cases, 3)),
        "sizes": {name: [900 + 50 * place] * cases for place, name in enumerate(names)},
        "centres": centres,
    }


def test_a_row_that_begins_anywhere_is_found() -> None:
    (row,) = load("segmentation.structure_rows").find_chains(_facts(np.random.default_rng(0), 30))
    assert row["classes"] == NAMES[::-1]  # by place along the axis, upwards
    assert row["numbers"] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert (row["axis"], row["pitch"]) == (2, pytest.approx(30))
    assert all(second - first == 1 for first, second, _ in row["follows"])
    (line,) = load("segmentation.structure_rows").describe_rows([row])
    assert "8 classes (V8 to V1)" in line


def test_a_rare_structure_between_two_has_a_number_between_theirs() -> None:
    (row,) = load("segmentation.structure_rows").find_chains(_facts(np.random.default_rng(0), 40, extra=True))
    numbers = dict(zip(row["classes"], row["numbers"], strict=True))
    assert (numbers["V5"], numbers["extra"], numbers["V6"]) == (5, 5.5, 6)


def test_structures_that_lie_where_they_always_lie_keep_a_class_each() -> None:
    assert load("segmentation.structure_rows").find_chains(_facts(np.random.default_rng(0), anywhere=5.0)) == []


def test_structures_in_no_order_keep_a_class_each() -> None:
    rng = np.random.default_rng(0)
    facts = _facts(rng)
    facts["centres"] = [{place: rng.uniform(0, 100, 3) for place in range(8)} for _ in range(12)]
    assert load("segmentation.structure_rows").find_chains(facts) == []


def test_few_or_overlapping_classes_are_no_row() -> None:
    facts = _facts(np.random.default_rng(0), 30)
    assert load("segmentation.structure_rows").find_chains({**facts, "overlap": True}) == []
    assert load("segmentation.structure_rows").find_chains({**facts, "centres": facts["centres"][:2]}) == []


def _row(**changes: Any) -> dict[str, Any]:
    follows = [[place, place + 1, 10] for place in range(7)]
    return {
        "classes": NAMES, "numbers": list(range(1, 9)), "axis": 2, "pitch": 8.0, "closest": 0.9, "follows": follows,
        "varies": 2.0, **changes,
    }  # fmt: skip


def _plan(**changes: Any) -> dict[str, Any]:
    return {
        "classes": ["cord", *NAMES], "chains": [_row()], "spacing": [1.0, 1.0, 1.0], "overlap": False, "patch": [6, 6, 40],
        "engine": "trainer", "side": None, "augment": {"flip": []}, "mirror": "auto", "loss": {}, **changes,
    }  # fmt: skip


def _mask(first: int = 3) -> np.ndarray:
    """Five structures of the row, seven voxels each with a gap of one, and a cord beside them."""
    mask = np.zeros((6, 6, 40), np.uint8)
    for k in range(5):
        mask[1:4, 1:5, 8 * k : 8 * k + 7] = 1 + first + k
    mask[5, :, :] = 1
    return mask


def _ideal_output(mask: np.ndarray, plan: dict[str, Any]) -> torch.Tensor:
    """What a network says that has learnt it all."""
    ordered = load("segmentation.ordered_structures")
    channel, number, axis, pitch = ordered.class_tables(plan)
    truth = torch.from_numpy(mask).long()
    logits = torch.zeros(ordered.count_channels(plan), *mask.shape)
    for k in range(len(logits) - 2):
        logits[k] = torch.where(channel[truth] == k, 5.0, -5.0)
    logits[-2] = number[truth]
    logits[-1] = ordered.middle_distances(truth[None], axis, pitch, [1.0] * 3)[0]
    return logits


def test_the_way_to_the_middle_is_counted_in_pitches() -> None:
    ordered = load("segmentation.ordered_structures")
    assert ordered.channel_names(_plan()) == ["background", "cord", "V1 to V8", "number", "middle"]
    _, _, axis, pitch = ordered.class_tables(_plan())
    distances = ordered.middle_distances(torch.from_numpy(_mask()).long()[None], axis, pitch, [1.0] * 3)[0]
    assert distances[2, 2, :8].tolist() == [3 / 8, 2 / 8, 1 / 8, 0, -1 / 8, -2 / 8, -3 / 8, 0]
    assert not distances[5].any()  # the cord is in no row
    coarse = ordered.middle_distances(torch.from_numpy(_mask()[:, :, ::2]).long()[None], axis, pitch, [1.0, 1.0, 2.0])[
        0
    ]
    assert coarse[2, 2, 0] == pytest.approx(3 / 8)


def test_a_perfect_answer_is_unfolded_into_its_mask() -> None:
    plan, mask = _plan(), _mask()
    logits = load("segmentation.ordered_structures").decide_rows(_ideal_output(mask, plan), plan)
    assert logits.shape == (10, *mask.shape)
    assert (load("segmentation.scoring").decide_mask(logits, False) == mask).all()
    empty = load("segmentation.ordered_structures").decide_rows(_ideal_output(np.zeros_like(mask), plan), plan)
    assert not load("segmentation.scoring").decide_mask(empty, False).any()


def test_the_whole_sequence_decides_what_single_numbers_leave_open() -> None:
    """By least squares the one far off would shift the labels of all."""
    plan, mask, rng = _plan(), _mask(), np.random.default_rng(0)
    output = _ideal_output(mask, plan)
    output[-2] += 0.4 / 3.5  # all of them nearly half a number off
    output[-2][torch.from_numpy(mask == 6)] += 1.5 / 3.5  # one far off
    output[-1] += torch.from_numpy(rng.normal(0, 0.05, mask.shape)).float()
    assert (
        load("segmentation.scoring").decide_mask(
            load("segmentation.ordered_structures").decide_rows(output, plan), False
        )
        == mask
    ).mean() > 0.99


def test_training_masks_say_which_labels_follow_each_other() -> None:
    sequence = load("segmentation.ordered_structures").most_likely_sequence
    numbers = [1, 2, 3, 3.5, 4, 5, 6, 7]
    usual = [[0, 1, 9], [1, 2, 9], [2, 4, 9], [2, 3, 1], [3, 4, 1], [4, 5, 9], [5, 6, 9], [6, 7, 9]]
    row = _row(numbers=numbers, follows=usual)
    assert sequence([2.1, 3.0, 3.9, 5.1], row) == [1, 2, 4, 5]  # past the rare one
    assert sequence([2.0, 3.0, 3.6, 4.0, 5.0, 6.0], row) == [1, 2, 3, 4, 5, 6]
    assert sequence([], row) == []
    assert sequence([9.0], row) == [7]


def _parts(project: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any]) -> Any:
    code = (
        "import json, sys, torch; sys.path.insert(0, '.'); from m3b.training.segmentation.loss import build_loss; "
        "plan, logits, mask = torch.load('in.pt', weights_only=False); "
        "print(json.dumps([float(build_loss(plan)([one], mask)) for one in logits]))"
    )
    return json.loads(call(project, "-c", code).stdout)


def test_the_loss_is_least_where_number_and_middle_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, plan, mask = assemble_segmentation(tmp_path / "work"), _plan(), _mask()
    right = _ideal_output(mask, plan)[None]
    number, middle = right.clone(), right.clone()
    number[:, -2] += 0.4
    middle[:, -1] -= 0.3
    unmarked = right.clone()
    unmarked[:, -2:, torch.from_numpy(mask) < 2] += 9.0  # where no structure is, nothing is asked
    torch.save((plan, [right, number, middle, unmarked], torch.from_numpy(mask)[None]), project / "in.pt")
    best, *worse, free = _parts(project, monkeypatch, plan)
    assert best < 0.01
    assert free == pytest.approx(best)
    assert min(worse) > best + 0.3


def test_settings_that_contradict_a_row_are_named() -> None:
    check = load("segmentation.structure_rows").check_rows
    check(_plan())
    with pytest.raises(SystemExit, match="mirrors along 'd'"):
        check(_plan(augment={"flip": ["w", "d"]}))
    with pytest.raises(SystemExit, match="engine=trainer"):
        check(_plan(engine="nnunet"))
    with pytest.raises(SystemExit, match="must occur in `classes`"):
        check(_plan(classes=NAMES[:4]))


def test_the_check_of_a_project_counts_the_outputs_of_rows() -> None:
    assert get_family("segmentation").valid_output_counts(9, {"chains": [_row()]}) == (5,)
    assert get_family("segmentation").valid_output_counts(9, {"chains": []}) == (9, 10)


def _spine(project: Path, cases: int = 16) -> None:
    """Balls in a row along the last axis that grow downwards, of which an image shows some."""
    rng, data = np.random.default_rng(0), project / "data"
    data.mkdir()
    records, grid = [], np.indices((14, 14, 40))
    for case in range(cases):
        mask, first = np.zeros((14, 14, 40), np.uint8), case % 4
        image = rng.normal(0, 0.05, mask.shape)
        for k in range(5):
            radius = 2.5 + 0.3 * (first + k)
            in_ball = sum((axis - at) ** 2 for axis, at in zip(grid, (7, 7, 36 - 8 * k), strict=True)) < radius**2
            mask[in_ball], image[in_ball] = 1 + first + k, 1.0
        paths = (nifti(data / f"{case}.nii.gz", image.astype(np.float32)), nifti(data / f"{case}_m.nii.gz", mask))
        records.append({"image_path": f"data/{paths[0]}", "mask_path": f"data/{paths[1]}", "patient": f"p{case}"})
    (project / "Datapath/train.json").write_text(json.dumps(records[:-2]))
    (project / "Datapath/test.json").write_text(json.dumps(records[-2:]))
    (project / "Datapath/label_dict.json").write_text(json.dumps({name: k for k, name in enumerate(NAMES, 1)}))


@pytest.mark.slow
def test_a_row_from_data_to_masks_in_a_clean_process(tmp_path: Path) -> None:
    project = assemble_segmentation(tmp_path / "work")
    _spine(project)
    settings = ["device=cpu", "precision=fp32", "threads=1", "max_steps=250", "patch=[16,16,40]", "lr=0.01", "ema=0.9"]
    printed = call(
        project, "plan.py", "--minutes", "5", "--set", *settings, "network.filters=[8,16,16,16]", "batch=1"
    ).stdout
    assert "8 classes (V8 to V1) lie in a row along d" in printed
    call(project, "train.py")
    call(project, "export.py")
    metrics = json.loads((project / "Logout/metrics.json").read_text())["validation"]
    assert metrics["dice"] > metrics["mean_shape_dice"]
    record = json.loads((project / "Datapath/test.json").read_text())[0]
    (answer,) = json.loads(call(project, "Deliver/predict.py", record["image_path"]).stdout)
    predicted, truth = (
        load("m3b.dataset.formats").read_labels(str(project / file)).array
        for file in (answer["mask"], record["mask_path"])
    )
    assert predicted.shape == truth.shape
    labels = np.unique(predicted[predicted > 0])
    assert len(labels) > 2
    assert set(labels) <= set(range(1, 9))
    code = "import json, parts; print(json.dumps(parts.facts()))"
    facts = json.loads(call(project, "-c", f"import sys; sys.path.insert(0, 'Deliver'); {code}").stdout)
    assert facts["channels"] == ["background", "V8 to V1", "number", "middle"]
