"""Whether plan.json takes the few-shot engine, with which backbone, and why; and the settings that go with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from m3b.training.detection.fewshot.backbone_folder import BackboneError, describe
from m3b.training.detection.fewshot.prompts import default_prompts, listed
from m3b.training.detection.fewshot.stored_adapters import describe_adapters

FEW = 32
"""Abnormal training cases up to which a detector on a backbone trained before is tried where masks would do."""
SMALL = {"m3b-conv": "small"}
OWN_SIZE = 64
"""Side of pictures for the ordinary network of images."""


def find_backbone(asked: str) -> tuple[dict[str, Any] | None, str]:
    """The description of a usable backbone, and in words what was looked at.

    Args:
        asked: a folder that somebody named; without one the cache of Hugging Face on this machine is looked through.

    Raises:
        SystemExit: the folder that was named cannot be used; says why.
    """
    if asked:
        try:
            return {**describe(asked), "folder": str(Path(asked).absolute())}, f"backbone {asked}"
        except BackboneError as error:
            raise SystemExit(f"backbone={asked}: {error}") from error
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    looked = "no readable Hugging Face cache here"
    try:
        from huggingface_hub import CacheNotFound, constants, scan_cache_dir

        cache = os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE
        places = [Path(rev.snapshot_path) for repo in scan_cache_dir(cache).repos for rev in repo.revisions]
        looked = f"Hugging Face cache: {len(places)} model(s), none that can serve"
    except (ImportError, OSError, ValueError, CacheNotFound):
        return None, looked
    for place in sorted(places):
        try:
            return {**describe(place), "folder": str(place)}, f"backbone {place.parent.parent.name}"
        except (BackboneError, ValueError):
            continue
    return None, looked


def settings_of() -> dict[str, Any]:
    """`fewshot` and `ordinary` of plan.json."""
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
        "ordinary": {"width": 16, "lr": 2e-3, "epochs": 60},
    }


def choose_engine(
    facts: Mapping[str, Any], normal: int, abnormal: int, asked: str
) -> tuple[str, dict[str, Any] | None, str]:
    """(engine, backbone, why): "fewshot", "image" (states without a backbone) or "patches" (everything else)."""
    states = facts["target"] == "states"
    if facts["target"] == "boxes" or facts["dims"] == 3 or (facts["target"] == "masks" and len(facts["classes"]) > 1):
        if asked:
            raise SystemExit("backbone: few-shot detectors take pictures with states, or with masks of one class")
        if states:
            raise SystemExit(
                "volumes of which it is only known whether they are abnormal cannot be learnt here: take slices"
            )
        return "patches", None, ""
    if not states and abnormal > FEW and not asked:
        return "patches", None, ""
    found, looked = find_backbone(asked)
    counted = f"{abnormal} abnormal and {normal} normal training cases"
    if found is None and not abnormal:
        raise SystemExit(
            f"{counted}: an ordinary network learns nothing from normal cases alone, and a few-shot detector, which finds "
            f"what is unlike them, needs a backbone trained before; there is none ({looked}). Add abnormal cases, or put a "
            "backbone into the Hugging Face cache of this machine. A folder is named with --set backbone=FOLDER"
        )
    if found is None:
        engine = "image" if states else "patches"
        what = "a network of images is trained from random weights" if states else "the ordinary detector is trained"
        return engine, None, (
            f"engine {engine}: {counted}; a few-shot detector would need a backbone trained before, and there is none "
            f"({looked}): {what}. Name one with --set backbone=FOLDER"
        )  # fmt: skip
    why = "no abnormal case to learn from: what is unlike normal is found" if not abnormal else (
        f"so few abnormal cases (up to {FEW}) teach a network from random weights little" if abnormal <= FEW
        else "compared with a network from random weights on validation"
    )  # fmt: skip
    return "fewshot", found, f"engine fewshot: {counted}; {why}; {looked}"


def only_few_shot(keys: Iterable[str], why: str) -> None:
    """Ends the program where settings of the few-shot engine are given to a plan of the ordinary detector."""
    if few := sorted(key for key in keys if key.split(".")[0] in ("fewshot", "prompts")):
        kinds = f"pictures with states, or with masks of one class and at most {FEW} abnormal cases"
        raise SystemExit(
            f"--set {' '.join(few)}: of the few-shot engine, and this is a plan of the ordinary detector. Leave it out. "
            f"{why or f'The few-shot engine takes {kinds}'}"
        )


def own_backbone() -> dict[str, Any]:
    """What the ordinary network of images takes as its input."""
    return {"format": "none", "size": OWN_SIZE, "mean": [0.5] * 3, "std": [0.25] * 3}


def add_engine(plan: dict[str, Any], engine: str, backbone: dict[str, Any] | None, thing: str) -> None:
    """The engine's settings into a plan."""
    plan |= {"engine": engine, **settings_of()}
    plan["backbone"] = backbone or own_backbone()
    plan["prompts"] = default_prompts(thing)
    side = int(plan["backbone"]["size"])
    plan |= {"patch": [side, side], "batch": 8, "channels": 3, "precision": "fp32"}


def states_plan(facts: Mapping[str, Any], minutes: float) -> dict[str, Any]:
    """What a plan for images with states has besides its engine."""
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
        "device": "cpu",
        "workers": 0,
        "threads": 0,
        "seed": 0,
    }


def follow(plan: dict[str, Any]) -> None:
    """What follows from settings that were changed: the published protocol has its own words, rates and batch.

    Raises:
        SystemExit: a setting that is none.
    """
    few = plan.get("fewshot") or {}
    if few.get("protocol") not in ("m3b", "paper"):
        raise SystemExit(f"fewshot.protocol is {few.get('protocol')!r}; it is m3b or paper")
    shots = few.get("shots")
    if shots is not None and not _counts(shots) and (shots != 0 or isinstance(shots, bool)):
        raise SystemExit(f"fewshot.shots is {shots!r}; it is a whole number from 0, or null for all cases")
    if few.get("adapters"):
        few["adapters"] = _adapters(few["adapters"], plan)
    elif shots == 0:
        raise SystemExit(
            "fewshot.shots is 0, which needs adapters that were trained on other sets: fewshot.adapters=FOLDER of a few-shot "
            "detector that export.py wrote"
        )
    for name in ("draws", "epochs"):
        if not _counts(few.get(name)):
            raise SystemExit(f"fewshot.{name} is {few.get(name)!r}; it is a whole number from 1")
    if few["protocol"] == "paper":
        plan["backbone"]["norm"] = False
        plan["prompts"] = default_prompts(str(plan["prompts"]["object"]), paper=True)
    plan["patch"] = [int(plan["backbone"]["size"])] * 2


def _adapters(folder: str, plan: Mapping[str, Any]) -> str:
    """The absolute folder of adapters that fit the plan.

    Raises:
        SystemExit: they cannot be used; says why.
    """
    try:
        theirs = describe_adapters(folder)["plan"]
    except BackboneError as error:
        raise SystemExit(f"fewshot.adapters: {error}") from error
    if plan["engine"] != "fewshot":
        raise SystemExit("fewshot.adapters: adapters belong to a backbone; name it with --set backbone=FOLDER")
    for place, mine, its in (
        ("network", plan["backbone"]["config"], theirs["backbone"]["config"]),
        ("input size", plan["backbone"]["size"], theirs["backbone"]["size"]),
        ("protocol", plan["fewshot"]["protocol"], theirs["fewshot"]["protocol"]),
    ):
        if mine != its:
            shown = f": {its} there, {mine} here" if place != "network" else ""
            raise SystemExit(f"fewshot.adapters: {folder} was trained with another {place}{shown}")
    return str(Path(folder).absolute())


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def told(plan: Mapping[str, Any]) -> list[str]:
    """The engine's part of a plan's summary."""
    few, backbone = plan["fewshot"], plan["backbone"]
    lines = [f"pictures of {backbone['size']} x {backbone['size']}, {backbone['format']}"]
    if plan["engine"] == "fewshot":
        shots = "all" if few["shots"] is None else f"{few['shots']} a state, {few['draws']} draws"
        shots = "none (zero-shot)" if few["shots"] == 0 else shots
        lines.append(f"protocol {few['protocol']}; examples: {shots}; at most {few['epochs']} epochs, lr {few['lr']}")
        if few.get("adapters"):
            lines.append(f"begins with adapters trained on other sets: {Path(few['adapters']).name}")
        if plan.get("detector") and few["compare"]:
            lines.append(
                "half of the minutes go to the ordinary detector on the same cases; what is better on validation is kept"
            )
        if plan["target"] == "states" and few["compare"] and few["shots"] != 0 and few["protocol"] != "paper":
            lines.append(
                "with abnormal examples ordinary networks are trained beside it, and all answer together, unless held-out "
                "examples decide for one kind"
            )
        lines.append(f"prompts for {plan['prompts']['object']!r}: {json.dumps(listed(plan['prompts']))[:200]}")
    return lines
