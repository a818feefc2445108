"""Whole runs in about three seconds: a small data set, a scripted model that plays all roles, and looks at what is left.

The scripted model is `m3b.llm.Scripted` with one step that reads from the conversation where it stands, so that the
same play goes on after a resume, in one process or in another.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from m3b.events import EVENT_KINDS
from m3b.messages import Message, Reply, ToolSpec
from m3b.run.result import Result
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call as call  # the tests take it from here
from m3b.testing.scripted_model import combine_calls, say
from project_kit import project, script, write

REQUEST = "Tell bright spots from plain tissue on these drawn scans"
STAGES = ("selection", "index", "module", "model")
KIT_FOLDER = Path(__file__).resolve().parent

# --- data --------------------------------------------------------------------------------------------------------


def draw(sick: bool, random: np.random.Generator) -> Image.Image:
    """A 24 x 24 grey picture; `sick` has a bright spot, mostly."""
    picture = random.normal(90, 12, (24, 24))
    if sick:
        x, y = random.integers(4, 14, 2)
        picture[y : y + 7, x : x + 7] += random.uniform(4, 50)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def make_spots(folder: Path, *, patients: int = 60, seed: int = 0) -> Path:
    """Class folders `plain/` and `spot/` with one picture a patient."""
    random = np.random.default_rng(seed)
    for number in range(patients):
        name = ("plain", "spot")[number % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        draw(name == "spot", random).save(folder / name / f"p{number:03d}.png")
    return folder


def make_table(folder: Path, rows: Sequence[Sequence[str]], columns: str = "image,patient_id,finding") -> Path:
    """Pictures in `images/`, labels in `cases.csv`; a row's picture is drawn unless its name begins with `absent`."""
    random = np.random.default_rng(1)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, _, finding in rows:
        if not name.startswith("absent"):
            draw(finding == "spot", random).save(folder / "images" / name)
    text = "\n".join([columns, *(",".join(row) for row in rows)])
    (folder / "cases.csv").write_text(text + "\n", encoding="utf-8")
    return folder


# --- what the scripted model writes --------------------------------------------------------------------------------

MAKE_INDEX = """
import json, sys
from pathlib import Path
root = next(p for p in sorted(Path("data").iterdir()))
cases = {"train": [], "test": []}
labels = sorted(p.name for p in root.iterdir() if p.is_dir())
for label in labels:
    for n, file in enumerate(sorted((root / label).glob("*.png"))):
        cases["test" if n % 3 == 0 else "train"].append(
            {"image_path": file.as_posix(), "labels": [label], "patient": file.stem})
Path("Datapath").mkdir(exist_ok=True)
for split, rows in cases.items():
    Path(f"Datapath/{split}.json").write_text(json.dumps(rows))
Path("Datapath/label_dict.json").write_text(json.dumps({name: k for k, name in enumerate(labels)}))
print({split: len(rows) for split, rows in cases.items()})
"""

FEATURES = '''
import numpy as np
from PIL import Image

def features(path):
    """64 numbers: the picture in 8 x 8, sorted, so that the place of a spot does not matter."""
    with Image.open(path) as image:
        small = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BOX), np.float32)
    return np.sort(small.ravel()) / 64 - 1.5
'''

TRAIN_PY = """
import json
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from features import features
rows = json.load(open("Datapath/train.json"))
names = list(json.load(open("Datapath/label_dict.json")))
x = np.stack([features(row["image_path"]) for row in rows])
x = np.hstack([x, np.ones((len(x), 1), np.float32)])
y = np.array([names.index(row["labels"][0]) for row in rows], np.float32)
w = np.zeros(x.shape[1], np.float32)
train = np.arange(len(x)) % 2 == 0
for _ in range(400):
    p = 1 / (1 + np.exp(-x[train] @ w))
    w -= 0.3 * (x[train].T @ (p - y[train]) / train.sum() + 0.001 * w)
Path("Logout").mkdir(exist_ok=True)
save_file({"w": w.astype(np.float32)}, "Logout/best.safetensors")
json.dump([{"image": row["image_path"]} for row, seen in zip(rows, train) if not seen],
          open("Logout/valid_predictions.json", "w"))
print("trained")
"""

PREDICT_PY = """
import argparse, json, sys
from pathlib import Path
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import numpy as np
from features import features
from safetensors.numpy import load_file

def predict(paths):
    w = load_file(HERE / "model.safetensors")["w"]
    names = json.loads((HERE / "config.json").read_text())["classes"]
    answers = []
    for path in paths:
        try:
            x = np.append(features(path), 1.0)
        except OSError as error:
            answers.append({"image": path, "error": str(error)})
            continue
        p = float(1 / (1 + np.exp(-x @ w)))
        answers.append({"image": path, "probabilities": {names[0]: 1 - p, names[1]: p}, "prediction": names[p > 0.5]})
    return answers

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="*")
    parser.add_argument("--list")
    parser.add_argument("-o")
    given = parser.parse_args()
    paths = given.images + (json.loads(Path(given.list).read_text()) if given.list else [])
    answers = predict(paths)
    text = json.dumps(answers)
    Path(given.o).write_text(text) if given.o else print(text)
    sys.exit(any("error" in answer for answer in answers))
"""

PROJECT = project(FEATURES, TRAIN_PY, PREDICT_PY, title="Spots", inputs=64, classes=2)


def choice(card: str, **changes: Any) -> Reply:
    """The Task Manager's closing words."""
    plan = "Class folders plain/ and spot/, one picture a patient; split by patient, a third for testing."
    raw = {"data_card": card, "task": "diagnosis", "metric": "auroc", "classes": [], "plan": plan, "reason": "It fits."}
    return say(json.dumps({**raw, **changes}))


TRAIN = "python train.py && python export.py"


def play(card: str = "spots", **changes: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """What the model does in each stage, step by step; the last step of a stage is repeated. `changes` replace stages."""
    acts: dict[str, Sequence[Any]] = {
        "selection": [choice(card)],
        "index": [combine_calls(write({"make_index.py": MAKE_INDEX}), script("python make_index.py")), say("Indexed.")],
        "module": [combine_calls(write(PROJECT), script("python plan.py")), say("The project is in place.")],
        "model": [script(TRAIN), say("Trained and exported.")],
    }
    return {**acts, **changes}


def actor(acts: Mapping[str, Sequence[Any]] | None = None, **options: Any) -> ScriptedModel:
    """A model that plays `acts`; it finds its place by the stage's message and its own replies since."""
    stage_acts = acts or play()

    def step(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Any:
        stage, replies = place(messages)
        act = stage_acts[stage]
        reply = act[min(replies, len(act) - 1)]
        return reply(messages, tools) if inspect.isfunction(reply) else reply

    return ScriptedModel([step], repeat=True, **options)


def place(messages: Sequence[Message]) -> tuple[str, int]:
    """The stage that a conversation is in, and how often the model has replied in it."""
    stage, replies = "", 0
    for message in messages:
        if message.role == "user" and message.text.startswith("Stage: "):
            stage, replies = message.text.splitlines()[0].removeprefix("Stage: "), 0
        elif message.role == "assistant":
            replies += 1
    return stage, replies


# --- looking at what is left ---------------------------------------------------------------------------------------


def journal(run: Path) -> list[dict[str, Any]]:
    """Every line of a journal, each of which must be a whole event."""
    raw = (run / "journal.jsonl").read_bytes()
    assert raw.endswith(b"\n"), "the journal's last line is torn"
    events = [json.loads(line) for line in raw.splitlines()]
    for event in events:
        assert set(event) - {"n", "prev"} == {"kind", "role", "at", "data"}
        assert event["kind"] in EVENT_KINDS
    return events


def of_kind(run: Path, kind: str, role: str | None = None) -> list[dict[str, Any]]:
    return [e["data"] for e in journal(run) if e["kind"] == kind and role in (None, e["role"])]


def left_running(run: Path) -> list[str]:
    """Processes, other than this one, that are in the run folder or were told of it."""
    mark = str(run)
    processes = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            cwd = ""
            with contextlib.suppress(OSError):
                cwd = os.readlink(folder / "cwd")
            if mark in line or cwd.startswith(mark):
                processes.append(f"{folder.name} {line}")
    return processes


def wait_until(true: Callable[[], object], seconds: float = 300.0, description: str = "") -> None:
    """Poll until something is true; a failure names what was waited for."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, (
            f"after {seconds:g} s still not: {description or inspect.getsource(true).strip()}"
        )
        time.sleep(0.05)


def check_left(run: Path, status: str) -> list[dict[str, Any]]:
    """What every end of a run must leave behind: a whole journal, the status in run.json, and nothing running."""
    events = journal(run)
    assert events[0]["kind"] == "run_started"
    assert events[-1]["kind"] == "run_ended"
    assert events[-1]["data"]["status"] == status
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["status"] == status
    assert record["result"]["status"] == status
    assert record["reason"].strip()
    assert Path(record["result"]["report"]).is_file()
    wait_until(lambda: not left_running(run), 60, f"nothing of the run is left running: {left_running(run)}")
    litter = [
        p.name for p in run.iterdir() if p.name.startswith((".output-", ".staged-", ".model", ".run.json", ".frozen"))
    ]
    assert litter == []
    return events


def check_end(result: Result, status: str, *words: str) -> list[dict[str, Any]]:
    """`check_left`, and a Result that says the same, in words that name what was found."""
    assert result.status == status, result.reason
    for word in words:
        assert word.lower() in result.reason.lower(), result.reason
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
    return check_left(Path(result.run_dir), status)


# --- as a provider for the `m3b` command ----------------------------------------------------------------------------


ACTS = """
import time
from pathlib import Path
from m3b.errors import LLMError
from m3b.testing.scripted_model import llm_error
from pipeline_kit import *
"""


def plugin(folder: Path, source: str) -> dict[str, str]:
    """A package that offers the provider `played`; returns the environment in which `m3b` finds it.

    `source` is Python that defines `acts`; everything of this module is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "played_acts.py").write_text(
        f"{ACTS}\n{source}\ndef factory(model, base_url):\n    return actor(acts, name='played:' + model)\n",
        encoding="utf-8",
    )
    info = folder / "played_acts-0.1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: played_acts\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[m3b.llm]\nplayed = played_acts:factory\n")
    return {**clean_environment(), "PYTHONPATH": f"{folder}:{KIT_FOLDER}:{KIT_FOLDER.parent}"}


def clean_environment() -> dict[str, str]:
    """The environment without anybody's keys."""
    return {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}


def m3b_command(*arguments: object) -> list[str]:
    """The installed command of this interpreter."""
    return [str(Path(sys.executable).with_name("m3b")), *map(str, arguments)]


def texts(run: Path) -> Iterator[str]:
    """Everything that a model was told in a run."""
    for event in journal(run):
        if event["kind"] in ("prompt", "message", "result"):
            yield event["data"].get("system", "") + event["data"]["text"]


def copy_run(source: Path, target: Path) -> Path:
    """A copy of a run folder, links as links, to go on with elsewhere."""
    shutil.copytree(source, target, symlinks=True)
    return target
