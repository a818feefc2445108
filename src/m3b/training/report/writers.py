"""Pretrained writers of the registry (MedGemma, LLaVA-Rad): a language model with adapters, and its image tower."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.training.distributed import barrier, is_main
from m3b.training.pretrained.plan_start import repeat_channels, requested_start, without_start
from m3b.training.pretrained.starts import find_start
from m3b.training.pretrained.trial import CHOICE_FILE
from m3b.training.pretrained.weight_files import StartError

Plan = dict[str, Any]
LORA_RANK = 16
"""Rank of the adapters."""


def start_writer(plan: Plan, settings: Sequence[str], apply: Callable[[Plan, str], None]) -> str:
    """Let the plan use the writer of `--set network.pretrained=`, and its image tower if the folder has one; other settings are
    applied again by `apply`. Return a line on it, "" if no writer is requested.

    Raises:
        SystemExit: the weights cannot be used; says why and what to do.
    """
    requested = requested_start(settings)
    try:
        start = find_start(requested, "report", int(plan["dims"])) if requested else None
    except StartError:
        return ""  # `apply_start` reports it
    if start is None or start.entry["builder"] != "writer":
        return ""
    from m3b.training.report.model_folders import has_image_tower, read_image_side

    folder, entry = str(start.folder), start.entry
    if not (start.folder / "tokenizer.json").is_file():
        raise SystemExit(
            f"--set network.pretrained={requested}: {folder} has no tokenizer.json: save it there by "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    origin = {key: entry[key] for key in ("name", "family", "licence", "source", "citation")}
    plan["network"] |= {"text_model": folder, "lora": LORA_RANK, "origin": origin}
    plan["lr"], plan["batch"] = 1e-3, min(int(plan["batch"]), 4)
    image_text = "images by an encoder from scratch"
    if has_image_tower(folder):
        if int(plan["dims"]) != 2:
            raise SystemExit(f"--set network.pretrained={requested}: its image tower is for 2D images, these are 3D")
        plan["network"]["image_model"] = folder
        plan["channels"], plan["size"] = 3, [read_image_side(folder)] * 2
        if plan["intensity"]["mode"] != "each":
            plan["intensity"] = plan["intensity"] | repeat_channels(start.intensity(plan["intensity"]), 3)
        image_text = f"its image tower at {plan['size'][0]} pixels"
    for setting in without_start(settings):
        apply(plan, setting)
    return (
        f"words of {entry['name']} (licence: {entry['licence']}) with adapters of rank {plan['network']['lora']}, {image_text}; "
        "not compared with a writer from scratch"
    )


def record_writer_start(plan: Mapping[str, Any]) -> None:
    """Record the origin of a plan's pretrained writer for the deliverable."""
    network = plan["network"]
    if not (network.get("origin") and network.get("text_model")) or CHOICE_FILE.exists():
        return
    if is_main():
        CHOICE_FILE.parent.mkdir(parents=True, exist_ok=True)
        why = "not compared with a writer from scratch"
        CHOICE_FILE.write_text(
            json.dumps({"name": network["origin"]["name"], "chosen": "pretrained", "why": why}, indent=1)
        )
    barrier()
