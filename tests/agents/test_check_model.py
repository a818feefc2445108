"""What the last role hands over: a deliverable that is run on cases which it has not seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from m3b.agents.artifacts import Selection, TrainedModel
from m3b.agents.check_result import CheckResult
from m3b.agents.checks.model import (
    DELIVERABLE_FOLDER,
    ChooseTestCases,
    LockedTestResult,
    check_model,
    freeze_deliverable,
    read_validation_records,
    score_validation,
)
from m3b.data.index import Index, Record
from m3b.errors import SandboxError
from m3b.isolation.sandbox import choose_sandbox
from m3b.models import FrozenCopy
from m3b.run.folder import RunFolder
from m3b.run.model_validation import FAILED_OUTPUT_FILE, keep_failed_output
from m3b.run.sandbox_executor import SandboxExecutor
from sandbox_kit import LANDLOCK

PREDICT = """
import argparse, json
from pathlib import Path
import numpy as np
from PIL import Image
from safetensors.numpy import load_file

here = Path(__file__).parent
weight = float(load_file(here / "model.safetensors")["w"][0])
parser = argparse.ArgumentParser()
parser.add_argument("--list")
parser.add_argument("-o")
asked = parser.parse_args()
rows = []
for path in json.loads(Path(asked.list).read_text()):
    bright = float(np.asarray(Image.open(path)).mean())
    p = float(1 / (1 + np.exp(-weight * (bright - 128))))
    rows.append({"image": path, "probabilities": {"dark": 1 - p, "bright": p}})
Path(asked.o).write_text(json.dumps(rows))
"""
CHOICE = Selection("Cards", "diagnosis", "auroc", "plan")


def make_deliverable(folder: Path, *, predict: str = PREDICT, weight: float = 0.1) -> Path:
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(predict)
    (folder / "config.json").write_text('{"classes": ["dark", "bright"], "inputs": [".png"]}')
    (folder / "README.md").write_text("# A model of brightness")
    (folder / "requirements.txt").write_text("numpy\npillow\nsafetensors\n")
    save_file({"w": np.array([weight], np.float32)}, folder / "model.safetensors")
    return folder


class Desk:
    """A run folder with images, a locked index, and m3b's own way of running predict.py."""

    def __init__(self, folder: Path, sandbox: str = "auto") -> None:
        self.run = RunFolder.create(folder)
        self.executor = SandboxExecutor(choose_sandbox(sandbox), self.run, (), lambda: False)
        self.kept: list[LockedTestResult] = []
        random = np.random.default_rng(3)
        (self.run.locked / "data").mkdir()
        self.records = []
        for number in range(70):
            bright = number % 2
            pixels = np.clip(random.normal(80 + 90 * bright, 15, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(self.run.locked / "data" / f"{number}.png")
            self.records.append(Record(f"data/{number}.png", (("dark", "bright")[bright],), f"p{number}"))
        self.index = Index(tuple(self.records[:60]), tuple(self.records[60:]), ("dark", "bright"))

    @property
    def folder(self) -> Path:
        return self.run.work / DELIVERABLE_FOLDER

    def held_out(self, value: Any) -> None:
        (self.run.work / "Logout").mkdir(exist_ok=True)
        (self.run.work / "Logout/valid_predictions.json").write_text(json.dumps(value))

    def check(
        self,
        acceptable: tuple[float, float | None] | None = None,
        choose_test_cases: ChooseTestCases | None = None,
    ) -> CheckResult:
        predict, keep = self.executor.predict, self.kept.append
        frozen = self.frozen()
        return check_model(
            self.run.work,
            frozen,
            CHOICE,
            self.index,
            predict,
            keep,
            acceptable,
            root=self.run.locked,
            keep_failed_output=self.keep_failed_output,
            choose_test_cases=choose_test_cases,
        )

    def keep_failed_output(self, output: str) -> Path:
        return keep_failed_output(self.run.locked, output)

    def frozen(self) -> FrozenCopy | None:
        return freeze_deliverable(self.run.work, self.run.measured_model)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "run")


def test_the_progress_of_predicting_is_reported(desk: Desk) -> None:
    make_deliverable(desk.folder)
    counts: list[tuple[int, int]] = []
    desk.executor.on_progress = lambda done, total: counts.append((done, total))
    desk.executor.predict(desk.folder, desk.records, desk.index)
    total = counts[0][1]
    assert total >= len(desk.records)
    assert counts[0] == (0, total)
    assert counts[-1] == (total, total)
    assert len(counts) >= 3


def test_a_good_model_in_the_sandbox(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "run", "auto")
    make_deliverable(desk.folder)
    desk.held_out([{"image": f"data/{number}.png"} for number in range(30)])
    verdict = desk.check((0.9, None))
    assert verdict.is_accepted, verdict.agent_messages
    assert verdict.warnings == ()
    model = verdict.artifact
    assert isinstance(model, TrainedModel)
    assert model.files == 5
    assert (model.validation["name"], model.validation["value"]) == ("auroc", 1.0)
    (trial,) = desk.kept
    assert [row["image"] for row in trial.rows] == [record.key for record in desk.index.test]
    for row in trial.rows:
        assert max(row["probabilities"], key=row["probabilities"].get) == row["labels"][0]
    assert "test" not in json.dumps(model.validation)


def test_a_model_is_not_measured_on_what_another_training_held_out(desk: Desk) -> None:
    """A first model was put back, and the held-out cases of the second were among those that it had learnt."""
    place = make_deliverable(desk.folder)
    desk.held_out([{"image": f"data/{number}.png"} for number in range(30)])
    first = desk.run.work / "Logout/valid_predictions.json"
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "held_out": sha256(first.read_bytes()).hexdigest()}))
    assert desk.check().is_accepted
    desk.held_out([{"image": f"data/{number}.png"} for number in range(30, 60)])
    verdict = desk.check()
    assert not verdict.is_accepted
    assert verdict.issues[0].code == "other_training"
    desk.held_out([{"image": f"data/{number}.png"} for number in range(30)])
    assert desk.check().is_accepted


SEVERAL = PREDICT.replace(
    'weight = float(load_file(here / "model.safetensors")["w"][0])',
    'names = json.loads((here / "config.json").read_text())["weights"]\n'
    'weight = float(sum(load_file(here / name)["w"][0] for name in names)) / len(names)',
)


def test_networks_of_folds_answer_for_the_cases_that_they_have_not_seen(desk: Desk) -> None:
    """All networks together had seen every "held-out" case, and the validation figure flattered them."""
    place = make_deliverable(desk.folder, predict=SEVERAL)
    (place / "model.safetensors").unlink()
    for number, weight in enumerate((0.3, -0.1)):  # the second one is wrong wherever it is asked alone
        save_file({"w": np.array([weight], np.float32)}, place / f"model-{number + 1}-of-2.safetensors")
    config = {"classes": ["dark", "bright"], "weights": ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]}
    (place / "config.json").write_text(json.dumps(config))
    rows = [{"image": record.key, "fold": number // 30} for number, record in enumerate(desk.index.train)]
    desk.held_out([{"image": row["image"]} for row in rows])
    assert desk.check().artifact.validation["value"] == 1.0, "together they are right"
    desk.held_out([{**row, "fold": 0} for row in rows])
    assert desk.check().artifact.validation["value"] == 1.0
    desk.held_out([{**row, "fold": 1} for row in rows])
    assert desk.check().artifact.validation["value"] == 0.0
    desk.held_out(rows)
    assert 0.3 < desk.check().artifact.validation["value"] < 0.9, "half of them are answered wrongly"
    assert [row["image"] for row in desk.kept[-1].rows] == [record.key for record in desk.index.test]
    assert not list(desk.run.path.glob(".staged-*"))
    desk.held_out([{**row, "fold": 7} for row in rows])
    assert desk.check().artifact.validation["value"] == 1.0, "a fold without a network is none"


def test_a_refit_is_measured_by_the_networks_of_its_folds(desk: Desk) -> None:
    """The delivered network has seen every case; those that have not lie in the project and answer in its place."""
    place = make_deliverable(desk.folder)
    (place / "config.json").write_text(
        json.dumps({"classes": ["dark", "bright"], "weights": ["model.safetensors"], "refit": True})
    )
    rows = [{"image": record.key, "fold": number // 30} for number, record in enumerate(desk.index.train)]
    desk.held_out(rows)
    logout = desk.run.work / "Logout"
    verdict = desk.check()
    assert not verdict.is_accepted
    assert verdict.issues[0].code == "refit_unmeasurable"
    for number, weight in enumerate((0.3, -0.1)):  # the second one is wrong wherever it is asked
        (logout / f"fold{number}").mkdir()
        save_file({"w": np.array([weight], np.float32)}, logout / f"fold{number}/best.safetensors")
    names = [f"Logout/fold{number}/best.safetensors" for number in range(2)]
    (logout / "members.json").write_text(json.dumps({"weights": names, "refit": True}))
    verdict = desk.check()
    assert verdict.is_accepted, verdict.agent_messages
    assert verdict.artifact.refit
    assert 0.3 < verdict.artifact.validation["value"] < 0.9, "half of them are answered wrongly"
    test = {row["image"]: max(row["probabilities"], key=row["probabilities"].get) for row in desk.kept[-1].rows}
    assert all(test[record.key] == record.labels[0] for record in desk.index.test), "test cases hear the delivered one"
    assert not list(desk.run.path.glob(".staged-*"))
    (logout / "members.json").write_text(json.dumps({"weights": [names[0], "Logout/../../locked/x"], "refit": True}))
    assert desk.check().issues[0].code == "refit_unmeasurable"


def test_a_model_without_skill_is_accepted_with_a_word(desk: Desk) -> None:
    """Whether it is a success is decided at delivery; here its agent hears what m3b measured."""
    make_deliverable(desk.folder, weight=0.0)
    desk.held_out([{"image": record.key} for record in desk.index.train])
    verdict = desk.check((0.9, None))
    assert verdict.is_accepted
    assert "On the validation cases m3b measures: auroc 0.5" in verdict.warnings[0]


def test_the_baseline_of_folds_is_fitted_on_all_cases(tmp_path: Path) -> None:
    """A project with folds holds out every case once, which leaves none for the image-blind baseline alone."""
    records = tuple(Record(f"{n}.png", (), f"p{n}", extra={"value": float(n % 9)}) for n in range(60))
    index = Index(records, (), ("density (g/cm2)",), "regression")
    rows = [
        {"image": r.key, "patient": r.patient, "true": r.extra["value"], "predicted": r.extra["value"]} for r in records
    ]
    choice = Selection("Cards", "regression", "mae", "plan")
    scores = score_validation(tmp_path, records, rows, index, choice, None)
    assert scores is not None
    assert scores.primary.baseline == pytest.approx(np.mean([abs(n % 9 - 4) for n in range(60)]))


def test_without_validation_cases_it_says_so(desk: Desk) -> None:
    make_deliverable(desk.folder)
    verdict = desk.check()
    assert verdict.is_accepted
    assert "valid_predictions.json names none" in verdict.warnings[0]
    assert verdict.artifact.validation == {}


def test_no_folder(desk: Desk) -> None:
    assert desk.check().issues[0].code == "no_deliverable"


def test_an_incomplete_folder_is_never_run(desk: Desk) -> None:
    folder = make_deliverable(desk.folder, predict="raise SystemExit('it ran')")
    (folder / "model.safetensors").unlink()
    (folder / "model.pt").write_bytes(b"x")
    faults = " ".join(desk.check().agent_messages)
    assert "no weights" in faults
    assert "pickle" in faults
    assert "it ran" not in faults


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        ("raise SystemExit('no such thing')", "no such thing"),
        ("import nowhere", "No module named 'nowhere'"),
        (PREDICT.replace("1 - p", "float('nan')"), "not a number from 0 to 1"),
        (PREDICT.replace("1 - p", "0.9 - p / 2"), "sum to"),
        (PREDICT.replace("rows.append", "if len(rows) < 3: rows.append"), "3 predictions for 4 images"),
        (PREDICT.replace('"dark"', '"grey"'), "['bright', 'grey']"),
        ("open('../../../../data/0.png').read()" + PREDICT, "No such file"),
    ],
)
def test_a_predict_that_does_not_do_its_work(desk: Desk, predict: str, words: str) -> None:
    make_deliverable(desk.folder, predict=predict)
    verdict = desk.check()
    assert words in verdict.agent_messages[0]
    assert verdict.issues[0].code == "predict_fails"
    assert desk.kept == []


@pytest.mark.parametrize("failure", ["raise ValueError('malignant7')", "raise type('Malignant7', (Exception,), {})()"])
def test_output_on_test_cases_reaches_the_user_alone(desk: Desk, failure: str) -> None:
    """Its output on test cases was shown to agents, who could read labels or names out of it."""
    failing_code = (
        f"asked_paths = json.loads(Path(asked.list).read_text())\nif len(asked_paths) > 4:\n    {failure}\nrows = []"
    )
    make_deliverable(desk.folder, predict=PREDICT.replace("rows = []", failing_code))
    verdict = desk.check()
    assert verdict.issues[0].code == "predict_fails_on_test"
    texts = " ".join([verdict.issues[0].agent_message, verdict.issues[0].user_message])
    assert "malignant7" not in texts.lower()
    kept_file = desk.run.locked / FAILED_OUTPUT_FILE
    assert "malignant7" in kept_file.read_text().lower()
    assert str(kept_file) in verdict.issues[0].user_message
    assert kept_file.name not in verdict.issues[0].agent_message
    assert ("ValueError" in texts) is failure.startswith("raise ValueError")
    assert desk.kept == []


def test_a_predict_that_works_runs_once(desk: Desk) -> None:
    """A run of its own for four cases, which were then predicted again, took four seconds."""
    make_deliverable(desk.folder)
    desk.held_out([{"image": record.key} for record in desk.index.train[:6]])
    counts: list[tuple[int, int]] = []
    desk.executor.on_progress = lambda done, total: counts.append((done, total))
    assert desk.check().is_accepted
    assert len([done for done, _ in counts if done == 0]) == 1


def test_classes_of_another_index(desk: Desk) -> None:
    make_deliverable(desk.folder)
    other_index = replace(desk.index, classes=("dark", "light"), values={})
    verdict = check_model(
        desk.run.work,
        desk.frozen(),
        CHOICE,
        other_index,
        desk.executor.predict,
        desk.kept.append,
        None,
        root=desk.run.locked,
        keep_failed_output=desk.keep_failed_output,
    )
    assert verdict.issues[0].code == "other_model"
    assert desk.kept == []


# --- validation cases --------------------------------------------------------------------------------------------


def test_models_are_compared_on_the_cases_that_the_first_training_held_out(desk: Desk) -> None:
    """If a longer training scored more of its held-out cases; not if it held out other cases."""
    work, images = desk.run.work, [record.key for record in desk.index.train]
    (work / "Logout").mkdir()
    for name, keys in (("valid_predictions", images[:3]), ("first", images[:2]), ("others", images[2:4])):
        (work / f"Logout/{name}.json").write_text(json.dumps([{"image": key} for key in keys]))

    def read_keys(file: str) -> list[str]:
        return [record.key for record in read_validation_records(work, desk.index, file)]

    assert read_keys("") == read_keys("Logout/others.json") == read_keys("Logout/missing.json") == images[:3]
    assert read_keys("Logout/first.json") == images[:2]


def test_only_training_cases_count_as_validation(desk: Desk) -> None:
    desk.held_out(
        [{"image": "data/1.png"}, {"image": "data/65.png"}, {"image": "data/none.png"}, {"image": ["a", "b"]}]
    )
    assert [record.key for record in read_validation_records(desk.run.work, desk.index)] == ["data/1.png"]


@pytest.mark.parametrize("value", [None, 3, "text", {"image": "data/1.png"}, [1], [{"x": 1}], [{"image": 3}]])
def test_whatever_the_project_writes_there(desk: Desk, value: Any) -> None:
    desk.held_out(value)
    assert read_validation_records(desk.run.work, desk.index) == []


def test_too_few_validation_cases_say_nothing(desk: Desk) -> None:
    make_deliverable(desk.folder)
    desk.held_out([{"image": "data/0.png"}])
    verdict = desk.check()
    assert verdict.is_accepted
    assert verdict.warnings


# --- what predict.py may talk to ---------------------------------------------------------------------------------

LISTENS = """
import os, socket
try:
    with socket.socket(socket.AF_UNIX) as mine: mine.bind(os.environ['TMPDIR'] + '/door')
    open('/dev/shm/m3b-seen', 'w')
except OSError as error:
    raise SystemExit(f'refused: {type(error).__name__}')
"""


@pytest.mark.parametrize("make", [LANDLOCK, "bubblewrap"])
def test_predict_has_no_channel_to_anybody(tmp_path: Path, make: str) -> None:
    try:
        desk = Desk(tmp_path / "run", make)
    except SandboxError as error:
        pytest.skip(str(error))
    make_deliverable(desk.folder, predict=LISTENS + PREDICT)
    faults = " ".join(desk.check().agent_messages)
    assert not Path("/dev/shm/m3b-seen").exists()
    if make == "landlock":
        assert "refused: PermissionError" in faults
        assert "it must predict without worker processes" in faults
    else:
        assert faults == "", "both are its own there, and nobody else sees them"


def test_only_the_chosen_test_cases_are_measured(desk: Desk) -> None:
    make_deliverable(desk.folder)
    desk.held_out([{"image": record.reference} for record in desk.records[:6]])
    timed: list[int] = []

    def choose(model: Path, training_cases: Sequence[Record]) -> Sequence[Record]:
        timed.append(len(training_cases))
        return desk.index.test[2:6]

    assert desk.check(choose_test_cases=choose).is_accepted
    assert timed == [6]
    assert [row["image"] for row in desk.kept[0].rows] == [record.key for record in desk.index.test[2:6]]
