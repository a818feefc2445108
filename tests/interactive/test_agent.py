"""A scripted model at work on a drawn image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interactive_kit import Threshold
from PIL import Image

from m3b.dataset.reading import read_mask
from m3b.errors import UsageError
from m3b.interactive import segment
from m3b.interactive.segmenter import ByteImage, Mask
from m3b.interactive.targets import compute_overlap
from m3b.llm.base import ModelFacts
from m3b.testing.scripted_model import ScriptedModel, call, combine_calls, llm_error, say
from watch_kit import opens_below

SEEING = ModelFacts(price_in=0.0, price_out=0.0, vision=True)
BOX = [380, 250, 730, 750]
MARKS = """
import json, sys
from pathlib import Path
import numpy as np
from PIL import Image
def option(name):
    return sys.argv[sys.argv.index(name) + 1]
folder = Path(option("--masks")); folder.mkdir(exist_ok=True)
mask = np.zeros((60, 90), np.uint8); mask[5:10, :10] = 3
Image.fromarray(mask).save(folder / "0.png")
path = json.loads(Path(option("--list")).read_text())[0]
Path(option("-o")).write_text(json.dumps([{"image": path, "mask": "masks/0.png"}]))
"""


def seeing(*steps: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(steps, facts=SEEING, **options)


def test_box_then_stop_gives_the_mask(picture: tuple[ByteImage, Mask]) -> None:
    image, truth = picture
    model = seeing(call("add_box", box=BOX), call("stop"))
    result = segment(image, "the bright disk", llm=model, segmenter=Threshold())
    assert result.status == "stopped"
    assert result.kept_turn == 1
    assert compute_overlap(result.mask, truth)[0] > 0.9
    assert result.usage.requests == 2


def test_the_model_sees_the_image_first_and_the_mask_after_each_prompt(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(call("add_box", box=BOX), call("add_point", point=[500, 500], positive=True), call("stop"))
    segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    first, second, third = ([len(message.images) for message in messages] for messages, _ in model.requests)
    assert first == [0, 1]
    assert second == [0, 1, 0, 1]
    assert third == [0, 1, 0, 1, 0, 1]
    images = model.requests[1][0][1].images[0], model.requests[1][0][3].images[0]
    assert images[0].data != images[1].data


def test_an_empty_mask_comes_with_what_to_try(picture: tuple[ByteImage, Mask]) -> None:
    image = np.zeros_like(picture[0])
    model = seeing(call("add_box", box=BOX), call("stop"))
    segment(image, "the bright disk", llm=model, segmenter=Threshold())
    (tool_text,) = [message.text for message in model.requests[-1][0] if message.role == "tool"]
    assert "is empty" in tool_text
    assert "positive click" in tool_text


def test_an_episode_that_never_stops_ends_within_its_turns_and_keeps_its_best_mask(
    picture: tuple[ByteImage, Mask],
) -> None:
    model = seeing(call("add_box", box=BOX), call("add_point", point=[10, 10], positive=False), repeat=True)
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold(), max_turns=3)
    assert result.status == "turns_used"
    assert len(result.turns) == 3
    assert result.kept_turn
    assert len(model.requests) == 3


@pytest.mark.parametrize("step", [call("undo"), call("nonsense"), call("add_box", box=[1]), say("I see a disk.")])
def test_a_model_that_gets_nowhere_ends_with_a_reason(picture: tuple[ByteImage, Mask], step: Any) -> None:
    model = seeing(step, repeat=True)
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    assert result.status == "failed"
    assert result.reason
    assert result.kept_turn == 0
    assert not result.mask.any()
    assert len(model.requests) < 30


def test_a_model_that_fails_after_a_mask_keeps_it(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(call("add_box", box=BOX), llm_error())
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    assert result.status == "failed"
    assert result.kept_turn == 1
    assert "scripted provider failed" in result.reason


def test_words_after_a_mask_mean_that_it_fits(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(call("add_box", box=BOX), say("The mask fits."))
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    assert (result.status, result.kept_turn) == ("stopped", 1)


def test_calls_after_stop_in_the_same_turn_are_not_run(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(
        call("add_box", box=BOX), combine_calls(call("stop"), call("add_point", point=[1, 1], positive=False))
    )
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    assert (result.status, len(result.turns)) == ("stopped", 1)


def test_a_target_that_is_not_there_has_no_mask(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(call("add_box", box=BOX), call("stop", absent=True))
    result = segment(picture[0], "a kidney", llm=model, segmenter=Threshold())
    assert (result.status, result.kept_turn) == ("absent", 0)
    assert not result.mask.any()


def test_wrong_coordinates_are_explained_to_the_model(picture: tuple[ByteImage, Mask]) -> None:
    model = seeing(call("add_box", box=[0, 0, 1200, 300]), call("add_box", box=BOX), call("stop"))
    result = segment(picture[0], "the bright disk", llm=model, segmenter=Threshold())
    tool_message = model.requests[1][0][-1]
    assert tool_message.is_error
    assert "0 to 999" in tool_message.text
    assert len(result.turns) == 1


def test_no_mask_is_written_where_none_was_made(picture: tuple[ByteImage, Mask], tmp_path: Path) -> None:
    """An empty mask.png says that the target is not there."""
    file = tmp_path / "image.png"
    Image.fromarray(picture[0]).save(file)
    for name, model, has_mask_file in (
        ("failed", seeing(llm_error()), False),
        ("absent", seeing(call("stop", absent=True)), True),
    ):
        result = segment(file, "the bright disk", llm=model, segmenter=Threshold(), out=tmp_path / name)
        assert result.status == name
        assert (result.mask_file is not None) == (tmp_path / name / "mask.png").is_file() == has_mask_file


def test_the_folder_holds_mask_pictures_journal_and_result(picture: tuple[ByteImage, Mask], tmp_path: Path) -> None:
    file, out = tmp_path / "image.png", tmp_path / "out"
    Image.fromarray(picture[0]).save(file)
    result = segment(
        file, "the bright disk", llm=seeing(call("add_box", box=BOX), call("stop")), segmenter=Threshold(), out=out
    )
    assert result.mask_file is not None
    assert np.array_equal(read_mask(str(result.mask_file)).array > 0, result.mask)
    assert {item.name for item in out.iterdir()} == {
        "mask.png",
        "turn_0.png",
        "turn_1.png",
        "result.json",
        "journal.jsonl",
    }
    result_json = json.loads((out / "result.json").read_text())
    assert result_json["turns"] == [
        {"number": 1, "prompt": "box", "box": [34.2, 15.0, 65.79, 45.06], "score": result_json["score"]}
    ]
    kinds = [json.loads(line)["kind"] for line in (out / "journal.jsonl").read_text().splitlines()]
    assert kinds[0] == "prompt"
    assert kinds[-1] == "run_ended"
    with pytest.raises(UsageError, match="not an empty folder"):
        segment(file, "x", llm=seeing(call("stop")), segmenter=Threshold(), out=out)


def test_a_model_without_eyes_is_refused(picture: tuple[ByteImage, Mask]) -> None:
    with pytest.raises(UsageError, match="takes no images"):
        segment(picture[0], "x", llm=ScriptedModel([call("stop")]), segmenter=Threshold())


def test_an_empty_target_and_no_turns_are_refused(picture: tuple[ByteImage, Mask]) -> None:
    with pytest.raises(UsageError, match="target is empty"):
        segment(picture[0], "  ", llm=seeing(call("stop")), segmenter=Threshold())
    with pytest.raises(UsageError, match="max_turns"):
        segment(picture[0], "x", llm=seeing(call("stop")), segmenter=Threshold(), max_turns=0)


def test_a_volume_is_prompted_in_one_slice_and_followed_in_the_others(tmp_path: Path) -> None:
    import nibabel as nib

    rows, columns, slices = np.ogrid[:48, :48, :20]
    ball = (rows - 24) ** 2 + (columns - 22) ** 2 + (1.5 * (slices - 9)) ** 2 <= 100
    volume = np.where(ball, 200.0, 60.0) + np.random.default_rng(0).normal(0, 5, ball.shape)
    (tmp_path / "raw").mkdir()
    file = tmp_path / "raw" / "volume.nii.gz"
    affine = np.diag([-1.0, -1.0, 3.0, 1.0])
    nib.save(nib.Nifti1Image(volume.astype(np.float32), affine), file)
    from m3b.dataset.reading import read_image

    array = read_image(str(file)).array[0]
    truth = array > 130
    place = np.argwhere(truth[:, :, 9])
    (y_min, x_min), (y_max, x_max) = place.min(axis=0), place.max(axis=0)
    scale = 1000 / 48
    box = [int(x_min * scale), int(y_min * scale), int((x_max + 1) * scale) - 1, int((y_max + 1) * scale) - 1]
    model = seeing(call("add_box", box=box), call("stop"))
    with opens_below(tmp_path / "raw") as opened_files:
        result = segment(file, "the ball", llm=model, segmenter=Threshold(), slice_index=9, out=tmp_path / "out")
    assert opened_files == {}, "the reader opens images"
    assert result.mask.shape == truth.shape
    assert compute_overlap(result.mask, truth)[0] > 0.9
    assert result.mask_file is not None
    saved_mask = nib.load(result.mask_file)
    assert np.allclose(saved_mask.affine, affine)
    with pytest.raises(UsageError, match="slices 0 to 19"):
        segment(file, "the ball", llm=model, segmenter=Threshold(), slice_index=20)


def test_a_delivered_model_makes_the_first_mask(picture: tuple[ByteImage, Mask], tmp_path: Path) -> None:
    file, delivered = tmp_path / "image.png", tmp_path / "delivered"
    Image.fromarray(picture[0]).save(file)
    delivered.mkdir()
    config = {"task": "segmentation", "classes": ["disk", "rim"], "labels": {"disk": 3, "rim": 7}, "plan": {"dims": 2}}
    (delivered / "config.json").write_text(json.dumps(config))
    (delivered / "predict.py").write_text(MARKS)
    model = seeing(call("stop"))
    with pytest.raises(UsageError, match="Name the class"):
        segment(file, "the disk", llm=model, segmenter=Threshold(), start=delivered)
    (delivered / "config.json").write_text(json.dumps({**config, "classes": ["disk"], "labels": {"disk": 3}}))
    result = segment(file, "the disk", llm=model, segmenter=Threshold(), start=delivered, out=tmp_path / "out")
    assert (result.kept_turn, int(result.mask.sum())) == (1, 50)
    assert result.mask[5:10, :10].all()
