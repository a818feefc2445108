"""plan.json: `--set key=value` of every plan.py, which settings there are, and how it is written."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LATER = ("max_steps", "processes", "accumulate", "compile", "channels_last", "optimizer")
"""Keys that training knows and that a plan may lack."""
NETWORKS = {
    "diagnosis": "name width dropout stem pretrained backbone_lr trial",
    "grading": "name width dropout stem pretrained backbone_lr trial",
    "regression": "name width dropout stem pretrained backbone_lr trial",
    "survival": "name width dropout stem pretrained backbone_lr trial",
    "segmentation": "name width filters strides kernels residual deep_supervision dropout backbone_lr trial",
    "detection": "name width filters strides kernels residual deep_supervision dropout backbone_lr trial out_stage cell detector "
    "backbone anchors first",
    "report": "image_lr trial",
}
"""What `network` may hold besides what plan.py put there, a task."""
OPTIONAL = {
    "loss": "voxel alpha beta weights boxes",
    "intensity": "mode low high windows mean std eight_bit channels",
    "augment": "often flip rotate tilt zoom shift elastic contrast brightness gamma noise blur erase",
    "tta": "use views zoom shift max_seconds",
    "decode": "beams length_penalty min_tokens no_repeat",
    "max_tokens": "findings impression",
}
"""The same for other objects of the plan, whatever the task."""
FREE = ("refine",)
"""Objects whose names are classes: the plan's own check looks at them."""
DERIVED = (
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
    "frames",
    "scratch",
    "machine",
    "expected",
)
"""Worked out from the data or from other settings; a value set by hand would be overwritten or break the training."""

SET_ELSEWHERE = {
    "task": "; the selection names the task",
    "frames": "; the index names the frames of each clip (images.frames of the manifest, FILE#frames=N of image_path)",
    "views": "; the index lists the images of a case (images.case and images.several of the manifest)",
    "channel_names": "; the index names the channels (images.channels of the manifest)",
    "covariates": "; the index holds them (covariates of the manifest)",
}
"""Where derived settings come from, and can be changed."""

NUMBERS = {"seed": (0, 2**31 - 1), "folds": (1, 20), "parts": (1, 10_000)}
"""Settings that are whole numbers: the least and the most."""
WORDS = {"optimizer": ("adamw", "muon")}
"""Settings that are one of a few words."""


def override(plan: dict[str, Any], setting: str) -> None:
    """`network.name=resnet18`: JSON where it parses, text where it does not. Ends the program for an unknown key."""
    key, sign, text = setting.partition("=")
    if key == "network.pretrained":
        raise SystemExit(
            f"--set {setting}: input and network follow from it, so make the plan afresh with it (no --keep)"
        )
    *path, last = key.split(".")
    place: Any = plan
    for part in path:
        place = place.get(part) if isinstance(place, dict) else None
    if not sign or not isinstance(place, dict):
        raise SystemExit(f"--set {setting}: not KEY=VALUE with a key of plan.json ({', '.join(plan)})")
    if not path and last in DERIVED:
        place_of = SET_ELSEWHERE.get(last, "")
        raise SystemExit(
            f"--set {setting}: {last} follows from the data and the other settings and cannot be set here{place_of}"
        )
    value = _value(text)
    task = str(plan.get("task", ""))
    _known(setting, ".".join(path), [last], place, task)
    if not path and isinstance(value, dict):
        _known(setting, last, value, plan.get(last) or {}, task)
    least, most = NUMBERS.get(key, (0, -1))
    if least <= most and not (type(value) is int and least <= value <= most):
        raise SystemExit(f"--set {setting}: a whole number from {least} to {most} is needed")
    if key in WORDS and value not in WORDS[key]:
        raise SystemExit(f"--set {setting}: known are {' and '.join(WORDS[key])}")
    if key == "refit" and type(value) is not bool:
        raise SystemExit(f"--set {setting}: true or false is needed")
    place[last] = value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _known(setting: str, path: str, wanted: Iterable[str], place: Mapping[str, Any], task: str) -> None:
    """Ends the program for a name that neither the plan nor any part of the training knows."""
    if path in FREE:
        return
    more = NETWORKS.get(task, " ".join(NETWORKS.values())) if path == "network" else OPTIONAL.get(path, "")
    names = list(dict.fromkeys([*place, *(more.split() if path else LATER)]))
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            where = f"{path} in plan.json" if path else "plan.json"
            meant = f"; did you mean {near[0]}?" if near else ""
            raise SystemExit(f"--set {setting}: {where} has no setting {name!r}{meant} (it has {', '.join(names)})")


def given(settings: Sequence[str]) -> set[str]:
    """The keys that were set."""
    return {setting.partition("=")[0] for setting in settings}


def priced(settings: Sequence[str], file: Path = Path("plan.json")) -> dict[str, Any]:
    """The plan as it stands, perhaps edited, with what was set: for `plan.py --time-only` and `--keep`."""
    plan = read_plan(file)
    for setting in settings:
        key = setting.partition("=")[0]
        before = _at(plan, key)
        override(plan, setting)
        print(f"{key}: {json.dumps(before)} -> {json.dumps(_at(plan, key))}")
    return plan


def _at(plan: Any, key: str) -> Any:
    """The value of a key with dots; None where there is none."""
    for part in key.split("."):
        plan = plan.get(part) if isinstance(plan, dict) else None
    return plan


def save_plan(plan: Mapping[str, Any], file: Path = Path("plan.json")) -> None:
    """Writes the plan for people: a setting a line, lists of numbers on theirs."""
    text = json.dumps(plan, indent=2, ensure_ascii=False)
    numbers = re.compile(r"\[\n[^\[\]{}\"]*\]")
    file.write_text(numbers.sub(lambda found: f"[{' '.join(found[0][1:-1].split())}]", text) + "\n", encoding="utf-8")


def read_plan(file: Path = Path("plan.json")) -> dict[str, Any]:
    """The plan as it stands, perhaps edited; ends the program where there is none, or where it is no JSON object."""
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"{file} is missing: run plan.py first") from None
    except ValueError as error:
        raise SystemExit(f"{file} is not valid JSON any more: {error}") from None
    if not isinstance(plan, dict):
        raise SystemExit(f"{file} holds no object of settings: run plan.py again")
    return plan
