"""Weight files of a deliverable: one a network, and one with the frozen weights that all networks have in common."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

SHARED_FILE = "shared.safetensors"
"""Tensors that are equal in all networks of a deliverable."""
PROBE_PREFIX = "linear_probe."
"""Beginning of the names of tensors of a linear probe, which a network does not have itself."""


def copy_weights(files: Sequence[Path], out: Path, network: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the weight files into a deliverable; return its entries of config.json: `weights`, the names there.

    If several networks have the same frozen weights, `SHARED_FILE` stores these once: `shared_weights` is its name, and
    `trained_weights` are the SHA-256 of the whole files.

    Args:
        network: of plan.json.
    """
    for old in (*out.glob("model*.safetensors"), out / SHARED_FILE):  # of an earlier export
        old.unlink(missing_ok=True)
    count = len(files)
    names = ["model.safetensors"] if count == 1 else [f"model-{k}-of-{count}.safetensors" for k in range(1, count + 1)]
    if count > 1 and network.get("backbone_lr") == 0:
        return {"weights": names, **_split_weights(files, [out / name for name in names], out / SHARED_FILE)}
    for file, name in zip(files, names, strict=True):
        shutil.copy(file, out / name)
    return {"weights": names}


def _split_weights(files: Sequence[Path], targets: Sequence[Path], shared_file: Path) -> dict[str, Any]:
    from safetensors.torch import load_file, save_file

    shared = load_file(str(files[0]))
    for file in files[1:]:
        tensors = load_file(str(file))
        shared = {key: value for key, value in shared.items() if value.equal(tensors[key])}
    for file, target in zip(files, targets, strict=True):
        save_file({key: value for key, value in load_file(str(file)).items() if key not in shared}, str(target))
    save_file(shared, str(shared_file))
    return {
        "shared_weights": shared_file.name,
        "trained_weights": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
    }


def load_weights(folder: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tensors of each network of a deliverable.

    Args:
        config: with `weights`, and `shared_weights` if there are any.
    """
    from safetensors.torch import load_file

    shared = load_file(str(folder / config["shared_weights"])) if config.get("shared_weights") else {}
    return [{**shared, **load_file(str(folder / name))} for name in config["weights"]]


def load_networks(
    folder: Path, config: Mapping[str, Any], build: Callable[[], nn.Module], weights: bool = True
) -> list[nn.Module]:
    """Return the networks of a deliverable.

    Args:
        build: makes one of them.
        weights: False leaves the weights random and reads no weight file.
    """
    networks = [build() for _ in config["weights"]]
    for network, state in zip(networks, load_weights(folder, config), strict=True) if weights else ():
        network.load_state_dict({key: value for key, value in state.items() if not key.startswith(PROBE_PREFIX)})
    if config.get("shared_weights"):
        share_frozen_backbone(networks)
    return networks


def share_frozen_backbone(networks: Sequence[nn.Module]) -> None:
    """Give all networks the frozen backbone of the first, which then computes the features of an input once for all of them."""
    for name, module in list(networks[0].named_modules()):
        if getattr(module, "is_frozen_backbone", False):
            module.remember_last_input()
            for network in networks[1:]:
                network.set_submodule(name, module)
