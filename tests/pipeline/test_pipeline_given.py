"""A reading that a person gives: it stands, narrows what is proposed, or is refused before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pipeline_kit import actor, of_kind, play, say, write

from m3b import Pipeline
from m3b.errors import LLMError, UsageError
from m3b.run.pipeline import resume
from m3b.testing import llm_error
from warm.commands import run_m3b

STOP = "Far enough for this test."
REQUEST = "Tell pneumonia from normal on chest X-rays"
SPEC = "Datapath/manifest.json"


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    """Sixty pictures of twenty people; a table with two columns of labels, persons under an odd name, and a split."""
    folder, rng = tmp_path / "xrays", np.random.default_rng(0)
    (folder / "img").mkdir(parents=True)
    rows = ["file,dx,second,who,part"]
    for number in range(60):
        level = 90 if number % 2 else 40
        picture = rng.integers(level, level + 60, (24, 24), np.uint8)
        Image.fromarray(picture).save(folder / "img" / f"s{number:03d}.png")
        labels = f"{['pneumonia', 'normal'][number % 2]},{['normal', 'pneumonia'][number // 3 % 2]}"
        rows.append(f"s{number:03d}.png,{labels},Q{number // 3:03d}x,{'test' if number // 3 % 5 == 0 else 'train'}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


def spec(column: str = "dx", **fields: Any) -> dict[str, Any]:
    return {"task": "diagnosis", "images": {"files": "img/{case}.png"},
            "tables": {"labels": {"files": "labels.csv", "key": "{file}", "image": "{name}"}},
            "labels": {"value": f"{{labels.{column}}}", "classes": {"normal": [], "pneumonia": []}},
            "patient": "{labels.who}", **fields}  # fmt: skip


def indexed(run: Path) -> dict[str, tuple[str, str, str]]:
    """Image -> label, patient, part; of the index as the run locked it."""
    cases = {}
    for part in ("train", "test"):
        for case in json.loads((run / "locked/Datapath" / f"{part}.json").read_text()):
            cases[Path(case["image_path"]).name] = (case["labels"][0], case["patient"], part)
    return cases


def by_rules(tmp_path: Path, data: Path, **options: Any) -> Any:
    llm = {"default": "rules", "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}
    return Pipeline(llm, data=[data], out=tmp_path / "run", **options).run(REQUEST)


def test_a_whole_reading_is_executed_by_m3b_for_the_rules(tmp_path: Path, xrays: Path) -> None:
    assert by_rules(tmp_path, xrays, manifest=spec("second")).reason == STOP
    cases = indexed(tmp_path / "run")
    assert len(cases) == 60
    assert cases["s000.png"][0] == "normal", "the second reader's column, which evidence alone would not choose"
    assert cases["s003.png"][:2] == ("pneumonia", "Q001x")
    briefing = [event["text"] for event in of_kind(tmp_path / "run", "prompt")][1]
    assert "The user gave this manifest, and it stands" in briefing


def test_what_an_agent_writes_does_not_replace_a_given_reading(tmp_path: Path, xrays: Path) -> None:
    acts = play("xrays", index=[write({SPEC: json.dumps(spec("dx"))}), say("I chose another column."), llm_error(LLMError, STOP)],
                module=[llm_error(LLMError, STOP)])  # fmt: skip
    Pipeline(actor(acts), data=[xrays], out=tmp_path / "run", manifest=spec("second")).run(REQUEST)
    assert indexed(tmp_path / "run")["s000.png"][0] == "normal"


def test_a_selection_keeps_to_the_task_of_a_given_reading(tmp_path: Path, xrays: Path) -> None:
    selection = {"data_card": "xrays", "task": "report", "metric": "bleu_4", "plan": "Write a text for every image in the folder.",
              "classes": [], "reason": ""}  # fmt: skip
    acts = play(selection=[say(json.dumps(selection)), llm_error(LLMError, STOP)])
    Pipeline(actor(acts), data=[xrays], out=tmp_path / "run", manifest=spec()).run(REQUEST)
    (check,) = of_kind(tmp_path / "run", "check")
    assert "The user gave a manifest of the data for diagnosis" in check["faults"][0]


def test_parts_of_a_reading_narrow_what_is_proposed(tmp_path: Path, xrays: Path) -> None:
    overrides: Any = {
        "label_column": "second",
        "patient_column": "who",
        "split": "part",
        "classes": ["normal", "pneumonia"],
    }
    assert by_rules(tmp_path, xrays, overrides=overrides).reason == STOP
    cases = indexed(tmp_path / "run")
    assert cases["s000.png"] == ("normal", "Q000x", "test")
    assert {patient for _, patient, part in cases.values() if part == "test"} == {"Q000x", "Q005x", "Q010x", "Q015x"}


def test_a_given_reading_is_kept_for_a_resumed_run(tmp_path: Path, xrays: Path) -> None:
    llm = {"default": "rules", "data_engineer": actor(play(index=[llm_error(LLMError, STOP)]))}
    Pipeline(llm, data=[xrays], out=tmp_path / "run", manifest=spec("second")).run(REQUEST)
    resume(tmp_path / "run", {"default": "rules", "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))})
    assert indexed(tmp_path / "run")["s000.png"][0] == "normal"


@pytest.mark.parametrize(
    ("options", "expected_text"),
    [
        ({"overrides": {"labels": "cases.csv"}}, "there is no table 'cases.csv' below"),
        ({"overrides": {"labels": "labels.csv", "label_column": "finding"}},
         "labels.csv has no column 'finding'; columns: file, dx, second, who, part"),
        ({"overrides": {"patient_column": "pid"}}, "has a column 'pid'; columns: file,"),
        ({"overrides": {"image_column": "path"}}, "has a column 'path'"),
        ({"overrides": {"masks": "masks"}}, "no file is in or matches 'masks'; folders: img"),
        ({"overrides": {"split": "fold"}}, "'fold' is no column and no file"),
        ({"overrides": {"split": "folders"}}, "no folder is called after a part"),
        ({"overrides": {"classes": ["a", "A"]}}, "names a class twice"),
        ({"overrides": {"colour": "red"}}, "`overrides` has no part 'colour'"),
        ({"manifest": spec(), "overrides": {"split": "part"}}, "--manifest is a whole manifest; leave out --split"),
        ({"manifest": {"task": "diagnosis"}}, "images is missing"),
        ({"manifest": spec("finding")}, "there is no column {labels.finding}"),
        ({"manifest": {**spec(), "images": {"files": "pictures/{x}.png"}}}, "no file"),
        ({"manifest": {**spec(), "patient": "{person}"}}, "there is no column {person}"),
        ({"manifest": {**spec(), "split": {"value": "{stem}", "train": ["a"], "test": ["b"]}}}, "split"),
        ({"manifest": {**spec(), "labels": {"value": "{labels.dx}", "classes": {"normal": [], "covid": []}}}},
         "covid"),
        ({"manifest": "no/such/manifest.json"}, "cannot be read: No such file"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_what_is_not_there_is_refused_before_anything_is_made(
    tmp_path: Path, xrays: Path, options: dict[str, Any], expected_text: str
) -> None:
    with pytest.raises(UsageError) as refused:
        by_rules(tmp_path, xrays, **options)
    assert expected_text in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_reading_is_of_one_folder(tmp_path: Path, xrays: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="one data folder; --data names 2"):
        Pipeline("rules", data=[xrays, tmp_path / "other"], out=tmp_path / "run", manifest=spec()).run(REQUEST)


def test_classes_that_no_reading_has_end_the_run_with_what_there_is(tmp_path: Path, xrays: Path) -> None:
    result = by_rules(tmp_path, xrays, overrides={"classes": ["covid", "normal"]})
    assert result.status == "no_dataset"
    assert "No manifest of the folder keeps to --classes covid, normal" in result.reason
    assert "{labels.dx}" in result.reason


def test_masks_and_split_on_the_command_line(tmp_path: Path) -> None:
    data, rng = tmp_path / "polyps", np.random.default_rng(3)
    for number in range(16):
        image, mask = rng.integers(60, 120, (32, 32), np.uint8), np.zeros((32, 32), np.uint8)
        top = int(rng.integers(2, 16))
        mask[top : top + 10, 4:18] = 255
        second_mask = np.zeros_like(mask)
        second_mask[4:18, top : top + 10] = 255
        for name, array in (("images", image), ("first", mask), ("second", second_mask)):
            (data / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(data / name / f"p{number:02d}.png")
    command = ("look", data, "Segment polyps in endoscopy images")
    for option in (str(data / "second"), "second/*.png"):
        result = run_m3b(*command, "--masks", option, "-o", tmp_path / "s.json", "--force")
        assert result.returncode == 0, result.stdout + result.stderr
        manifest = json.loads((tmp_path / "s.json").read_text())
        assert manifest["masks"]["files"].startswith("second/") or manifest["masks"]["exclude"] == ["first/*"]
        assert "16 files are left out" in result.stdout
    again = run_m3b(*command, "--manifest", tmp_path / "s.json")
    assert "the manifest that the user gave" in again.stdout
    assert "cases for training" in again.stdout
    wrong = run_m3b(*command, "--masks", "third")
    assert wrong.returncode == 2
    assert "folders: first, images, second" in wrong.stderr
