"""Weights of an earlier training of the same project, from which train.py goes on (`--start-from`)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.training.folds import WEIGHTS_FILE

if TYPE_CHECKING:
    import torch

START_FILE = "start.safetensors"
"""File in the folder of a network with the weights that its training starts from."""
RECORD_FILE = "start_from.json"
"""File in Logout that names the earlier training and its networks; it is written last."""
KEPT_FILES = ("start.json",)
"""Files of Logout with choices that hold for the weights: pretrained or scratch."""
SUPPORTED_ENGINES = ("trainer", "patches")
"""Engines whose networks are trained by `m3b.training.loop`."""


def copy_start_weights(plan: Mapping[str, Any], earlier: Path, networks: Sequence[str], logout: Path) -> None:
    """Copy the kept weights of an earlier training as the start of this one; nothing happens if that is done already.

    Args:
        earlier: the Logout folder of the earlier training.
        networks: folders of the networks that are trained.

    Raises:
        SystemExit: the earlier training has no such weights, or its engine cannot go on from weights.
    """
    if (logout / RECORD_FILE).exists():
        return
    engine = str(plan.get("engine", "trainer"))
    if engine not in SUPPORTED_ENGINES:
        raise SystemExit(f"--start-from: engine {engine} cannot go on from weights; train anew, for longer")
    files = {name: earlier / name / WEIGHTS_FILE for name in networks}
    if missing := [str(file) for file in files.values() if not file.is_file()]:
        raise SystemExit(f"--start-from: {', '.join(missing)} missing; name the Logout folder of a finished training")
    for name, file in files.items():
        (logout / name).mkdir(exist_ok=True)
        shutil.copyfile(file, logout / name / START_FILE)
        if (file.parent / "smaller.json").is_file():
            shutil.copyfile(file.parent / "smaller.json", logout / name / "smaller.json")
    for kept_file in KEPT_FILES:
        if (earlier / kept_file).is_file():
            shutil.copyfile(earlier / kept_file, logout / kept_file)
    partial = logout / f"{RECORD_FILE}.part"
    partial.write_text(json.dumps({"from": earlier.as_posix(), "networks": list(networks)}))
    os.replace(partial, logout / RECORD_FILE)


def load_start_weights(model: torch.nn.Module, folder: Path) -> bool:
    """Load the start weights of a network, if there are any; return whether there are.

    Args:
        folder: of the network, in Logout.

    Raises:
        SystemExit: they do not fit the network.
    """
    file = folder / START_FILE
    if not file.exists():
        return False
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(str(file)))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise SystemExit(
            f"the earlier weights of {folder.name} do not fit the network of this project: {reason}"
        ) from None
    return True
