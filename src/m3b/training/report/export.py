"""Writes the deliverable: a folder that writes reports on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from m3b.training.deliverable import copy_code, list_scripts, put_texts
from m3b.training.entry import held_out
from m3b.training.loop import load_best, save_weights
from m3b.training.named_channels import takes
from m3b.training.out_of_distribution_cases import learn
from m3b.training.pretrained.plan_start import packages
from m3b.training.pretrained.trial import settled, start_card, start_lines, without_paths
from m3b.training.report.network import build_model

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
    copy_code(out, plan["network"], list_scripts(Path(__file__).with_name("export_modules.py")))
    shutil.copy("tokenizer.json", out)
    plan = put_weights(plan, weights, out / "model.safetensors")
    pretrained = [key for key in PARTS if plan["network"].get(key)]
    for key in pretrained:
        _copy_configuration(Path(plan["network"][key]), out / key)
        plan["network"][key] = key
    more = ["tokenizers", *(["transformers"] if pretrained else packages(plan["network"]))]
    config = {"task": "report", "classes": plan["classes"], "multi_label": True, "sections": plan["sections"]}
    config |= start_card(plan)
    config |= {"weights": ["model.safetensors"], "held_out": held_out()}
    config |= {"familiar": learn(plan)[0]}
    config |= {"plan": {**plan, "network": without_paths(plan["network"])}}
    put_texts(out, config, more, _readme(plan))
    print(f"wrote {out}: one network, {plan['vocabulary']} tokens, writes {' and '.join(plan['sections'])}")


def put_weights(plan: dict[str, Any], weights: Path, out: Path) -> dict[str, Any]:
    """The trained weights, and the plan that builds their network: adapters of a language model are merged into it."""
    if not plan["network"].get("lora"):
        shutil.copy(weights, out)
        return plan
    model: Any = load_best(build_model(plan, with_loss=False), "report", torch.device("cpu"))
    model.text.merge()
    save_weights(model, out)
    network = {key: value for key, value in plan["network"].items() if key != "lora"}
    return {**{key: value for key, value in plan.items() if key != "marks"}, "network": network}


def _copy_configuration(folder: Path, out: Path) -> None:
    """What the shape of a pretrained part is; its trained weights are in model.safetensors."""
    out.mkdir(exist_ok=True)
    shutil.copy(folder / "config.json", out)


def _readme(plan: dict[str, Any]) -> str:
    views = f"1 to {plan['views']} views a study" if plan["views"] > 1 else "one image a study"
    return (
        "# Report writer\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o reports.json\n\n"
        f"Takes {takes(plan)}, {views} (a list of "
        f"paths in `--list`), and writes {' and '.join(plan['sections'])}. Drafts for research: every sentence needs a "
        "radiologist's eye. Not a medical device.\n" + start_lines(plan)
    )
