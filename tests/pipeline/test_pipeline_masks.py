"""Whole runs of a segmentation with a toy project: derived masks are locked, answers are masks, the figure is m3b's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import PROJECT, actor, check_end, choice, play, say, script, write

from m3b import Pipeline, load_model, verify
from m3b.data.index import read_index
from m3b.models.kept_answers import find_changed_answers, read_answers
from m3b.models.model_card import remove_file_names
from m3b.models.predict_process import read_model_info
from m3b.run.result import Result

REQUEST = "Outline the bright square on these drawn scans"

MAKE_INDEX = """
import json
from pathlib import Path
import numpy as np
from PIL import Image
root = next(p for p in sorted(Path("data").iterdir()))
Path("Datapath/masks").mkdir(parents=True, exist_ok=True)
cases = {"train": [], "test": []}
for n, file in enumerate(sorted(root.glob("*_scan.png"))):
    drawn = np.asarray(Image.open(str(file).replace("_scan", "_drawn")))
    Image.fromarray((drawn > 100).astype(np.uint8) * 3).save(f"Datapath/masks/{file.stem}.png")
    cases["test" if n % 3 == 0 else "train"].append({"image_path": file.as_posix(),
        "mask_path": f"Datapath/masks/{file.stem}.png", "patient": file.stem})
for split, rows in cases.items():
    Path(f"Datapath/{split}.json").write_text(json.dumps(rows))
Path("Datapath/label_dict.json").write_text(json.dumps({"square": 3}))
"""

TOY = {
    **PROJECT,
    "features.py": "",
    "plan.json": json.dumps({"seed": 0, "task": "segmentation", "batch": 4}),
    "Datapath/dataloader.py": '''
import json
import numpy as np
import torch
from PIL import Image

class Cases:
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, at):
        row = self.rows[at]
        image = np.asarray(Image.open(row["image_path"]), np.float32)[None] / 8 - 12
        mask = np.asarray(Image.open(row["mask_path"])) > 0
        return {"pixel_values": torch.from_numpy(image), "labels": torch.from_numpy(mask.astype(np.int64))}

def build_datasets(plan):
    rows = json.load(open("Datapath/train.json"))
    return Cases(rows[::2]), Cases(rows[1::2])
''',
    "Model/network.py": '''
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 2, 1)
    def forward(self, pixel_values, labels=None):
        logits = self.layer(pixel_values)
        answer = {"logits": logits}
        if labels is not None:
            answer["loss"] = torch.nn.functional.cross_entropy(logits, labels)
        return answer

def build_model(plan):
    return Net()
''',
    "train.py": '''
import json
from pathlib import Path
import numpy as np
from PIL import Image
from safetensors.numpy import save_file
rows = json.load(open("Datapath/train.json"))[::2]
inside, outside = [], []
for row in rows:
    image, mask = (np.asarray(Image.open(row[k]), np.float32) for k in ("image_path", "mask_path"))
    inside.append(image[mask > 0].mean()), outside.append(image[mask == 0].mean())
Path("Logout").mkdir(exist_ok=True)
save_file({"cut": np.array([(np.mean(inside) + np.mean(outside)) / 2], np.float32)}, "Logout/best.safetensors")
rest = json.load(open("Datapath/train.json"))[1::2]
json.dump([{"image": row["image_path"]} for row in rest], open("Logout/valid_predictions.json", "w"))
print("trained")
''',
    "export.py": '''
import json, shutil
from pathlib import Path
out = Path("Deliver")
out.mkdir(exist_ok=True)
shutil.copy("Logout/best.safetensors", out / "model.safetensors")
shutil.copy("deliver/predict.py", out / "predict.py")
(out / "config.json").write_text(json.dumps({"task": "segmentation", "classes": ["square"], "labels": {"square": 3}}))
(out / "README.md").write_text("# Squares")
(out / "requirements.txt").write_text("numpy")
''',
    "deliver/predict.py": '''
import argparse, json
from pathlib import Path
import numpy as np
from PIL import Image
from safetensors.numpy import load_file
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
parser.add_argument("--masks")
given = parser.parse_args()
cut = load_file(Path(__file__).parent / "model.safetensors")["cut"][0]
Path(given.masks).mkdir(exist_ok=True)
answers = []
for number, path in enumerate(json.loads(Path(given.list).read_text())):
    mask = (np.asarray(Image.open(path), np.float32) > cut).astype(np.uint8) * 3
    Image.fromarray(mask).save(Path(given.masks) / f"{number}.png")
    answers.append({"image": path, "mask": f"masks/{number}.png", "volumes_ml": {"square": None}})
Path(given.o).write_text(json.dumps(answers))
''',
}  # fmt: skip


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures with a bright square, and drawings of the square in 0 and 200."""
    folder, random = tmp_path_factory.mktemp("data") / "squares", np.random.default_rng(0)
    folder.mkdir()
    for number in range(24):
        x, y = random.integers(2, 14, 2)
        drawing = np.zeros((24, 24), np.uint8)
        drawing[y : y + 8, x : x + 8] = 200
        picture = np.clip(random.normal(80, 12, (24, 24)) + drawing * 0.4, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / f"p{number:02d}_scan.png")
        Image.fromarray(drawing).save(folder / f"p{number:02d}_drawn.png")
    return folder


def elsewhere(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Twelve pictures of another place, whose masks write the square as 7 and something that the model does not know as 3;
    and how they are read."""
    random = np.random.default_rng(9)
    folder.mkdir()
    for number in range(12):
        x, y = random.integers(2, 14, 2)
        mask = np.zeros((24, 24), np.uint8)
        mask[0, :5] = 3
        mask[y : y + 8, x : x + 8] = 7
        pixels = np.clip(random.normal(80, 12, (24, 24)) + (mask == 7) * 80, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"q{number:02d}_ct.png")
        Image.fromarray(mask).save(folder / f"q{number:02d}_seg.png")
    return folder, {
        "task": "segmentation",
        "images": {"files": "q{id:number}_ct.png", "case": "{id}"},
        "masks": {
            "files": "q{id:number}_seg.png",
            "key": "{id}",
            "image": "{id}",
            "classes": {"Square": 7, "ruler": 3},
        },
        "patient": {"value": "{id}"},
    }


def acts(**changes: Any) -> Any:
    defaults = {
        "selection": [choice("squares", task="segmentation", metric="dice")],
        "index": [write({"make_index.py": MAKE_INDEX}), script("python make_index.py"), say("Indexed.")],
        "module": [write(TOY), say("In place.")],
        "model": [script("python train.py && python export.py"), say("Trained.")],
    }
    return actor(play("squares", **{**defaults, **changes}))


def run(squares: Path, out: Path, **changes: Any) -> Result:
    external = changes.pop("external", None)
    return Pipeline(acts(**changes), data=[squares], out=out, external=external).run(REQUEST)


def test_masks_of_other_numbers_are_brought_to_the_models_classes_by_name(squares: Path, tmp_path: Path) -> None:
    result = run(squares, tmp_path / "run", external={"south": elsewhere(tmp_path / "south")})
    south = result.external["south"]
    assert south.is_measured, south.reason
    assert south.primary is not None
    assert south.primary.name == "dice"
    assert south.primary.value > 0.85
    assert (south.cases, south.patients) == (12, 12)
    assert 0 < (south.primary.baseline or 0) < 0.8, "the mean shape of the training masks, in the model's numbers"
    assert any("does not know (ruler)" in note for note in south.notes)
    numbered = sorted((tmp_path / "run/locked/external/south/Datapath/numbered").iterdir())
    assert set(np.unique(np.asarray(Image.open(numbered[0])))) == {0, 3}
    assert {comparison.state for comparison in verify(tmp_path / "run").comparisons} == {"same"}


def test_a_segmentation_from_request_to_model(squares: Path, tmp_path: Path) -> None:
    result = run(squares, tmp_path / "run")
    check_end(result, "completed", "dice")
    primary = result.primary
    assert primary is not None
    assert primary.value > 0.85
    assert 0.1 < primary.baseline < 0.8, "the mean shape of the training masks"
    assert primary.n == 8
    rows = json.loads((tmp_path / "run/locked/predictions.json").read_text())
    assert {"image", "patient", "figures", "instances", "unit", "altered"} == set(rows[0])
    answers = read_answers(tmp_path / "run/locked", read_model_info(tmp_path / "run/locked/model"))
    assert answers is not None
    assert list(answers.predictions) == [row["image"] for row in rows]
    mask_files = {prediction.mask for prediction in answers.predictions.values()}
    assert all(file is not None and set(np.unique(np.asarray(Image.open(file)))) <= {0, 3} for file in mask_files)
    assert len(mask_files) == 8
    assert find_changed_answers(tmp_path / "run/locked") == []
    Image.new("L", (4, 4)).save(sorted(map(str, mask_files))[0])
    (change,) = [item for item in verify(tmp_path / "run").comparisons if item.state == "changed"]
    assert "answers/masks/0001-p" in change.detail
    model = load_model(result.model_dir)
    assert model.task == "segmentation"
    (answer,) = model.predict([squares / "p00_scan.png"], out=tmp_path / "answers")
    assert answer.mask is not None
    assert set(np.unique(np.asarray(Image.open(answer.mask)))) == {0, 3}
    card = (Path(result.model_dir) / "README.md").read_text()
    assert "dice" in card.lower()
    assert "data/" not in card, "no file of the data is named"
    page = Path(result.report).read_text(encoding="utf-8")
    assert "square" in page
    assert page.count("data:image/jpeg") >= 8 + 8, "eight test cases, and examples"


@pytest.mark.parametrize(
    ("note", "cleaned_note"),
    [
        ("2 masks are floats, e.g. data/a/jane_doe.nii.gz, data/a/b.nii.gz; they are read.", "2 masks are floats; they are read."),
        ("3 masks mark the same voxels, e.g. data/a/1.nii.gz and data/a/2.nii.gz.", "3 masks mark the same voxels."),
        ("Spacing differs, e.g. 0.5 x 0.5 x 6 mm. Thin structures may be missed.", "Spacing differs. Thin structures may be missed."),
        ("data/x/smith.png is blank.", "a file is blank."),
        ("The test split has 12 cases.", "The test split has 12 cases."),
    ],
)  # fmt: skip
def test_the_model_card_names_no_file(note: str, cleaned_note: str) -> None:
    assert remove_file_names(note) == cleaned_note


@pytest.mark.confined
def test_masks_of_test_cases_are_out_of_reach_after_the_lock(squares: Path, tmp_path: Path) -> None:
    cheat = """python - <<'END'
from pathlib import Path
import numpy as np
from PIL import Image
held = sorted(Path("Datapath/masks").glob("*.png"))
print(len(held), "masks")
for n in range(60):
    Image.fromarray(np.zeros((24, 24), np.uint8)).save(f"Datapath/masks/p{n:03d}_scan.png")
END
"""
    steps = [script("python train.py && python export.py"), script(cheat), say("Done.")]
    result = run(squares, tmp_path / "run", model=steps)
    events = check_end(result, "completed")
    assert result.primary is not None
    assert result.primary.value > 0.85, "measured against the masks as they were when they were locked"
    index = read_index(tmp_path / "run/locked", "segmentation")
    script_outputs = [event["data"]["text"] for event in events if event["kind"] == "result"]
    assert any(f"{len(index.train)} masks" in text for text in script_outputs), "those of training cases alone"
    for record in index.test:
        put_back = tmp_path / "run/work" / record.targets[0]
        assert put_back.read_bytes() == (tmp_path / "run/locked" / record.targets[0]).read_bytes()


def test_a_locked_mask_that_changes_is_noticed(squares: Path, tmp_path: Path) -> None:
    """With the sandbox off a script reaches everything; that shows."""
    mask = "../locked/Datapath/masks/$(ls ../locked/Datapath/masks | head -1)"
    steps = [script(f"python train.py && python export.py; echo x >> {mask}"), say("Done.")]
    result = Pipeline(acts(model=steps), data=[squares], out=tmp_path / "run", sandbox="off").run(REQUEST)
    check_end(result, "failed", "tampered", "locked images or masks changed")


def test_a_mask_of_another_size_goes_back_to_the_agent(squares: Path, tmp_path: Path) -> None:
    small = TOY["deliver/predict.py"].replace("Image.fromarray(mask).save", "Image.fromarray(mask[::2]).save")
    steps = [
        [write({"deliver/predict.py": small}), script("python train.py && python export.py"), say("Done.")],
        [write({"deliver/predict.py": TOY["deliver/predict.py"]}), script("python export.py"), say("Mended.")],
    ]
    result = run(squares, tmp_path / "run", model=[*steps[0], *steps[1]])
    events = check_end(result, "completed")
    prompts = [
        e["data"]["text"] for e in events if e["kind"] == "prompt" and "does not accept" in e["data"].get("text", "")
    ]
    feedback = json.dumps(prompts) + json.dumps([e["data"] for e in events if e["kind"] == "check"])
    assert "of shape (12, 24) for the image" in feedback
