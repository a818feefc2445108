"""plan.json: `--set key=value` of every plan.py, the known settings, and the file format."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

OPTIONAL_KEYS = ("max_steps", "processes", "accumulate", "compile", "channels_last", "optimizer")
"""Keys that training knows and that a plan may lack."""
NETWORK_SETTINGS = {
    "diagnosis": "name encoder width dropout stem pretrained backbone_lr feature_views trial",
    "grading": "name encoder width dropout stem pretrained backbone_lr feature_views trial",
    "regression": "name encoder width dropout stem pretrained backbone_lr feature_views trial",
    "survival": "name encoder width dropout stem pretrained backbone_lr feature_views trial",
    "segmentation": "name width filters strides kernels residual deep_supervision dropout backbone_lr feature_views trial",
    "detection": "name width filters strides kernels residual deep_supervision dropout backbone_lr trial out_stage cell detector "
    "backbone anchors first",
    "report": "image_lr trial",
}
"""Settings of `network` for each task that plan.py does not set itself."""
OBJECT_SETTINGS = {
    "loss": "voxel alpha beta weights boxes",
    "intensity": "mode low high windows mean std eight_bit channels",
    "augment": "often flip rotate tilt zoom shift elastic contrast brightness gamma noise blur erase",
    "tta": "use views zoom shift max_seconds",
    "decode": "beams length_penalty min_tokens no_repeat",
    "max_tokens": "findings impression",
}
"""Settings of other objects of the plan that plan.py does not set itself."""
UNCHECKED_OBJECTS = ("refine",)
"""Objects whose keys are classes: the plan's own check covers them."""
DERIVED_KEYS = (
    "task",
    "number",
    "unknown",
    "pad",
    "shares",
    "why_engine",
    "why_folds",
    "why_fit",
    "extent",
    "channel_names",
    "bits",
    "covariates",
    "edges",
    "views",
    "tiles",
    "frames",
    "scratch",
    "recipes",
    "machine",
    "expected",
)
"""Settings that follow from the data or from other settings; a value set by hand would be overwritten or break the training."""

SET_ELSEWHERE = {
    "task": "; the selection names the task",
    "frames": "; the index names the frames of each clip (images.frames of the manifest, FILE#frames=N of image_path)",
    "views": "; the index lists the images of a case (images.case and images.several of the manifest)",
    "tiles": "; its parts can: tiles.count, tiles.factor, tiles.um",
    "channel_names": "; the index names the channels (images.channels of the manifest)",
    "covariates": "; the index holds them (covariates of the manifest)",
}
"""Where derived settings come from and can be changed."""

INTEGER_RANGES = {"seed": (0, 2**31 - 1), "folds": (1, 20), "parts": (1, 10_000)}
"""Integer settings: minimum and maximum."""
CHOICES = {
    "optimizer": ("adamw", "muon"),
    "fold_groups": ("patients", "sites"),
    "network.encoder": ("volume", "slices", "both"),
}
"""Settings with a few allowed values."""


def apply_override(plan: dict[str, Any], setting: str) -> None:
    """Apply `network.name=resnet18`: the value is JSON if it parses, else text. Raises SystemExit for an unknown key."""
    key, separator, text = setting.partition("=")
    if key == "network.pretrained":
        raise SystemExit(f"--set {setting}: input and network depend on it, so make a new plan with it (no --keep)")
    *path, name = key.split(".")
    parent_object: Any = plan
    for part in path:
        parent_object = parent_object.get(part) if isinstance(parent_object, dict) else None
    if not separator or not isinstance(parent_object, dict):
        raise SystemExit(f"--set {setting}: not KEY=VALUE with a key of plan.json ({', '.join(plan)})")
    if not path and name in DERIVED_KEYS:
        source = SET_ELSEWHERE.get(name, "")
        raise SystemExit(
            f"--set {setting}: {name} follows from the data and the other settings and cannot be set{source}"
        )
    value = _parse_value(text)
    task = str(plan.get("task", ""))
    _check_names(setting, ".".join(path), [name], parent_object, task)
    if not path and isinstance(value, dict):
        _check_names(setting, name, value, plan.get(name) or {}, task)
    minimum, maximum = INTEGER_RANGES.get(key, (0, -1))
    if minimum <= maximum and not (type(value) is int and minimum <= value <= maximum):
        raise SystemExit(f"--set {setting}: must be a whole number from {minimum} to {maximum}")
    if key in CHOICES and value not in CHOICES[key]:
        raise SystemExit(f"--set {setting}: must be {' or '.join(CHOICES[key])}")
    if key in ("refit", "self_training") and type(value) is not bool:
        raise SystemExit(f"--set {setting}: must be true or false")
    parent_object[name] = value


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _check_names(
    setting: str, path: str, requested: Iterable[str], parent_object: Mapping[str, Any], task: str
) -> None:
    """Raise SystemExit for a name that neither the plan nor any part of the training knows."""
    if path in UNCHECKED_OBJECTS:
        return
    extra = (
        NETWORK_SETTINGS.get(task, " ".join(NETWORK_SETTINGS.values()))
        if path == "network"
        else OBJECT_SETTINGS.get(path, "")
    )
    names = list(dict.fromkeys([*parent_object, *(extra.split() if path else OPTIONAL_KEYS)]))
    for name in requested:
        if name not in names:
            matches = difflib.get_close_matches(name, names, 1)
            parent = f"{path} in plan.json" if path else "plan.json"
            suggestion = f"; did you mean {matches[0]}?" if matches else ""
            raise SystemExit(
                f"--set {setting}: {parent} has no setting {name!r}{suggestion} (it has {', '.join(names)})"
            )


def overridden_keys(settings: Sequence[str]) -> set[str]:
    """Return the keys that were set."""
    return {setting.partition("=")[0] for setting in settings}


def load_edited_plan(settings: Sequence[str], file: Path = Path("plan.json")) -> dict[str, Any]:
    """Return the existing plan with `--set` applied: for `plan.py --time-only` and `--keep`."""
    plan = read_plan(file)
    for setting in settings:
        key = setting.partition("=")[0]
        before = _get_value(plan, key)
        apply_override(plan, setting)
        print(f"{key}: {json.dumps(before)} -> {json.dumps(_get_value(plan, key))}")
    return plan


def _get_value(plan: Any, key: str) -> Any:
    """Return the value of a dotted key; None if it is absent."""
    for part in key.split("."):
        plan = plan.get(part) if isinstance(plan, dict) else None
    return plan


def save_plan(plan: Mapping[str, Any], file: Path = Path("plan.json")) -> None:
    """Write the plan for people: one setting a line, lists of numbers on a single line.

    Raises:
        SystemExit: the engine does not call a method that the project's recipe changes.
    """
    from m3b.training.recipe_check import check_recipe

    check_recipe(plan)
    text = json.dumps(plan, indent=2, ensure_ascii=False)
    numbers = re.compile(r"\[\n[^\[\]{}\"]*\]")
    file.write_text(numbers.sub(lambda match: f"[{' '.join(match[0][1:-1].split())}]", text) + "\n", encoding="utf-8")


def read_plan(file: Path = Path("plan.json")) -> dict[str, Any]:
    """Return the existing plan. Raises SystemExit if it is missing or no JSON object."""
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"{file} is missing: run plan.py first") from None
    except ValueError as error:
        raise SystemExit(f"{file} is not valid JSON: {error}") from None
    if not isinstance(plan, dict):
        raise SystemExit(f"{file} must be an object of settings: run plan.py again") from None
    return plan
