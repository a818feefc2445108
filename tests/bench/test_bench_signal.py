"""The planted signals can be learnt by something simple, and not perfectly: better than chance, below perfect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from m3b.bench.datasets import RawCase
from m3b.bench.datasets.class_signal import ClassSizeModel, compute_swap_ceiling, macro_auroc, swap_some_classes
from m3b.bench.datasets.masks import read_mask
from m3b.bench.datasets.report_text import bleu_1
from m3b.bench.datasets.shapes import dice
from m3b.dataset.reading import read_image

Look = Callable[[RawCase, Path], list[float]]


def picture(case: RawCase, folder: Path) -> np.ndarray:
    """The first channel, slices last."""
    several = len(case.images) > 2
    array = read_image(list(case.images) if several else case.images[0], str(folder)).array[0]
    return np.asarray(array, dtype=np.float32)


def pool(image: np.ndarray, cells: int = 12) -> np.ndarray:
    """Means over about `cells` blocks along each axis."""
    for axis, size in enumerate(image.shape):
        edges = np.linspace(0, size, min(cells, size) + 1).astype(int)
        image = np.add.reduceat(image, edges[:-1], axis=axis) / np.diff(edges).reshape(
            [-1 if at == axis else 1 for at in range(image.ndim)])  # fmt: skip
    return image


# --- diagnosis ---------------------------------------------------------------------------------------------------


def ventricles(case: RawCase, folder: Path) -> list[float]:
    image = picture(case, folder)
    return [float(np.log1p(((image > 0) & (image < 0.35)).sum()))]


def fluid(case: RawCase, folder: Path) -> list[float]:
    volume = picture(case, folder)
    middle = [slice(size // 3, -(size // 3)) for size in volume.shape]
    return [float((volume[tuple(middle)] > 950).mean())]


def lungs(case: RawCase, folder: Path) -> list[float]:
    image = picture(case, folder).mean(axis=2)
    left_lung, right_lung = image[35:90, 20:58].mean(), image[35:90, 70:108].mean()
    return [float(max(left_lung, right_lung)), float(min(left_lung, right_lung))]


def spots(case: RawCase, folder: Path) -> list[float]:
    cells = pool(picture(case, folder)[:128, :128], 42)[16:36]
    kidneys = np.concatenate([cells[:, 5:17], cells[:, 25:37]], axis=1)
    return [float(kidneys.max()), float(np.sort(kidneys.ravel())[-25:].mean()), float((kidneys < 85).mean())]


@pytest.mark.parametrize(
    ("name", "look"), [("ADNI", ventricles), ("KneeMRI", fluid), ("CC-CCII", lungs), ("CT-Kidney", spots)]
)
def test_one_look_separates_the_classes_but_not_fully(name: str, look: Look, stand_in) -> None:
    """Nearest class mean, learnt on three quarters of the patients."""
    spec, generated, reading = stand_in(name)
    test_patients = set(reading.patients[::4]) | set(reading.patients[1::7])
    features = np.array([look(case, generated.folder) for case in reading.cases])
    test = np.array([case.patient in test_patients for case in reading.cases])
    labels = np.array([spec.classes.index(case.labels[0]) for case in reading.cases])
    means = np.array([features[~test & (labels == rung)].mean(axis=0) for rung in range(len(spec.classes))])
    spread = features[~test].std(axis=0)
    away = (((features[:, None] - means[None]) / spread) ** 2).sum(axis=2)
    score = macro_auroc(labels[test], -away[test])
    assert 0.7 < score < 1.0
    assert (away[test].argmin(axis=1) == labels[test]).mean() < 1
    shuffled = np.random.default_rng(0).permutation(labels[test])
    assert macro_auroc(shuffled, -away[test]) < score - 0.1
    assert score < generated.ceiling + 0.08, "nothing may beat the observer of the planted signal by more than luck"
    low, _ = spec.stand_in.acceptable
    assert low < generated.ceiling


# --- masks -------------------------------------------------------------------------------------------------------


def volumes(case: RawCase, folder: Path, values: dict[int, str]) -> tuple[np.ndarray, np.ndarray]:
    """Image and mask as they are stored."""
    if case.images[0].endswith(".png"):
        image = picture(case, folder)
    else:
        image = nib.load(folder / case.images[0]).get_fdata(dtype=np.float32)
    return image, read_mask(folder / case.mask, values)


@pytest.mark.parametrize(
    ("name", "structure_values", "surrounding_values"),
    [
        ("BTCV", (6,), (7,)), ("BTCV", (8,), (0,)), ("VerSe", None, (0,)), ("OASIS", (1, 20), (2, 21)),
        ("OASIS", (3, 22), (1, 20)), ("COVID19", (3,), (1, 2)), ("INSTANCE22", (1,), (0,)),
        ("MSD-Pancreas", (2,), (1,)), ("MSD-Pancreas", (1, 2), (0,)),
    ],
)  # fmt: skip
def test_structures_differ_from_their_surroundings(name: str, structure_values, surrounding_values, stand_in) -> None:
    """By brightness alone, in the volume around the structure; with another case's mask it is less so."""
    spec, generated, reading = stand_in(name)
    matched_contrasts, swapped = [], []
    pairs = [volumes(case, generated.folder, spec.values) for case in reading.cases[:5]]
    for number, (image, mask) in enumerate(pairs):
        matched_contrasts.append(contrast(image, mask, structure_values, surrounding_values))
        other_mask = pairs[(number + 1) % len(pairs)][1]
        if other_mask.shape == image.shape:
            swapped.append(contrast(image, other_mask, structure_values, surrounding_values))
    assert 0.75 < np.mean(matched_contrasts) < 1.0
    assert np.mean(swapped) < np.mean(matched_contrasts) - 0.005


def contrast(image: np.ndarray, mask: np.ndarray, structure_values, surrounding_values) -> float:
    """AUROC of brightness for voxels of the structure against others within its bounding box, whichever way round."""
    target = mask > 0 if structure_values is None else np.isin(mask, structure_values)
    box = tuple(slice(max(0, at.min() - 4), at.max() + 5) for at in np.nonzero(target))
    target, image, surroundings = target[box], image[box], np.isin(mask[box], surrounding_values)
    keep = (target | surroundings) & (image > -300 if surrounding_values == (0,) else True)
    area = roc_auc_score(target[keep], image[keep])
    return max(area, 1 - area)


def test_chest_findings_stand_out_from_an_average_chest(stand_in) -> None:
    spec, generated, reading = stand_in("ChestX-Det10")
    pairs = [volumes(case, generated.folder, spec.values) for case in reading.cases]
    usual = np.median([image for image, _ in pairs], axis=0)
    areas = [roc_auc_score(mask.ravel() > 0, np.abs(image - usual).ravel()) for image, mask in pairs if mask.any()]
    assert 0.65 < np.mean(areas) < 0.999


@pytest.mark.parametrize("name", ["BTCV", "VerSe", "OASIS", "COVID19", "INSTANCE22", "MSD-Pancreas", "ChestX-Det10"])
def test_no_outline_can_be_met_exactly(name: str, stand_in) -> None:
    spec, generated, _ = stand_in(name)
    assert spec.stand_in.acceptable[0] + 0.3 < generated.ceiling < 0.98


@pytest.mark.parametrize("name", ["BTCV", "VerSe", "OASIS", "COVID19", "INSTANCE22", "MSD-Pancreas", "ChestX-Det10"])
def test_an_atlas_without_a_look_at_the_image_does_not_pass(name: str, stand_in) -> None:
    """How often each voxel is labelled in the other cases, cut where it serves best: the most that a blind model gets."""
    spec, generated, reading = stand_in(name)
    masks = [upright(generated.folder / case.mask) for case in reading.cases]
    shape = max((mask.shape for mask in masks), key=[mask.shape for mask in masks].count)
    masks = [(mask > 0) * 1 if name == "ChestX-Det10" else mask for mask in masks if mask.shape == shape]
    assert len(masks) > 4
    best = []
    for value in [3] if name == "COVID19" else sorted({int(v) for mask in masks for v in np.unique(mask)} - {0}):
        total = np.sum([mask == value for mask in masks], axis=0)
        present_masks = [mask == value for mask in masks if (mask == value).any()]
        share = [(total - truth) / (len(masks) - 1) for truth in present_masks]
        cuts = (0.15, 0.25, 0.35, 0.5)
        best.append(
            max(
                np.mean([dice(often >= cut, truth) for often, truth in zip(share, present_masks, strict=True)])
                for cut in cuts
            )
        )
    assert np.mean(best) < spec.stand_in.baseline + 0.08
    assert np.mean(best) < spec.stand_in.acceptable[0] - 0.03


def upright(file: Path) -> np.ndarray:
    """A mask in RAS order."""
    if file.suffix == ".png":
        return picture(RawCase("", (file.name,), ""), file.parent)
    return np.rint(nib.as_closest_canonical(nib.load(file)).get_fdata(dtype=np.float32)).astype(np.uint8)


# --- reports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CT-RATE", "RadGenome-BrainMRI", "IU-Xray"])
def test_the_report_of_the_likest_image_beats_a_report_by_chance(name: str, stand_in) -> None:
    _, generated, reading = stand_in(name)
    cases = [case for case in reading.cases if case.findings]
    looks = [pool(picture(case, generated.folder)) for case in cases]
    test_patients = set(reading.patients[::4])
    train, test = (
        [n for n, case in enumerate(cases) if (case.patient in test_patients) == side] for side in (False, True)
    )
    likest = [min(train, key=lambda n, at=at: float(((looks[n] - looks[at]) ** 2).sum())) for at in test]
    references = [cases[n].findings for n in test]
    random = np.random.default_rng(0)
    chance = [bleu_1(references, [cases[n].findings for n in random.choice(train, len(test))]) for _ in range(20)]
    score = bleu_1(references, [cases[n].findings for n in likest])
    assert np.mean(chance) + 0.05 < score < 1.0
    assert len({cases[n].findings for n in likest}) >= 5, "one report for all would be no reading"


@pytest.mark.parametrize("name", ["CT-RATE", "RadGenome-BrainMRI", "IU-Xray"])
def test_the_best_constant_report_is_well_below_the_ceiling(name: str, stand_in) -> None:
    spec, generated, reading = stand_in(name)
    texts = [case.findings for case in reading.cases if case.findings]
    best = max(bleu_1(texts, [text] * len(texts)) for text in set(texts))
    assert abs(best - spec.stand_in.baseline) < 0.06
    assert best < spec.stand_in.acceptable[0] < generated.ceiling - 0.1


# --- the arithmetic of the ceilings ------------------------------------------------------------------------------


def test_the_ceiling_of_a_ladder_follows_from_its_overlap() -> None:
    """Two rungs d standard deviations apart: AUROC = Phi(d / sqrt 2)."""
    random = np.random.default_rng(0)
    ladder = ClassSizeModel((0.0, 2.0), 1.0)
    rungs = [number % 2 for number in range(4000)]
    sizes = [ladder.means[rung] + ladder.sd * random.standard_normal() for rung in rungs]
    assert abs(ladder.ceiling(rungs, sizes) - 0.9214) < 0.01


@pytest.mark.parametrize(("classes", "share"), [(3, 0.06), (4, 0.04), (2, 0.2)])
def test_the_ceiling_of_mistaken_labels_follows_from_their_share(classes: int, share: float) -> None:
    random = np.random.default_rng(0)
    truth = [number % classes for number in range(6000)]
    swapped = swap_some_classes(random, truth, share, classes)
    assert np.mean(np.array(truth) != np.array(swapped)) == pytest.approx(share, abs=1e-3)
    expected = 1 - share * classes / (2 * (classes - 1))
    assert compute_swap_ceiling(truth, swapped, classes, share) == pytest.approx(expected, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), min_size=3))
def test_macro_auroc_is_that_of_scikit_learn(cases: list[tuple[int, int, int, int]]) -> None:
    truth = [0, 1, 2, *(case[0] for case in cases)]
    belief = np.array([[1, 0, 0], [0, 1, 2], [2, 0, 1], *(case[1:] for case in cases)], dtype=float)
    expected = np.mean([roc_auc_score(np.array(truth) == number, belief[:, number]) for number in range(3)])
    assert macro_auroc(truth, belief) == pytest.approx(expected)


def test_bleu_1_on_sums_done_by_hand() -> None:
    assert bleu_1(["The heart is large."], ["The heart is large."]) == 1
    assert bleu_1(["a b c d"], ["a a x"]) == pytest.approx(1 / 3 * np.exp(1 - 4 / 3))
    assert bleu_1(["a b", "c"], ["a", "c d"]) == pytest.approx(2 / 3)
    assert bleu_1(["a"], [""]) == 0
