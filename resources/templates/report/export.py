"""Writes the deliverable: a folder that writes reports on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from Utils.familiar_cases import learn
from Utils.named import takes
from Utils.pretrained_trial import settled, start_card, start_lines, without_paths
from Utils.start import held_out
from Utils.using import CODE as STARTS
from Utils.using import packages

REQUIREMENTS = (
    "torch",
    "numpy",
    "scipy",
    "safetensors",
    "tokenizers",
    "pillow",
    "pydicom",
    "nibabel",
    "SimpleITK",
    "h5py",
)
PARTS = ("text_model", "image_model")
"""Keys of plan.json's `network` that may name a local folder of pretrained weights."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = settled(json.loads(Path("plan.json").read_text(encoding="utf-8")))
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    weights = Path("Logout/report/best.safetensors")
    if not weights.exists() or not Path("Logout/report/done.json").exists():
        raise SystemExit(f"no finished training at {weights}: run train.py to its end first")
    for part in ("Utils", "Model"):
        (out / part).mkdir(parents=True, exist_ok=True)
    for file in {
        file for name in ("preprocess", "residual", "calling", "derived", "familiar", *STARTS) for file in needed_by(name)
    }:
        shutil.copy(file, out / "Utils")
    for file in [*Path("Model").glob("*.py"), Path("Model/tokenizer.json")]:
        shutil.copy(file, out / "Model")
    for name in ("predict.py", "parts.py"):
        shutil.copy(Path(__file__).parent / "deliver" / name, out)
    shutil.copy(weights, out / "model.safetensors")
    pretrained = [key for key in PARTS if plan["network"].get(key)]
    for key in pretrained:
        _copy_configuration(Path(plan["network"][key]), out / key)
        plan["network"][key] = key
    needed = [*REQUIREMENTS, *(["transformers"] if pretrained else packages(plan["network"]))]
    config = {"task": "report", "classes": plan["classes"], "multi_label": True, "sections": plan["sections"]}
    config |= start_card(plan)
    config |= {"weights": ["model.safetensors"], "held_out": held_out()}
    config |= {"familiar": learn(plan)[0]}
    config |= {"plan": {**plan, "network": without_paths(plan["network"])}}
    (out / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "requirements.txt").write_text("\n".join(map(_pinned, needed)) + "\n")
    (out / "README.md").write_text(_readme(plan), encoding="utf-8")
    print(f"wrote {out}: one network, {plan['vocabulary']} tokens, writes {' and '.join(plan['sections'])}")


def needed_by(name: str, folder: Path = Path("Utils")) -> list[Path]:
    """The module and its neighbours that it is made of, found by following their imports."""
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        file = folder / f"{waiting.pop()}.py"
        if file.stem not in found and file.exists():
            found[file.stem] = file
            text = file.read_text(encoding="utf-8")
            waiting += [one or other for one, other in re.findall(r'neighbour\("(\w+)"\)|from \.(\w+) import', text)]
            waiting += re.findall(r"from Utils\.(\w+) import", text)
            waiting += [part for line in re.findall(r"from \. import ([\w, ]+)", text) for part in line.split(", ")]
    return list(found.values())


def _copy_configuration(folder: Path, out: Path) -> None:
    """What the shape of a pretrained part is; its trained weights are in model.safetensors."""
    out.mkdir(exist_ok=True)
    shutil.copy(folder / "config.json", out)


def _pinned(name: str) -> str:
    try:
        return f"{name}=={version(name).split('+')[0]}"
    except PackageNotFoundError:
        return name


def _readme(plan: dict[str, Any]) -> str:
    views = f"1 to {plan['views']} views a study" if plan["views"] > 1 else "one image a study"
    return (
        "# Report writer\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o reports.json\n\n"
        f"Takes {takes(plan)}, {views} (a list of "
        f"paths in `--list`), and writes {' and '.join(plan['sections'])}. Drafts for research: every sentence needs a "
        "radiologist's eye. Not a medical device.\n" + start_lines(plan)
    )


if __name__ == "__main__":
    main()
