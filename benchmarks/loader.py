"""Compare samples a second through each template's loader after the first epoch with decoding the originals each time.

    python benchmarks/loader.py [--template diagnosis segmentation detection report] [--seconds 5]

Columns: the loader with its cache; the same items with image (and mask) decoded and resized from the original files every
time; their ratio; and the share of a training step that waits for data (one process, no workers).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from template_bench import NAMES, prepare_template, run_in_template

CODE = """
import json, sys, time
sys.path.insert(0, ".")
from pathlib import Path
import torch
plan = json.loads(Path("plan.json").read_text())
seconds = float(sys.argv[1])
from m3b.training.diagnosis import dataset as dataloader
from m3b.training.diagnosis.network import build_model
train, _ = dataloader.build_datasets(plan)
collate = getattr(dataloader, "collate", None)
batch = max(1, min(int(plan["batch"]), len(train)))
loader = torch.utils.data.DataLoader(train, batch, shuffle=True, collate_fn=collate, drop_last=len(train) % batch == 1)

def rate(step):
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        count += step()
    return count / (time.monotonic() - start)

def epochs():
    while True:
        yield from loader

source = epochs()
for _ in range(2 * len(loader)): next(source)
cached = rate(lambda: len(next(iter(next(source).values()))))

records, number = train.records, [0]
if plan["task"] in ("segmentation", "detection"):
    from m3b.training.volume_cache import prepare_case as decode
    once = lambda record: decode(record, plan)
else:
    from m3b.training.preprocess import prepare_image
    once = lambda record: prepare_image(record["image_path"], {"spacing": None, "fit": "stretch", **plan})

def original():
    once(records[number[0] % len(records)])
    number[0] += 1
    return 1

decoded = rate(original)
device = "cuda" if torch.cuda.is_available() and plan["device"] != "cpu" else "cpu"
model = build_model(plan).to(device).train()
waited = worked = 0.0
for turn in range(12):
    start = time.monotonic()
    items = next(source)
    middle = time.monotonic()
    model(**{k: v.to(device) if hasattr(v, "to") else v for k, v in items.items()})["loss"].backward()
    if device == "cuda": torch.cuda.synchronize()
    if turn > 1:
        waited, worked = waited + middle - start, worked + time.monotonic() - middle
print("RESULT " + json.dumps({"cached": cached, "decoded": decoded, "waiting": waited / (waited + worked)}))
"""


SIZES = {"detection": ("--size", "1024"), "report": ("--size", "1024", "--cases", "40")}
"""Images of the size of radiographs; the templates' own examples are so small that decoding them takes no time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--template", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(f"{'template':14} {'loader/s':>10} {'decoding/s':>11} {'times':>7} {'step waits':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.template:
            work = prepare_template(name, Path(folder), *SIZES.get(name, ()))
            if work is None:
                print(f"{name:14} not there")
                continue
            rates = run_in_template(work, CODE, str(options.seconds))
            times = rates["cached"] / rates["decoded"]
            row = f"{name:14} {rates['cached']:10.0f} {rates['decoded']:11.1f} {times:7.1f} {rates['waiting']:11.1%}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
