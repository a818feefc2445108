"""Whole runs in which the Data Engineer has images labelled by prompts, as the user approved: masks that teach and never test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import actor, call, check_end, choice, of_kind, play, say, script, write
from test_pipeline_masks import REQUEST, TOY

from m3b import Pipeline
from m3b.errors import LLMError, UsageError
from m3b.interactive.segmenter import BoxPrompt, ByteImage, MaskProposal, Point
from m3b.llm.base import ModelFacts
from m3b.messages import Message, ToolSpec
from m3b.testing.scripted_model import llm_error

SPEC = {
    "task": "segmentation",
    "images": {"files": "{case}_scan.png"},
    "masks": {"files": "{case}_drawn.png", "key": "{case}", "image": "{case}", "classes": {"square": 200}},
}
UNLABELLED = [f"data/squares/p{number:02d}_scan.png" for number in range(15, 24)]
SEEING = ModelFacts(price_in=0.0, price_out=0.0, vision=True)
EPISODE = ""
"""The conversation of an episode belongs to no stage."""


class Bright:
    """Segments what is bright inside the box."""

    name = "bright"

    def __init__(self) -> None:
        self.image: ByteImage | None = None

    def set_image(self, image: ByteImage) -> None:
        self.image = image

    def predict(self, boxes: Any, points: Any, previous: MaskProposal | None = None) -> MaskProposal:
        assert self.image is not None
        assert not points or isinstance(points[0], Point)
        assert isinstance(boxes[0], BoxPrompt)
        mask = self.image[..., 0] > 120
        return MaskProposal(mask, 0.9 if mask.mean() < 0.5 else 0.1)


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """24 pictures with a bright square, of which the last nine have no drawing of it; the very last shows nothing."""
    folder, random = tmp_path / "squares", np.random.default_rng(0)
    folder.mkdir()
    for number in range(24):
        x, y = random.integers(2, 14, 2)
        drawing = np.zeros((24, 24), np.uint8)
        drawing[y : y + 8, x : x + 8] = 200
        visible_square = drawing if number < 23 else 0 * drawing
        picture = np.clip(random.normal(70, 8, (24, 24)) + visible_square * 0.4, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"p{number:02d}_scan.png")
        if number < 15:
            Image.fromarray(drawing).save(folder / f"p{number:02d}_drawn.png")
    return folder


@pytest.fixture
def segmenter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "segmenter"
    place.mkdir()
    monkeypatch.setattr("m3b.interactive.open_segmenter", lambda folder: Bright())
    return place


HUNDREDS = {name: text.replace("* 3", "* 200").replace('"square": 3', '"square": 200') for name, text in TOY.items()}
"""The toy project for masks whose value is 200."""


def acts(**changes: Any) -> Any:
    reading = {"Datapath/manifest.json": json.dumps(SPEC)}
    defaults = {
        "selection": [choice("squares", task="segmentation", metric="dice")],
        "index": [call("label_images", images=UNLABELLED, target="square"), write(reading), say("Indexed.")],
        "module": [write(HUNDREDS), say("In place.")],
        "model": [script("python train.py && python export.py"), say("Trained.")],
        EPISODE: [call("add_box", box=[0, 0, 999, 999]), call("stop")],
    }
    return actor(play("squares", **{**defaults, **changes}), facts=SEEING)


def test_prompted_masks_teach_and_are_told_and_never_test(squares: Path, segmenter: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = Pipeline(acts(), data=[squares], out=out, label_with=str(segmenter)).run(REQUEST)
    check_end(result, "completed", "dice")
    register = json.loads((out / "labelling/masks.json").read_text())
    assert [row["image"] for row in register] == UNLABELLED[:-1], "nothing bright: the mask of all is not believed"
    assert {row["segmenter"] for row in register} == {"bright"}
    assert (out / "labelling/00001/turn_1.png").is_file()
    test = json.loads((out / "locked/Datapath/test.json").read_text())
    assert test
    assert not {row["image_path"] for row in test} & set(UNLABELLED)
    origin_note = "8 of 18 training masks were drawn by no person"
    card, report = (
        (Path(result.model_dir or "") / "README.md").read_text(),
        Path(result.report).read_text(encoding="utf-8"),
    )
    assert origin_note in card
    assert origin_note in report
    assert origin_note in " ".join(event["text"] for event in of_kind(out, "note"))
    train = (
        json.loads((out / "locked/work/Datapath/train.json").read_text()) if (out / "locked/work").is_dir() else None
    )
    assert train is None or sum(row.get("mask_origin") == "prompted" for row in train) == 8


def test_a_script_that_makes_a_prompted_mask_test_truth_is_refused(
    squares: Path, segmenter: Path, tmp_path: Path
) -> None:
    cheat = """
import json
from pathlib import Path
made = json.loads(Path("Datapath/prompted/masks.json").read_text())
rows = {"train": [], "test": []}
for n in range(15):
    name = f"data/squares/p{n:02d}_"
    rows["train" if n % 2 else "test"].append({"image_path": name + "scan.png", "mask_path": name + "drawn.png", "patient": f"p{n}"})
for one in made[:3]:
    copy = Path("Datapath/masks") / Path(one["file"]).name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(Path(one["file"]).read_bytes())
    rows["test"].append({"image_path": one["image"], "mask_path": copy.as_posix(), "patient": one["image"]})
for split, some in rows.items():
    Path(f"Datapath/{split}.json").write_text(json.dumps(some))
Path("Datapath/label_dict.json").write_text(json.dumps({"square": 200}))
"""
    index = [call("label_images", images=UNLABELLED[:4], target="square"), write({"make.py": cheat}), script("python make.py"),
             say("Indexed. The masks are where they are.")]  # fmt: skip
    llm = acts(index=index, module=[llm_error(LLMError, "Far enough.")])
    out = tmp_path / "run"
    Pipeline(llm, data=[squares], out=out, label_with=str(segmenter), max_iterations=1).run(REQUEST)
    refused = [event for event in of_kind(out, "check") if not event["accepted"]]
    assert any(
        "was prompted for in this run" in json.dumps(event) or "values" in json.dumps(event) for event in refused
    ), refused


def test_without_the_users_word_there_is_no_such_tool(squares: Path, tmp_path: Path) -> None:
    offered: list[str] = []

    def look(messages: list[Message], tools: list[ToolSpec]) -> Any:
        offered.extend(tool.name for tool in tools)
        raise LLMError("Far enough.")

    Pipeline(acts(index=[look]), data=[squares], out=tmp_path / "run").run(REQUEST)
    assert offered
    assert "label_images" not in offered
    with pytest.raises(UsageError, match="There is no segmenter folder"):
        Pipeline(acts(), data=[squares], out=tmp_path / "other", label_with=str(tmp_path / "none")).run(REQUEST)


@pytest.mark.parametrize(
    ("images", "target", "says"),
    [
        ([], "square", "0 images; give 1 to 50 a call"),
        (UNLABELLED[:1], " ", "the target is empty"),
        (["data/squares/none.png"], "square", "there is no image data/squares/none.png"),
        (["Datapath/x.png"], "square", "name images as an index does"),
    ],
)
def test_calls_that_cannot_be_are_answered(
    squares: Path, segmenter: Path, tmp_path: Path, images: list[str], target: str, says: str
) -> None:
    answers: list[str] = []

    def look(messages: list[Message], tools: list[ToolSpec]) -> Any:
        answers.append(messages[-1].text)
        raise LLMError("Far enough.")

    llm = acts(index=[call("label_images", images=images, target=target), look])
    Pipeline(llm, data=[squares], out=tmp_path / "run", label_with=str(segmenter)).run(REQUEST)
    assert says in answers[-1]
