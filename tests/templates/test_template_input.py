"""Data as it comes: broken pixels, mixed formats, units and dimensions, from the plan to the prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from template_kit import Run, load

from formats.store_kit import volume, write_series

rng = np.random.default_rng(0)
formats, preprocess = load("m3b.dataset.formats"), load("preprocess")
PERCENTILE = {"dims": 2, "channels": 1, "size": [8, 8], "intensity": {"mode": "percentile"}}


def _index(project: Path, images: list[tuple[str, str]]) -> None:
    records = [{"image_path": path, "labels": [name], "patient": f"p{k}"} for k, (path, name) in enumerate(images)]
    (project / "Datapath" / "train.json").write_text(json.dumps(records))
    names = sorted({name for _, name in images})
    (project / "Datapath" / "label_dict.json").write_text(json.dumps({name: k for k, name in enumerate(names)}))


def _facts(run: Run) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What plan.py measures, decides and says, without its look at the network's pace."""
    code = (
        "import json; from m3b.training.diagnosis import plan\nread = lambda name: json.load(open(f'Datapath/{name}.json'))\n"
        "facts = plan.fingerprint(read('train'), read('label_dict'))\n"
        "made = plan.make_plan(facts, 1.0, False)\nfacts['pretrained'] = ''\nsaid = plan.format_summary(facts, made)\n"
        "facts.pop('shapes')\nprint(json.dumps([facts, made, said]))"
    )
    facts, plan, summary = json.loads(run("-c", code).stdout.splitlines()[-1])
    return facts, plan, summary


def test_copies_with_other_bits_are_one_input(tmp_path: Path) -> None:
    """A film as 8-bit PNG, 16-bit PNG and fractions: for the network, and for what is unlike training."""
    pixels = rng.integers(20, 230, (24, 24)).astype(np.uint8)
    Pillow.fromarray(pixels).save(tmp_path / "8.png")
    Pillow.fromarray(pixels.astype(np.uint16) * 257).save(tmp_path / "16.png")
    np.save(tmp_path / "fractions.npy", pixels.astype(np.float32) / 255)
    rule = {**PERCENTILE, "intensity": {"mode": "unit", "mean": 0.5, "std": 0.2}, "bits": 16}
    images = [formats.read_image(file.name, tmp_path) for file in sorted(tmp_path.iterdir())]
    inputs = [preprocess.preprocess(image, rule) for image in images]
    looks = [formats.grey_values(image, 16) for image in images]
    assert max(np.abs(values - inputs[0]).max() for values in inputs) < 1e-4
    assert max(np.abs(look - looks[0]).max() for look in looks) < 1e-2


def test_means_by_channel() -> None:
    image = formats.Image(rng.integers(0, 255, (1, 8, 8)).astype(np.uint8), None, 2)
    rule = {"mode": "unit", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.1, 0.5]}
    array = preprocess.preprocess(image, {**PERCENTILE, "channels": 3, "intensity": rule})
    for channel in range(3):
        expected = (image.array[0] / 255 - rule["mean"][channel]) / rule["std"][channel]
        assert array[channel] == pytest.approx(expected, abs=1e-5)


def _mixed_pictures(project: Path, count: int = 24) -> list[tuple[str, str]]:
    """8-bit, RGBA, 16-bit and float images (some with NaN) in turn; "bright" ones have a square."""
    folder, images = project / "data", []
    folder.mkdir(exist_ok=True)
    for k in range(count):
        array = rng.normal(0.3, 0.05, (24, 24))
        name = ("bright", "dark")[k // 4 % 2]
        if name == "bright":
            array[6:16, 6:16] += 0.5
        array = array.clip(0, 1)
        file = folder / f"{k}.{'npy' if k % 4 == 3 else 'png'}"
        if k % 4 == 0:
            Pillow.fromarray((array * 255).astype(np.uint8)).save(file)
        elif k % 4 == 1:
            colour = np.repeat((array * 255).astype(np.uint8)[..., None], 4, axis=2)
            Pillow.fromarray(colour, "RGBA").save(file)
        elif k % 4 == 2:
            Pillow.fromarray((array * 60000).astype(np.uint16)).save(file)
        else:
            array[0, 0] = (np.nan, np.inf)[k // 4 % 2]
            np.save(file, array.astype(np.float32))
        images.append((f"data/{file.name}", name))
    return images


def test_mixed_units_from_plan_to_prediction(project: Path, run: Run) -> None:
    images = _mixed_pictures(project)
    _index(project, images)
    facts, plan, summary = _facts(run)
    assert set(facts["scales"]) == {"8 bit", "beyond 8 bit", "fractions"}
    assert (plan["intensity"]["mode"], plan["bits"]) == ("unit", 16)
    assert "brought to one scale" in summary
    assert facts["notes"]["nonfinite_filled"][0] == 6
    assert "nonfinite_filled" in summary
    assert not facts["scale_tells"]
    settings = "'max_steps=6', 'batch=8', 'network.width=4', 'device=cpu', 'tta.use=false'"
    code = (
        "from m3b.training.diagnosis import plan, train, export\n"
        f"plan.main(['--set', {settings}])\nassert train.main([]) == 0\nexport.main([])\n"
    )
    run("-c", code)
    (project / "data" / "cut.png").write_bytes((project / "data" / "0.png").read_bytes()[:150])
    np.save(project / "data" / "nan.npy", np.full((24, 24), np.nan))
    np.save(project / "data" / "deep.npy", np.zeros((24, 24, 30), np.float32))
    paths = ["data/cut.png", images[0][0], "data/nan.npy", "data/deep.npy", images[3][0]]
    done = run("Deliver/predict.py", *paths, "-o", "out.json", check=False)
    assert done.returncode == 1, done.stderr
    answers = json.loads((project / "out.json").read_text())
    assert [answer["image"] for answer in answers] == paths
    assert ["error" in answer for answer in answers] == [True, False, True, True, False]
    assert "NaN or infinite" in answers[2]["error"]
    assert all(file.split("/")[1] in done.stderr for file in (paths[0], paths[2], paths[3]))


def test_a_unit_that_tells_the_class_is_said(project: Path, run: Run) -> None:
    images = _mixed_pictures(project, 48)
    _index(
        project,
        [(path, "sick" if path.endswith("npy") or k % 4 == 2 else "well") for k, (path, _) in enumerate(images)],
    )
    facts, _, summary = _facts(run)
    assert facts["scale_tells"]
    assert "WARNING: the unit of the values reveals the class" in summary


def test_single_slices_among_volumes_and_series_of_volumes(project: Path, run: Run) -> None:
    import nibabel as nib

    images = []
    (project / "data").mkdir(exist_ok=True)
    for k in range(20):
        shape = (20, 18, 1) if k % 2 else (20, 18, 12) if k % 4 else (20, 18, 12, 3)  # flat, deep, and a 4D series
        file = project / "data" / f"{k}.nii.gz"
        nib.save(nib.Nifti1Image(rng.normal(50, 9, shape).astype(np.float32), np.diag([1.0, 1, 3, 1])), file)
        images.append((f"data/{file.name}", ("a", "b")[k // 2 % 2]))
    images += [("data/1.nii.gz", "a"), ("data/3.nii.gz", "b")]  # most are single slices now
    _index(project, images)
    facts, plan, summary = _facts(run)
    assert (facts["dims"], len(plan["size"])) == (3, 3)
    assert "not 3D; they are converted" in summary
    code = (
        "import json; from m3b.training.preprocess import prepare_image; import sys; plan = json.loads(sys.argv[1])\n"
        "print([prepare_image(f'data/{k}.nii.gz', plan).shape for k in (0, 1, 2)])"
    )
    shapes = run("-c", code, json.dumps(plan)).stdout
    assert shapes.strip() == str([(plan["channels"], *plan["size"])] * 3)


def _brain(air: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A head in air that is a little noisy, and where the head is; the head is always the same."""
    side = 24 + 2 * air
    grid = np.stack(np.meshgrid(*[np.arange(side) - side / 2 + 0.5] * 3, indexing="ij"))
    head = np.linalg.norm(grid, axis=0) < 11
    tissue = np.random.default_rng(1).normal(600, 120, int(head.sum()))
    array = np.abs(np.random.default_rng(seed).normal(0, 12, head.shape))
    array[head] = tissue
    return array.astype(np.float32)[None], head


def test_a_head_has_the_same_values_in_any_field_of_view() -> None:
    """Air had its share in mean and deviation: the same brain had a mean of 1.33 or of 2.47 deviations."""
    scale = load("preprocess").scale_intensity
    means = {mode: [] for mode in ("percentile", "foreground")}
    for air in (1, 16):
        array, head = _brain(air)
        for mode in means:
            means[mode].append(scale(array, {"mode": mode})[0][head].mean())
    assert abs(means["percentile"][0] - means["percentile"][1]) > 0.5
    assert abs(means["foreground"][0] - means["foreground"][1]) < 0.03
    assert abs(means["foreground"][0]) < 0.1, "the mean of the head is the zero"


@pytest.mark.parametrize("array", [np.full((1, 4, 4), 7.0), np.zeros((1, 3, 3)), -np.arange(16.0).reshape(1, 4, 4)])
def test_the_foreground_of_odd_images_is_finite(array: np.ndarray) -> None:
    values = load("preprocess").scale_intensity(array.astype(np.float32), {"mode": "foreground"})
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 20


def test_volumes_are_scaled_without_their_air_and_pictures_as_a_whole() -> None:
    scales = load("intensity_scales")
    facts = {"dims": 3, "eight_bit": False, "modality": ""}
    assert scales.per_image_rule(facts)["mode"] == "foreground"
    assert scales.per_image_rule({**facts, "dims": 2})["mode"] == "percentile"
    assert scales.per_image_rule({**facts, "dims": 2, "modality": "mr"})["mode"] == "foreground"


def test_what_surrounds_an_image_follows_the_intensity_that_is_set() -> None:
    """It stayed that of the intensity which plan.py had chosen, whatever --set said."""
    padding_value = load("intensity_scales").padding_value
    facts = {"low": 0.0, "mean": 100.0, "std": 50.0, "border": -1.4}
    assert padding_value(facts, {"mode": "percentile"}) == -2.0
    assert padding_value(facts, {"mode": "foreground"}) == -1.4
    assert padding_value(facts, {"mode": "window", "low": 0, "high": 9, "mean": 0.4, "std": 0.2}) == -2.0
    assert padding_value(facts, {"mode": "unit"}) == 0.0
    assert padding_value(facts, {"mode": "unit", "mean": [0.5, 0.2], "std": [0.1, 0.2]}) == -5.0


def test_a_cropped_volume_is_surrounded_by_what_its_borders_have() -> None:
    """It was by air, so that networks answered otherwise according to how far a patch reached beyond it."""
    scales = load("intensity_scales")
    head = np.full((24, 24, 24), -1.5, np.float32)
    head[4:20, 4:20, 4:20] = np.random.default_rng(0).normal(0.2, 0.1, (16, 16, 16))
    borders = [scales.border_value(head), scales.border_value(head[6:18, 6:18, 6:18])]
    assert borders[0] == -1.5
    assert abs(borders[1] - 0.2) < 0.05
    around = [scales.padding_value({"border": border}, {"mode": "foreground"}) for border in borders]
    assert around == [round(border, 3) for border in borders]
    assert scales.border_value(np.arange(12.0).reshape(3, 4)) == 5.5, "pictures too"


def test_dark_and_bright_pictures_are_scaled_one_by_one() -> None:
    """Fluorescence (grey level 12) beside stained slides (200) got one fixed scale."""
    scales, intensity = load("intensity_scales"), load("segmentation.plan")
    dark = [{"mean": 12.0 + k, "std": 20.0, "eight_bit": True} for k in range(5)]
    bright = [{"mean": 200.0 + k, "std": 35.0, "eight_bit": True} for k in range(5)]
    facts = {
        "window": None,
        "scales": {"8 bit": 10},
        "modality": "",
        "eight_bit": True,
        "dims": 2,
        "mean": 106.0,
        "std": 28.0,
    }
    for images, mode in ((dark, "unit"), (bright, "unit"), ([*dark, *bright], "percentile")):
        image_facts = {**facts, "uneven": scales.has_uneven_brightness(images)}
        assert intensity.choose_intensity(image_facts)["mode"] == mode
        assert len(scales.describe_uneven_brightness(image_facts)) == (mode == "percentile")
    assert not scales.has_uneven_brightness([{**item, "eight_bit": False} for item in [*dark, *bright]])


def test_colour_is_not_averaged_away_without_a_word() -> None:
    """35 stained pictures among grey ones were called "1 channel(s)"."""
    scales = load("intensity_scales")
    images = [{"channels": 1}] * 37 + [{"channels": 3}] * 35
    assert scales.choose_channel_count(images) == 3
    assert "37 with 1, the others 3" in scales.describe_channel_conversion(images, 3)[0]
    mostly_grey = [{"channels": 1}] * 98 + [{"channels": 3}] * 2
    assert scales.choose_channel_count(mostly_grey) == 1
    assert "colour is averaged to grey" in scales.describe_channel_conversion(mostly_grey, 1)[0]
    assert scales.describe_channel_conversion([{"channels": 1}] * 5, 1) == []


def test_missing_slices_of_a_series_are_noted_and_said(tmp_path: Path) -> None:
    values, _, affine = volume()
    files = write_series(tmp_path / "s", np.tile(values, 5), affine)
    files[20].unlink()
    image = formats.read_image("s", tmp_path)
    facts = {"notes": load("intensity_scales").count_notes([load("image_sample").measure_image(image)])}
    assert facts["notes"]["slice_gap"][0] == 1
    assert "slice_gap on 1" in load("intensity_scales").describe_notes(facts)[0]


def test_signed_values_without_air_are_no_hounsfield_units(tmp_path: Path) -> None:
    """Phase of MR, -4096 to 4095, got the window of CT."""
    import nibabel as nib

    phase = rng.integers(-4096, 4096, (24, 24, 12)).astype(np.int16)
    body = np.where(rng.random((24, 24, 12)) < 0.4, rng.normal(-990, 20, phase.shape), rng.normal(40, 30, phase.shape))
    rules = []
    for name, values in (("phase", phase), ("ct", body.astype(np.int16))):
        nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / f"{name}.nii")
        row = load("image_sample").measure_image(formats.read_image(f"{name}.nii", tmp_path))
        facts = load("image_sample").summarise_sample([row], [{"image_path": f"{name}.nii"}])
        rules.append(
            load("intensity_rule").choose_whole_image_input({**facts, "dims": 3, "by_channel": {}})["intensity"]["mode"]
        )
    assert rules == ["foreground", "windows"]


def test_a_bleeding_differs_from_brain_by_more_than_the_noise_of_training() -> None:
    """One window from air to bone left 25 Hounsfield units 0.038 of the input's deviation, below the noise that augmentation adds."""
    facts = {
        "modality": "ct",
        "scales": {"Hounsfield units": 9},
        "by_channel": {},
        "low": -1000.0,
        "high": 1200.0,
        "dims": 3,
    }
    choice = load("intensity_rule").choose_whole_image_input(facts)
    head = np.array([35.0, 60.0, -1000.0, 1200.0], np.float32)[None, None]
    scaled = load("normalization").scale_intensity(head, choice["intensity"])
    assert scaled.shape == (choice["channels"], 1, 4)
    brain, blood, air, bone = scaled[:, 0].T
    assert np.abs(brain - blood).max() > 1.0
    assert np.abs(air - bone).min() > 3.0


def test_named_channels_of_ct_have_a_window_each() -> None:
    channel_facts = {
        "modality": "ct",
        "scales": {"Hounsfield units": 9},
        "low": -1000.0,
        "high": 1200.0,
        "window": None,
    }
    choice = load("intensity_rule").choose_whole_image_input(
        {**channel_facts, "by_channel": {"early": channel_facts, "late": channel_facts}}
    )
    assert choice == {"intensity": {"mode": "window", "low": -1000, "high": 1200, "mean": 0.4, "std": 0.3}}
