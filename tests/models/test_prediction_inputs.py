"""What `Model.predict` takes: arrays, PIL images, folders, many files; and what it refuses, with a code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from m3b.dataset.reading import read_image
from m3b.errors import ModelError
from m3b.models import Model, load_model
from m3b.models.array_files import write_array
from m3b.models.input_rules import InputRules
from m3b.resources import copy_template

MEAN_MODEL = """
import argparse, json, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from m3b.dataset.formats import read_image
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list"); parser.add_argument("-o")
    call = parser.parse_args()
    answers = []
    for path in json.loads(Path(call.list).read_text()):
        image = read_image(path)
        mean = float(image.array.mean()) / 255
        answers.append({{"image": path, "probabilities": {{"dark": 1 - mean, "light": mean}}, "count": image.array.size}})
    Path(call.o).write_text(json.dumps(answers))
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def make_model(tmp_path: Path) -> Any:
    def make(dims: int, **plan: Any) -> Model:
        folder = tmp_path / f"model{dims}{len(plan)}"
        copy_template("diagnosis", folder)
        (folder / "predict.py").write_text(MEAN_MODEL.format(folder=str(folder)))
        (folder / "config.json").write_text(
            json.dumps({"task": "diagnosis", "classes": ["dark", "light"], "plan": {"dims": dims, **plan}})
        )
        return load_model(folder)

    return make


@pytest.fixture
def picture(tmp_path: Path) -> np.ndarray:
    array = np.random.default_rng(0).integers(0, 255, (12, 17), np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    return array


def light(model: Model, *images: Any, **options: Any) -> list[float]:
    return [prediction.probabilities["light"] for prediction in model.predict(list(images), **options)]


def test_arrays_and_pil_images_are_predicted_as_their_files(
    tmp_path: Path, make_model: Any, picture: np.ndarray
) -> None:
    model, file = make_model(2, channels=1), tmp_path / "a.png"
    expected = picture.mean() / 255
    colour = np.repeat(picture[..., None], 3, axis=2)
    inputs = [
        file,
        picture,
        Image.open(file),
        colour,
        picture[..., None],
        Image.fromarray(colour),
        picture.astype(float),
    ]
    assert light(model, *inputs) == pytest.approx([expected] * len(inputs))
    assert [prediction.image for prediction in model.predict([file, picture])] == [str(file), "input[1]"]
    assert model.predict(picture)[0].probabilities["light"] == pytest.approx(expected), "one array is one case"
    assert model.worker.starts == 1


def test_a_turned_jpeg_is_read_as_its_file(tmp_path: Path, make_model: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    gradient = Image.fromarray(np.tile(np.arange(0, 240, 10, dtype=np.uint8), (8, 1)))
    gradient.save(tmp_path / "turned.jpg", exif=exif)
    file = write_array(Image.open(tmp_path / "turned.jpg"), "x", tmp_path / "staged", InputRules(2), {}, None)
    assert np.array_equal(read_image(str(file)).array, read_image(str(tmp_path / "turned.jpg")).array)


def test_volumes_keep_values_axes_and_spacing(tmp_path: Path) -> None:
    volume = np.random.default_rng(0).normal(size=(5, 7, 30)).astype(np.float32)  # few slices, many columns
    for dtype in (np.int16, np.float32, np.uint8, np.float64):
        array = (volume * 50).astype(dtype)
        file = write_array(array, "x", tmp_path / np.dtype(dtype).name, InputRules(3), {}, (2.5, 0.5, 0.75))
        image = read_image(str(file))
        assert image.dims == 3
        assert np.array_equal(image.array[0], np.moveaxis(array, 0, -1)), "rows, columns, slices"
        assert image.spacing == pytest.approx((0.5, 0.75, 2.5))
    unknown = write_array(volume, "x", tmp_path / "unknown", InputRules(3), {"spacing": [1.5, 1.25, 3.0]}, None)
    assert read_image(str(unknown)).spacing == pytest.approx((1.5, 1.25, 3.0)), "so that nothing is resampled"


def test_a_folder_is_searched_as_by_the_command(tmp_path: Path, make_model: Any, picture: np.ndarray) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("b10.png", "b2.png"):
        Image.fromarray(picture).save(folder / name)
    (folder / "gone.png").symlink_to(tmp_path / "nowhere.png")
    model = make_model(2)
    with pytest.warns(UserWarning, match=r"gone\.png.*nowhere\.png"):
        predictions = model.predict(folder)
    assert [Path(str(prediction.image)).name for prediction in predictions] == ["b2.png", "b10.png"]
    with pytest.warns(UserWarning, match=r"gone\.png"):
        mixed = model.predict([folder, picture, tmp_path / "a.png"])
    assert [str(prediction.image).rsplit("/", 1)[-1] for prediction in mixed] == [
        "b2.png",
        "b10.png",
        "input[1]",
        "a.png",
    ]


def test_slices_in_a_folder_are_one_volume(tmp_path: Path, make_model: Any, picture: np.ndarray) -> None:
    (tmp_path / "stack").mkdir()
    for number in range(3):
        Image.fromarray(picture).save(tmp_path / f"stack/{number}.png")
    [prediction] = make_model(3).predict(tmp_path / "stack")
    assert prediction.image == str(tmp_path / "stack")


def save_nifti(file: Path, *shape: int) -> Path:
    nib.save(nib.Nifti1Image(np.ones(shape, np.int16), np.eye(4)), file)
    return file


def save_pages(file: Path, pages: int) -> Path:
    images = [Image.fromarray(np.full((9, 8), 40 * n, np.uint8)) for n in range(pages)]
    images[0].save(file, save_all=True, append_images=images[1:])
    return file


@pytest.mark.parametrize(
    ("dims", "make_input", "code"),
    [
        (2, lambda folder: save_nifti(folder / "v.nii.gz", 8, 9, 12), "volume_for_2d_model"),
        (2, lambda folder: save_pages(folder / "p.tif", 3), "several_pages_for_2d_model"),
        (2, lambda folder: np.zeros((20, 9, 8), np.uint8), "volume_for_2d_model"),
        (2, lambda folder: Image.open(save_pages(folder / "p.tif", 3)), "several_pages_for_2d_model"),
        (3, lambda folder: save_pages(folder / "one.png", 1), "image_for_3d_model"),
        (3, lambda folder: save_nifti(folder / "slice.nii.gz", 8, 9, 1), "image_for_3d_model"),
        (3, lambda folder: np.zeros((9, 8), np.uint8), "image_for_3d_model"),
        (3, lambda folder: save_nifti(folder / "series.nii", 8, 9, 7, 3), "several_volumes_for_one_channel_model"),
        (3, lambda folder: np.zeros((3, 7, 9, 8)), "several_volumes_for_one_channel_model"),
        (2, lambda folder: 5, "no_image"),
        (2, lambda folder: np.array(["text"]), "no_image"),
    ],
)
def test_other_axes_than_the_models_are_refused(
    tmp_path: Path, make_model: Any, dims: int, make_input: Any, code: str
) -> None:
    model, image = make_model(dims, channels=1), make_input(tmp_path)
    with pytest.raises(ModelError) as error:
        model.predict(image)
    assert error.value.code == code
    if code != "no_image":
        [prediction] = model.predict([image], strict=False)
        assert prediction.error_code == prediction.to_dict()["error_code"] == code


def test_what_fits_is_not_refused(tmp_path: Path, make_model: Any) -> None:
    volume, slice_file = save_nifti(tmp_path / "v.nii.gz", 8, 9, 12), save_nifti(tmp_path / "s.nii.gz", 8, 9, 1)
    series = save_nifti(tmp_path / "four.nii.gz", 8, 9, 7, 3)
    pages = save_pages(tmp_path / "stack.tif", 4)
    assert len(make_model(3, channels=1).predict([volume, pages])) == 2
    assert len(make_model(3, channels=3, x=1).predict(series)) == 1
    assert len(make_model(2).predict([slice_file, save_pages(tmp_path / "one.tif", 1)])) == 2
    assert len(make_model(2, frames=4, a=1, b=2).predict(pages)) == 1, "a model of clips takes pages"


def test_spacing_has_a_number_for_each_axis(tmp_path: Path, make_model: Any) -> None:
    with pytest.raises(ModelError) as error:
        make_model(3).predict(np.zeros((5, 9, 8)), spacing=(1.0, 1.0))
    assert error.value.code == "bad_spacing"


def test_a_run_folder_opens_as_its_model(tmp_path: Path, make_model: Any) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with pytest.raises(ModelError) as error:
        load_model(run)
    assert error.value.code == "no_model"
    make_model(2).folder.rename(run / "model")
    assert load_model(run).folder == run / "model"
