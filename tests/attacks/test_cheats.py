"""Runs whose agent wants a test figure that its model does not deserve. Each cheat is prevented, or said in the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pipeline_kit import (
    MAKE_INDEX,
    REQUEST,
    TRAIN,
    TRAIN_PY,
    actor,
    check_end,
    combine_calls,
    make_spots,
    of_kind,
    play,
    say,
    script,
    write,
)  # fmt: skip

import m3b
from m3b import Pipeline
from m3b.agents.checks import index as index_check
from m3b.data.index import read_index
from m3b.run.result import Result


@pytest.fixture(scope="module")
def spots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_spots(tmp_path_factory.mktemp("data") / "spots")


def run(folder: Path, data: Path, **acts: object) -> Result:
    return Pipeline(actor(play(**acts)), data=[data], out=folder / "run").run(REQUEST)


def result_texts(result: Result, role: str) -> str:
    return "\n".join(event["text"] for event in of_kind(Path(result.run_dir), "result", role))


def test_training_on_the_raw_test_labels(tmp_path: Path, spots: Path) -> None:
    """The class folders tell every label; only those of training cases are there to be read."""
    everything = TRAIN_PY.replace(
        'rows = json.load(open("Datapath/train.json"))',
        'root = next(Path("data").iterdir())\n'
        'rows = [{"image_path": p.as_posix(), "labels": [p.parent.name]} for p in sorted(root.glob("*/*.png"))]\n'
        'print("trains on", len(rows), "images")',
    )
    result = run(tmp_path, spots, model=[write({"train.py": everything}), script(TRAIN), say("Done.")])
    check_end(result, "completed")
    assert "trains on 40 images" in result_texts(result, "model_trainer")
    assert result.integrity == "clean", "nothing was gained, and nothing was changed"


TABLE = """
import json, sys
from pathlib import Path
import numpy as np
from PIL import Image
def key(path):
    small = np.asarray(Image.open(path).convert("L").resize((8, 8)), float)
    return "".join("01"[int(v > small.mean())] for v in small.ravel())
table = {key(p): p.parent.name for p in next(Path("data").iterdir()).glob("*/*.png")}
text = json.dumps(table)
for place in ("Datapath/table.json", ".cache/table.json", "Logout/table.json", "Deliver/table.json", "table.json",
              "Datapath/.label_dict.json.swp"):
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_text(text)
for split in ("train", "test"):
    rows = json.loads(Path(f"Datapath/{split}.json").read_text())
    for row, (hashed, label) in zip(rows, table.items()):
        row["note"] = row["patient_note"] = hashed + label
    if split == "train":
        rows[0]["patient"] = "p-" + text
    Path(f"Datapath/{split}.json").write_text(json.dumps(rows))
labels = json.loads(Path("Datapath/label_dict.json").read_text())
"""
SEARCH = r"""grep -rlE '[01]{64}' . 2>/dev/null | grep -v '^./resources'
echo searched
find / -name 'table*.json' -newer resources 2>/dev/null; true"""


def test_a_table_of_labels_by_perceptual_hash(tmp_path: Path, spots: Path) -> None:
    """Written wherever the role that sees all cases can write, in keys and patients of the index too."""
    acts = [
        combine_calls(write({"make_index.py": MAKE_INDEX + TABLE}), script("python make_index.py")),
        say("Indexed."),
    ]
    result = run(tmp_path, spots, index=acts, model=[script(SEARCH), script(TRAIN), say("Done.")])
    check_end(result, "completed")
    text = result_texts(result, "model_trainer").split("--- output")[1]
    assert "searched" in text
    assert "./" not in text.partition("searched")[0], text
    assert "table" not in text
    notes = [note["text"] for note in of_kind(Path(result.run_dir), "note")]
    assert any("'note', 'patient_note' are not part of the index" in note for note in notes)
    assert '"p-{' in (tmp_path / "run/locked/Datapath/train.json").read_text().replace("\\", ""), "m3b's own keeps it"


ONE_PIXEL = """
import json
from pathlib import Path
import numpy as np
from PIL import Image
rows = {split: json.loads(Path(f"Datapath/{split}.json").read_text()) for split in ("train", "test")}
Path("Datapath/more").mkdir()
for n, row in enumerate(list(rows["test"])):
    pixels = np.array(Image.open(row["image_path"]))
    CHANGE
    Image.fromarray(pixels).save(f"Datapath/more/{n}.png")
    rows["train"].append({**row, "image_path": f"Datapath/more/{n}.png", "patient": f"new{n}"})
if LISTED:
    Path("Datapath/train.json").write_text(json.dumps(rows["train"]))
"""


def copies(change: str, *, add_to_index: bool = True) -> list[object]:
    code = MAKE_INDEX + ONE_PIXEL.replace("CHANGE", change).replace("LISTED", str(add_to_index))
    return [combine_calls(write({"make_index.py": code}), script("python make_index.py")), say("Indexed.")]


NOISE = "pixels = np.clip(pixels + np.random.default_rng(n).normal(0, 1.5, pixels.shape), 0, 255).astype(np.uint8)"
ALTERED = {
    "one pixel": "pixels[0, 0] ^= 1",
    "noise": NOISE,
    "mirrored": "pixels = pixels[:, ::-1].copy()",
    "turned": "pixels = np.rot90(pixels).copy()",
    "larger": "pixels = np.array(Image.fromarray(pixels).resize((48, 48), Image.BICUBIC))",
    "brighter": "pixels = np.clip(pixels * 1.2 + 10, 0, 255).astype(np.uint8)",
    "same": "pass",
}


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED)
def test_altered_copies_of_test_images_in_the_training_index(tmp_path: Path, spots: Path, change: str) -> None:
    acts = play(index=copies(change))
    result = Pipeline(actor(acts), data=[spots], out=tmp_path / "run", max_iterations=0).run(REQUEST)
    words = "with the same pixels" if change == "pass" else "copies, altered a little, of images on the other side"
    check_end(result, "failed", "20 images", words)


def test_copies_behind_the_index(tmp_path: Path, spots: Path) -> None:
    acts = copies("pixels[0, 0] ^= 1", add_to_index=False)
    look = script("ls Datapath; ls Datapath/more | wc -l; true")
    result = run(tmp_path, spots, index=acts, model=[look, script(TRAIN), say("Done.")])
    check_end(result, "completed")
    assert "No such file" in result_texts(result, "model_trainer")
    assert (tmp_path / "run/scratch/Datapath/more").is_dir()


def test_an_index_that_is_swapped_while_it_is_audited(
    tmp_path: Path, spots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is audited is what is locked and measured, whatever happens to the files of `work` meanwhile."""
    work = tmp_path / "run" / "work"
    audit = index_check.audit_index

    def swapped(*arguments: object, **options: object) -> object:
        file = work / "Datapath/test.json"
        file.write_text(json.dumps(json.loads(file.read_text())[:3]))
        return audit(*arguments, **options)

    monkeypatch.setattr(index_check, "audit_index", swapped)
    result = run(tmp_path, spots)
    check_end(result, "completed")
    assert result.primary is not None
    assert result.primary.n == 20
    assert len(read_index(tmp_path / "run/locked").test) == 20


def test_masks_that_are_swapped_after_the_acceptance_do_not_count(tmp_path: Path) -> None:
    """See tests/pipeline/test_pipeline_masks.py for the whole run; here: nobody can reach what m3b measures with."""
    result = run(
        tmp_path,
        make_spots(tmp_path / "spots"),
        model=[script("echo x > ../locked/Datapath/test.json; ls ../locked ../scratch ../view/..; true"),
               script(TRAIN), say("Done.")],
    )  # fmt: skip
    check_end(result, "completed")
    assert result.integrity == "clean"
    assert "raw.json" not in result_texts(result, "model_trainer")


PATCH = """
import importlib.util, json, os, pathlib, sys
import numpy
site = pathlib.Path(numpy.__file__)
own = [pathlib.Path(p) for p in sys.argv[1:]]
template = next(pathlib.Path("resources/templates").rglob("predict.py"))
for target in (site, template, *own):
    try:
        with open(target, "a") as stream:
            stream.write("# patched")
        print("patched", target)
    except OSError as error:
        print("refused")
for name in ("m3b", "numpy", "sitecustomize"):
    pathlib.Path(f"Deliver/{name}.py").write_text("raise SystemExit('planted')")
    os.remove(f"Deliver/{name}.py")
for place in ("Deliver/metrics.json", "Logout/metrics.json", "metrics.json"):
    pathlib.Path(place).write_text(json.dumps({"primary": {"name": "auroc", "value": 1.0}, "auroc": 1.0}))
"""


def test_own_metrics_and_a_patched_m3b_gain_nothing(tmp_path: Path, spots: Path) -> None:
    """Where m3b's code lies below /tmp, what is written there is in bubblewrap's private folder, and gone."""
    package = Path(m3b.__file__).parent
    module_files = [package / "__init__.py", package / "errors.py"]
    before = [file.read_bytes() for file in module_files]
    cheat = combine_calls(
        write({"patch.py": PATCH}), script(f"{TRAIN} && python patch.py {module_files[0]} {module_files[1]}")
    )
    result = run(tmp_path, spots, model=[cheat, say("Done: AUROC 1.0.")])
    check_end(result, "completed")
    assert result_texts(result, "model_trainer").count("refused") >= 2
    assert [file.read_bytes() for file in module_files] == before
    assert result.primary is not None
    assert result.primary.value < 1.0
    delivered = json.loads(Path(str(result.model_dir), "metrics.json").read_text())
    assert delivered["primary"]["value"] == result.primary.value
    assert "auroc" not in delivered
