"""A model that m3b delivered as the start of another training: its network as it is, and its tensors as far as they fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.training.pretrained.starts import TRIAL_SHARE
from m3b.training.pretrained.weight_files import StartError, read_json

if TYPE_CHECKING:
    from torch import nn

    from m3b.training.pretrained.tensors import LoadedTensors

RELATED_TASKS = ("diagnosis", "grading", "regression", "survival")
"""Tasks whose models differ in their outputs alone."""
SERVED_TASKS = (*RELATED_TASKS, "segmentation", "detection")
INPUT_KEYS = {
    "diagnosis": ("size",), "grading": ("size",), "regression": ("size",), "survival": ("size",),
    "segmentation": ("patch", "spacing"), "detection": ("patch", "spacing"),
}  # fmt: skip
"""Settings of the input on which shapes and scales of the weights depend."""
FIRST_RECIPE = "recipes.0."
"""Beginning of the names of the first network's tensors in an average of several recipes."""
MIN_LOADED_SHARE = 0.5
"""Minimum tensors that fit, as a share of those of the network; with fewer, it is another network."""
WITHOUT_WEIGHTS = ("pretrained", "delivered", "trial", "origin", "backbone_lr", "feature_views", "feature_seconds")


def read_delivered_plan(folder: Path) -> dict[str, Any] | None:
    """Return the plan of a model that m3b delivered; None if the folder holds something else."""
    config = read_json(folder / "config.json") if folder.is_dir() else {}
    plan = config.get("plan")
    if not isinstance(plan, dict) or not isinstance(plan.get("network"), dict) or not config.get("weights"):
        return None
    return {
        **plan,
        "task": config.get("task"),
        "weights": list(config["weights"]),
        "shared_weights": [config["shared_weights"]] if config.get("shared_weights") else [],
        "start": config.get("start") or {},
    }


def describe_delivered(folder: Path, delivered: Mapping[str, Any]) -> str:
    """Return what the model is, and by which run it was made if it says so."""
    run = read_json(folder / "provenance.json").get("run")
    made_by = f" of run {run}" if run else ""
    return f"the {delivered['task']} model{made_by} ({', '.join(map(str, delivered.get('classes') or ())) or 'no classes'})"


def check_task(task: str, folder: Path, delivered: Mapping[str, Any]) -> None:
    """Raise StartError if a model for `task` cannot start from a delivered model, whatever its images are."""
    start_task = delivered["task"]
    if task not in SERVED_TASKS or (task != start_task and not {task, start_task} <= set(RELATED_TASKS)):
        raise StartError(f"a {task} model cannot start from {describe_delivered(folder, delivered)}")


def adopt_network(plan: dict[str, Any], folder: Path, delivered: Mapping[str, Any]) -> None:
    """Give the plan the network and the input of a delivered model.

    Raises:
        StartError: the model is for other images or another task.
    """
    task = str(plan["task"])
    check_task(task, folder, delivered)
    name = describe_delivered(folder, delivered)
    if int(delivered["dims"]) != int(plan["dims"]):
        raise StartError(f"{name} is for {delivered['dims']}D images, these are {plan['dims']}D")
    engine = str(delivered.get("engine", "trainer"))
    if engine not in ("trainer", "patches") or delivered.get("target") != plan.get("target"):
        raise StartError(f"{name} has another kind of network (engine {engine}, target {delivered.get('target')})")
    start = delivered["start"]
    origin = {"name": name, "family": "m3b", "source": "a model delivered by m3b", "citation": ""}
    origin["licence"] = str(start.get("licence") or "not stated")
    plan["network"] = {
        **{key: value for key, value in delivered["network"].items() if key not in WITHOUT_WEIGHTS},
        "pretrained": str(folder),
        "delivered": True,
        "backbone_lr": 1.0,
        "trial": TRIAL_SHARE,
        "origin": origin,
    }
    for key in INPUT_KEYS[task]:
        if delivered.get(key) and plan.get(key):
            plan[key] = list(delivered[key])
    if delivered["intensity"].get("mode") == plan["intensity"]["mode"] and delivered["channels"] == plan["channels"]:
        plan["intensity"] = dict(delivered["intensity"])


def without_weights(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan whose network is built without the weights of a delivered model."""
    return {**plan, "network": {key: value for key, value in plan["network"].items() if key not in WITHOUT_WEIGHTS}}


def load_delivered(network: nn.Module, folder: Path) -> LoadedTensors:
    """Load the tensors of a delivered model that fit the network; of several networks those of the first.

    Raises:
        StartError: the weights are missing, or too few of them fit.
    """
    from safetensors.torch import load_file

    from m3b.training.pretrained.tensors import LoadedTensors, adapt_tensor

    delivered = read_delivered_plan(folder)
    names = [delivered["weights"][0], *delivered["shared_weights"]] if delivered else ["model.safetensors"]
    files = [folder / Path(str(name)).name for name in names]
    stored: dict[str, Any] = {}
    for file in files:
        if not file.is_file():
            raise StartError(f"{file} is missing; take a fresh copy of the model folder")
        stored |= load_file(str(file))
    state, loaded, adapted = network.state_dict(), {}, 0
    for name, value in stored.items():
        key = name.removeprefix(FIRST_RECIPE).removeprefix("backbone.")
        key = key if key in state else key.replace("body.inner.", "body.", 1)  # it was frozen there
        tensor = adapt_tensor(value, state[key].shape) if key in state else None
        if tensor is not None:
            adapted += tensor.shape != value.shape
            loaded[key] = tensor.to(state[key].dtype)
    if len(loaded) < MIN_LOADED_SHARE * len(state):
        raise StartError(f"{files[0]}: {len(loaded)} of {len(state)} tensors fit the network of this project")
    network.load_state_dict({**state, **loaded})
    return LoadedTensors(len(loaded) - adapted, adapted, len(stored) - len(loaded))
