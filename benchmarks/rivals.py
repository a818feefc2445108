"""Run m3b and the external systems of M3Bench under one judge, with one scripted model server, and print the table.

Every program gets the same task (CT-Kidney, drawn), the same limits and a scripted model that answers in the form that the
program expects: it makes each program write and run the same training script. So the hidden figures must agree, and the
differences in requests and tokens are those of the programs. m3b gets a scripted model too, with the same network.

    python benchmarks/rivals.py                     systems that can be started here
    python benchmarks/rivals.py --claim training    the script claims its figure on training cases

Programs are found on the PATH, and in the folders of `M3B_OUTSIDE_PATH`; each may have an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "bench"))

from bench_kit import FEATURES, MAKE_INDEX, PREDICT_PY, TRAIN_PY, actor, by_id
from program_replies import REPLIES, Steps

from m3b.bench.cell import Cell, run_cell
from m3b.bench.render import to_text
from m3b.bench.systems import System
from m3b.bench.systems.external_systems import EXTERNAL_SYSTEMS
from m3b.bench.systems.pipeline_systems import PipelineSystem
from m3b.bench.tables.system_comparison import make_comparison_table
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import say

PATIENTS = 320
MAX_REQUESTS = 40
FULL_STEPS = 600

SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path
os.chdir(Path(sys.argv[1] if len(sys.argv) > 1 else "Deliver").parent)
for name, text in json.loads({files!r}).items():
    Path(name).write_text(text)
for name in ("make_index.py", "train.py", "finish.py"):
    subprocess.run([sys.executable, name], check=True)
"""

FINISH = """
import json, shutil
from pathlib import Path
import numpy as np
from sklearn.metrics import roc_auc_score
out = Path("Deliver")
out.mkdir(exist_ok=True)
shutil.copy("Logout/best.safetensors", out / "model.safetensors")
for name in ("features.py", "predict.py"):
    shutil.copy(name, out / name)
names = list(json.load(open("Datapath/label_dict.json")))
(out / "config.json").write_text(json.dumps({"task": "diagnosis", "classes": names, "multi_label": False}))
(out / "README.md").write_text("# Kidneys\\n")
(out / "requirements.txt").write_text("numpy\\nsafetensors\\npillow\\n")
import sys
sys.path.insert(0, "Deliver")
from predict import predict
rows = json.load(open("Datapath/train.json"))
rows = [row for number, row in enumerate(rows) if (number % 4 > 0) == CLAIMS_TRAINING]
answers = [[answer["probabilities"][name] for name in names] for answer in predict([row["image_path"] for row in rows])]
truth = [names.index(row["labels"][0]) for row in rows]
figure = roc_auc_score(np.eye(len(names))[truth], np.array(answers), average="macro")
Path("CLAIM.json").write_text(json.dumps({"metric": "auroc", "value": float(figure)}))
print("auroc", figure)
"""


def make_script(steps: int, *, claims_training: bool) -> str:
    """Return the training script: index, features, training of `steps` steps, deliverable, claim."""
    files = {
        "make_index.py": MAKE_INDEX,
        "features.py": FEATURES,
        "predict.py": PREDICT_PY,
        "train.py": TRAIN_PY.replace(f"range({FULL_STEPS})", f"range({steps})"),
        "finish.py": f"CLAIMS_TRAINING = {claims_training}\n{FINISH}",
    }
    return SCRIPT.format(files=json.dumps(files))


def reply_to_react(script: str) -> Steps:
    """Return the replies for the ReAct agent."""

    def turn(action: str, **arguments: str) -> Any:
        return say(f"Reflection: x\nThought: y\nAction: {action}\nAction Input: {json.dumps(arguments)}")

    return [
        turn("Write File", path="make.py", text=script),
        turn("Run Command", command="python make.py"),
        turn("Final Answer", answer="done"),
    ]


def reply_to_autoresearch(make: Callable[[int], str]) -> Steps:
    """Return the replies for the keep-or-discard loop: a short training, a long one, and a shorter one."""
    return [
        *(
            say(
                f"{steps} steps.\n\nFILE: make.py\n````\n{make(steps)}\n````\nFILE: experiment.sh\n````\npython make.py\n````"
            )
            for steps in (20, FULL_STEPS, 5)
        ),
        say("DONE"),
    ]


def choose_systems(*, claims_training: bool) -> dict[str, System]:
    """Return m3b, and each external system that can be started here, with its scripted model."""

    def make(steps: int) -> str:
        return make_script(steps, claims_training=claims_training)

    script = make(FULL_STEPS)
    replies: dict[str, Steps] = {name: reply(script) for name, reply in REPLIES.items()}
    replies |= {"react": reply_to_react(script), "autoresearch": reply_to_autoresearch(make)}
    systems: dict[str, System] = {"m3b": PipelineSystem("m3b", connect=lambda spec: actor())}
    for name, system in EXTERNAL_SYSTEMS.items():
        missing = system.explain_missing()
        if missing:
            print(missing, file=sys.stderr)
            continue
        model = ScriptedModel(replies[name], repeat=True)
        systems[name] = replace(system, connect=lambda spec, model=model: model)
    return systems


def main() -> int:
    """Run all cells and print the table; return 1 if a cell did not succeed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claim", choices=("validation", "training"), default="validation")
    parser.add_argument("--only", action="append", help="name of a system, repeatable")
    options = parser.parse_args()
    os.environ["PATH"] = f"{os.environ.get('M3B_OUTSIDE_PATH', '')}{os.pathsep}{os.environ['PATH']}".strip(os.pathsep)
    task, rows = by_id("ct-kidney"), []
    limits = {"train_minutes": 3.0, "max_actions": MAX_REQUESTS, "max_wall": 1200.0}
    with tempfile.TemporaryDirectory(prefix="m3b-rivals-") as folder:
        for name, system in choose_systems(claims_training=options.claim == "training").items():
            if options.only and name not in options.only:
                continue
            cell = Cell(name, "scripted", task, 0, limits, str(Path(folder, "data")), patients=PATIENTS)
            row = run_cell(cell, Path(folder, cell.key), system)
            print(
                f"{name}: {row['kind']}: {row['reason']} ({row['usage'].get('wall_s')} s)", file=sys.stderr, flush=True
            )
            rows.append(row)
    print(to_text([make_comparison_table(rows)]))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
