"""Writes the deliverable: a folder that writes reports without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from m3b.training.deliverable import copy_code, list_scripts, write_texts
from m3b.training.entry import hash_validation_cases
from m3b.training.loop import load_best, save_weights
from m3b.training.named_channels import describe_input
from m3b.training.out_of_distribution_cases import fit_detector
from m3b.training.pretrained.plan_start import list_packages
from m3b.training.pretrained.trial import apply_chosen_start, format_start_note, remove_paths, start_card
from m3b.training.report.network import build_model

PRETRAINED_KEYS = ("text_model", "image_model")
"""Keys of plan.json's `network` that may name a local folder of pretrained weights."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = apply_chosen_start(json.loads(Path("plan.json").read_text(encoding="utf-8")))
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    weights = Path("Logout/report/best.safetensors")
    if not weights.exists() or not Path("Logout/report/done.json").exists():
        raise SystemExit(f"no finished training in {weights}: run train.py to its end first")
    copy_code(out, plan["network"], list_scripts(Path(__file__).with_name("export_modules.py")))
    shutil.copy("tokenizer.json", out)
    plan = write_weights(plan, weights, out / "model.safetensors")
    pretrained = [key for key in PRETRAINED_KEYS if plan["network"].get(key)]
    for key in pretrained:
        (out / key).mkdir(exist_ok=True)  # its shape; the trained weights are in model.safetensors
        shutil.copy(Path(plan["network"][key]) / "config.json", out / key)
        plan["network"][key] = key
    extra_packages = ["tokenizers", *(["transformers"] if pretrained else list_packages(plan["network"]))]
    config = {"task": "report", "classes": plan["classes"], "multi_label": True, "sections": plan["sections"]}
    config |= start_card(plan)
    config |= {"weights": ["model.safetensors"], "held_out": hash_validation_cases()}
    config |= {"familiar": fit_detector(plan)[0]}
    config |= {"plan": {**plan, "network": remove_paths(plan["network"])}}
    write_texts(out, config, extra_packages, _readme(plan))
    print(f"wrote {out}: one network, {plan['vocabulary']} tokens, writes {' and '.join(plan['sections'])}")


def write_weights(plan: dict[str, Any], weights: Path, out: Path) -> dict[str, Any]:
    """Write the trained weights and return the plan that builds their network: adapters of a language model are merged."""
    if not plan["network"].get("lora"):
        shutil.copy(weights, out)
        return plan
    model: Any = load_best(build_model(plan, with_loss=False), "report", torch.device("cpu"))
    model.text.merge()
    save_weights(model, out)
    network = {key: value for key, value in plan["network"].items() if key != "lora"}
    return {**{key: value for key, value in plan.items() if key != "marks"}, "network": network}


def _readme(plan: dict[str, Any]) -> str:
    views = f"1 to {plan['views']} views a study" if plan["views"] > 1 else "one image a study"
    return (
        "# Report writer\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o reports.json\n\n"
        f"Takes {describe_input(plan)}, {views} (a list of "
        f"paths in `--list`), and writes {' and '.join(plan['sections'])}. Drafts for research: a radiologist must check every "
        "sentence. Not a medical device.\n" + format_start_note(plan)
    )
