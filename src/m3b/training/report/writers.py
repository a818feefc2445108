"""Writers of the registry (MedGemma, LLaVA-Rad): a language model that learns by adapters, with its own image tower."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from m3b.training.distributed import barrier, is_main
from m3b.training.pretrained.plan_start import spread, wanted_start, without_start
from m3b.training.pretrained.starts import StartError, find_start
from m3b.training.pretrained.trial import VERDICT

Plan = dict[str, Any]
RANK = 16
"""Of the adapters."""


def start_writer(plan: Plan, settings: Sequence[str], again: Callable[[Plan, str], None]) -> str:
    """Changes the plan so that its words, and its image tower where the folder holds one, are those of the writer that
    `--set network.pretrained=` names; what else was set is set again by `again`. Says what was done; empty where none is named.

    Raises:
        SystemExit: the weights cannot be used; says why and what to do.
    """
    wanted = wanted_start(settings)
    try:
        start = find_start(wanted, "report", int(plan["dims"])) if wanted else None
    except StartError:
        return ""  # `start_from` says it
    if start is None or start.entry["builder"] != "writer":
        return ""
    from m3b.training.report.model_folders import sees, side_of

    folder, entry = str(start.folder), start.entry
    if not (start.folder / "tokenizer.json").is_file():
        raise SystemExit(
            f"--set network.pretrained={wanted}: {folder} holds no tokenizer.json: save it there by "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    origin = {key: entry[key] for key in ("name", "family", "licence", "source", "citation")}
    plan["network"] |= {"text_model": folder, "lora": RANK, "origin": origin}
    plan["lr"], plan["batch"] = 1e-3, min(int(plan["batch"]), 4)
    images = "images by an encoder from scratch"
    if sees(folder):
        if int(plan["dims"]) != 2:
            raise SystemExit(
                f"--set network.pretrained={wanted}: its image tower was made for pictures, and these are volumes"
            )
        plan["network"]["image_model"] = folder
        plan["channels"], plan["size"] = 3, [side_of(folder)] * 2
        if plan["intensity"]["mode"] != "each":
            plan["intensity"] = plan["intensity"] | spread(start.intensity(plan["intensity"]), 3)
        images = f"its image tower at {plan['size'][0]} pixels"
    for setting in without_start(settings):
        again(plan, setting)
    return (
        f"words of {entry['name']} (licence: {entry['licence']}) with adapters of rank {plan['network']['lora']}, {images}; "
        "not compared with a writer from scratch"
    )


def note_writer(plan: Mapping[str, Any]) -> None:
    """What deliverables say of the weights that they grew from, for a plan with a writer of the registry."""
    network = plan["network"]
    if not (network.get("origin") and network.get("text_model")) or VERDICT.exists():
        return
    if is_main():
        VERDICT.parent.mkdir(parents=True, exist_ok=True)
        why = "not compared with a writer from scratch"
        VERDICT.write_text(
            json.dumps({"name": network["origin"]["name"], "chosen": "pretrained", "why": why}, indent=1)
        )
    barrier()
