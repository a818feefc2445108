"""Choice of the few-shot engine and its backbone with the reason, and its settings in plan.json."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from m3b.training.detection.fewshot.backbone import PREPROCESSOR_FILE, BackboneError, describe_backbone
from m3b.training.detection.fewshot.prompts import default_prompts, sample_states
from m3b.training.detection.fewshot.stored_adapters import describe_adapters
from m3b.training.pretrained.starts import START_FILE, list_stores, read_registry
from m3b.training.pretrained.weight_files import read_json

MAX_ABNORMAL_CASES = 32
"""Abnormal training cases up to which a few-shot detector is tried for masks."""
ORDINARY_IMAGE_SIZE = 64
"""Side of pictures for the ordinary network of images."""


def find_backbone(requested: str) -> tuple[dict[str, Any] | None, str]:
    """Return the description of a usable backbone, and a text about the search.

    Args:
        requested: a folder, or the name of fetched weights; without it, the fetched weights and the Hugging Face cache of this
            machine are searched.

    Raises:
        SystemExit: the requested backbone cannot be used, with the reason.
    """
    if requested:
        stored = [store / requested for store in list_stores() if (store / requested / START_FILE).is_file()]
        folder = stored[0] if stored and not Path(requested).is_dir() else Path(requested)
        try:
            return _describe(folder), f"backbone {requested}"
        except BackboneError as error:
            raise SystemExit(f"backbone={requested}: {error}") from error
    fetched = [file.parent for store in list_stores() for file in sorted(store.glob(f"*/*/{START_FILE}"))]
    snapshots, search_text = _list_snapshots()
    for folder in (*fetched, *snapshots):
        name = str(read_json(folder / START_FILE).get("entry") or folder.parent.parent.name)
        try:
            return _describe(folder), f"backbone {name}"
        except (BackboneError, ValueError):
            continue
    return None, search_text


def _describe(folder: Path) -> dict[str, Any]:
    """Return the description with the folder; fetched weights without a preprocessor have the input size of their registry entry."""
    entry = read_registry().get(str(read_json(folder / START_FILE).get("entry")), {})
    side = 0 if (folder / PREPROCESSOR_FILE).is_file() else min(entry.get("size", [0]))
    return {**describe_backbone(folder, side), "folder": str(folder.absolute())}


def _list_snapshots() -> tuple[list[Path], str]:
    """Return the models in the Hugging Face cache, and a text about the search."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from huggingface_hub import CacheNotFound, constants, scan_cache_dir

        cache = os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE
        snapshots = [Path(rev.snapshot_path) for repo in scan_cache_dir(cache).repos for rev in repo.revisions]
    except (ImportError, OSError, ValueError, CacheNotFound):
        return [], "this machine has no Hugging Face cache"
    return sorted(snapshots), f"none of the {len(snapshots)} model(s) in the Hugging Face cache can be used"


def default_settings() -> dict[str, Any]:
    """Return `fewshot` and `ordinary` of plan.json."""
    return {
        "fewshot": {
            "protocol": "m3b",
            "shots": None,
            "adapters": None,
            "draws": 5,
            "epochs": 50,
            "lr": 1e-3,
            "scale": 20.0,
            "compare": True,
        },
        "ordinary": {"width": 16, "lr": 2e-3, "epochs": 60, **ordinary_input()},
    }


def choose_engine(
    facts: Mapping[str, Any], normal: int, abnormal: int, folder: str
) -> tuple[str, dict[str, Any] | None, str]:
    """Return (engine, backbone, reason): "fewshot", "image" (states without a backbone) or "patches" (everything else)."""
    has_states = facts["target"] == "states"
    if facts["target"] == "boxes" or facts["dims"] == 3 or (facts["target"] == "masks" and len(facts["classes"]) > 1):
        if folder:
            raise SystemExit("backbone: few-shot detectors need pictures with states, or with masks of one class")
        if has_states:
            raise SystemExit("volumes with states (normal or abnormal) cannot be learnt here: use slices")
        return "patches", None, ""
    if not has_states and abnormal > MAX_ABNORMAL_CASES and not folder:
        return "patches", None, ""
    backbone, search_text = find_backbone(folder)
    case_text = f"{abnormal} abnormal and {normal} normal training cases"
    if backbone is None and not abnormal:
        raise SystemExit(
            f"{case_text}: an ordinary network cannot learn from normal cases alone, and a few-shot detector needs a "
            f"pretrained backbone; there is none ({search_text}). Add abnormal cases, add a backbone to the Hugging Face cache of "
            "this machine, or set its folder with --set backbone=FOLDER"
        )
    if backbone is None:
        engine = "image" if has_states else "patches"
        consequence = (
            "a network of images is trained from random weights" if has_states else "the ordinary detector is used"
        )
        return engine, None, (
            f"engine {engine}: {case_text}; a few-shot detector would need a pretrained backbone, and there is none "
            f"({search_text}): {consequence}. Set one with --set backbone=FOLDER"
        )  # fmt: skip
    reason = "no abnormal case to learn from: deviations from normal are detected" if not abnormal else (
        f"too few abnormal cases (up to {MAX_ABNORMAL_CASES}) for a network from random weights" if abnormal <= MAX_ABNORMAL_CASES
        else "compared with a network from random weights on validation"
    )  # fmt: skip
    return "fewshot", backbone, f"engine fewshot: {case_text}; {reason}; {search_text}"


def refuse_fewshot_settings(keys: Iterable[str], reason: str) -> None:
    """End the program if settings of the few-shot engine are set for a plan of the ordinary detector."""
    if fewshot_keys := sorted(key for key in keys if key.split(".")[0] in ("fewshot", "prompts")):
        conditions = f"pictures with states, or with masks of one class and at most {MAX_ABNORMAL_CASES} abnormal cases"
        raise SystemExit(
            f"--set {' '.join(fewshot_keys)}: settings of the few-shot engine, but this is a plan of the ordinary detector: "
            f"remove them. {reason or f'The few-shot engine needs {conditions}'}"
        )


def ordinary_input() -> dict[str, Any]:
    """Return the input settings of the ordinary network of images."""
    return {"size": ORDINARY_IMAGE_SIZE, "mean": [0.5] * 3, "std": [0.25] * 3}


def add_engine(plan: dict[str, Any], engine: str, backbone: dict[str, Any] | None, prompt_object: str) -> None:
    """Write the settings of the engine into a plan."""
    plan |= {"engine": engine, **default_settings()}
    plan["backbone"] = backbone or {"format": "none", **ordinary_input()}
    plan["prompts"] = default_prompts(prompt_object)
    side = int(plan["backbone"]["size"])
    plan |= {"patch": [side, side], "batch": 8, "channels": 3, "precision": "fp32"}


def make_states_plan(facts: Mapping[str, Any], minutes: float) -> dict[str, Any]:
    """Return a plan for images with states, without its engine."""
    return {
        "task": "detection",
        "target": "states",
        "classes": facts["classes"],
        "labels": None,
        "overlap": True,
        "dims": 2,
        "channel_names": facts["channel_names"],
        "minutes": minutes,
        "validation_share": 0.25,
        "device": "auto",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }


def update_dependent_settings(plan: dict[str, Any]) -> None:
    """Update what depends on changed settings: the published protocol has its own prompts, rates and batch.

    Raises:
        SystemExit: an invalid setting.
    """
    settings = plan.get("fewshot") or {}
    if settings.get("protocol") not in ("m3b", "paper"):
        raise SystemExit(f"fewshot.protocol is {settings.get('protocol')!r}; it is m3b or paper")
    shots = settings.get("shots")
    if shots is not None and not _is_positive_int(shots) and (shots != 0 or isinstance(shots, bool)):
        raise SystemExit(f"fewshot.shots is {shots!r}; it is a whole number from 0, or null for all cases")
    backbone = plan["backbone"]
    if settings.get("adapters"):
        settings["adapters"], backbone["size"] = _check_adapters(settings["adapters"], plan)
    elif shots == 0:
        raise SystemExit(
            "fewshot.shots is 0, which needs adapters trained on other sets: set fewshot.adapters=FOLDER to a few-shot "
            "detector that export.py wrote"
        )
    for name in ("draws", "epochs"):
        if not _is_positive_int(settings.get(name)):
            raise SystemExit(f"fewshot.{name} is {settings.get(name)!r}; it is a whole number from 1")
    if int(backbone["size"]) % int(backbone.get("step") or 1):
        raise SystemExit(f"backbone.size is {backbone['size']}; it is a multiple of {backbone['step']}")
    if settings["protocol"] == "paper":
        backbone["norm"] = False
        plan["prompts"] = default_prompts(str(plan["prompts"]["object"]), paper=True)
    plan["patch"] = [int(backbone["size"])] * 2


def _check_adapters(folder: str, plan: Mapping[str, Any]) -> tuple[str, int]:
    """Return the absolute folder of adapters that fit the plan, and the input size that they were trained with.

    Raises:
        SystemExit: they cannot be used, with the reason.
    """
    try:
        adapter_plan = describe_adapters(folder)["plan"]
    except BackboneError as error:
        raise SystemExit(f"fewshot.adapters: {error}") from error
    if plan["engine"] != "fewshot":
        raise SystemExit("fewshot.adapters: adapters need their backbone; set it with --set backbone=FOLDER")
    for aspect, plan_value, adapter_value in (
        ("network", plan["backbone"]["config"], adapter_plan["backbone"]["config"]),
        ("protocol", plan["fewshot"]["protocol"], adapter_plan["fewshot"]["protocol"]),
    ):
        if plan_value != adapter_value:
            values = f": {adapter_value} there, {plan_value} here" if aspect != "network" else ""
            raise SystemExit(f"fewshot.adapters: {folder} was trained with another {aspect}{values}")
    return str(Path(folder).absolute()), int(adapter_plan["backbone"]["size"])


def _is_positive_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def describe_engine(plan: Mapping[str, Any]) -> list[str]:
    """Return the engine's part of the description of a plan."""
    settings, backbone = plan["fewshot"], plan["backbone"]
    lines = [f"pictures of {backbone['size']} x {backbone['size']}, {backbone['format']}"]
    lines[0] += f"; {backbone['why_size']}" if backbone.get("why_size") else ""
    if plan["engine"] == "fewshot":
        examples = "all" if settings["shots"] is None else f"{settings['shots']} per state, {settings['draws']} draws"
        examples = "none (zero-shot)" if settings["shots"] == 0 else examples
        limits = f"at most {settings['epochs']} epochs, lr {settings['lr']}"
        lines.append(f"protocol {settings['protocol']}; examples: {examples}; {limits}")
        if settings.get("adapters"):
            lines.append(f"starts with adapters trained on other sets: {Path(settings['adapters']).name}")
        if plan.get("detector") and settings["compare"]:
            lines.append(
                "half of the minutes go to the ordinary detector on the same cases; the better one on validation is kept"
            )
        if (
            plan["target"] == "states"
            and settings["compare"]
            and settings["shots"] != 0
            and settings["protocol"] != "paper"
        ):
            lines.append(
                "with abnormal examples, ordinary networks are trained too and form an ensemble with it, unless held-out "
                "examples favour one of them"
            )
        lines.append(f"prompts for {plan['prompts']['object']!r}: {json.dumps(sample_states(plan['prompts']))[:200]}")
    return lines
