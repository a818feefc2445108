"""Make a whole run of a task that m3b does not know: landmarks in drawn images, from data to a measured model.

    python examples/landmarks/run.py [--folder landmarks-run]

A script plays the language model, so the example needs no key; every check of m3b runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from landmarks import FAMILY

from m3b import Pipeline, load_model, register_task
from m3b.messages import Message, ToolSpec

CASES = 90
INDEX_SCRIPT = """
import csv, json
from pathlib import Path

rows = list(csv.DictReader(open("data/points/points.csv")))
records = [{"image_path": "data/points/" + row["file"], "point": [float(row["x"]), float(row["y"])],
            "patient": row["patient"]} for row in rows]
Path("Datapath").mkdir(exist_ok=True)
for name, part in (("train", records[: 2 * len(records) // 3]), ("test", records[2 * len(records) // 3 :])):
    Path("Datapath", name + ".json").write_text(json.dumps(part))
Path("Datapath/label_dict.json").write_text("{}")
"""
SELECTION_REPLY = {
    "data_card": "points", "task": "landmarks", "metric": "mean_distance", "classes": [], "reason": "It has points.",
    "plan": "points.csv has a file, x, y and patient in each row. The last third of the rows is for testing.",
}  # fmt: skip


def draw_pictures(folder: Path) -> Path:
    """Draw noisy images with one bright spot each, and write a table of the positions."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True)
    generator, rows = np.random.default_rng(0), []
    for number in range(CASES):
        x, y = generator.uniform(10, 54, 2)
        columns, lines = np.meshgrid(np.arange(64), np.arange(64))
        spot = 150 * np.exp(-((columns - x) ** 2 + (lines - y) ** 2) / 18)
        pixels = np.clip(spot + generator.normal(60, 15, (64, 64)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
        rows.append([f"{number:03d}.png", f"{x:.2f}", f"{y:.2f}", f"p{number:03d}"])
    random.Random(0).shuffle(rows)
    with (folder / "points.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["file", "x", "y", "patient"], *rows])
    return folder


def make_call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return one tool call."""
    return {"name": name, "arguments": arguments}


SCRIPT: dict[str, Sequence[Any]] = {
    "selection": [json.dumps(SELECTION_REPLY)],
    "index": [
        {"tool_calls": [make_call("write_files", files=[{"path": "make_index.py", "content": INDEX_SCRIPT}])]},
        {"tool_calls": [make_call("run_script", command="python make_index.py")]},
        "The index is written.",
    ],
    "module": [
        {"tool_calls": [make_call("copy_files", source="resources/templates/landmarks", destination=".")]},
        {"tool_calls": [make_call("run_script", command="python plan.py")]},
        "The project is in place.",
    ],
    "model": [
        {"tool_calls": [make_call("run_script", command="python train.py && python export.py", wait_s=900)]},
        "Trained and exported.",
    ],
}


def play_script(messages: list[Message], tools: list[ToolSpec]) -> Any:
    """Return the script's next reply in the present stage of the conversation."""
    stage, replies = "", 0
    for message in messages:
        if message.role == "user" and message.text.startswith("Stage: "):
            stage, replies = message.text.splitlines()[0].removeprefix("Stage: "), 0
        elif message.role == "assistant":
            replies += 1
    return SCRIPT[stage][min(replies, len(SCRIPT[stage]) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("landmarks-run"), help="a folder that does not exist yet")
    folder = parser.parse_args().folder
    register_task(FAMILY)
    data = draw_pictures(folder / "points")
    result = Pipeline(play_script, data=data, out=folder / "run", train_minutes=2).run(
        "Find the landmark in each picture"
    )
    print(f"{result.status}: {result.reason}")
    if result.model_dir:
        for prediction in load_model(result.model_dir).predict(sorted(data.glob("*.png"))[:3]):
            print(f"{Path(str(prediction.image)).name}: {prediction.extra['point']}")
    raise SystemExit(0 if result.ok else 1)


if __name__ == "__main__":
    main()
