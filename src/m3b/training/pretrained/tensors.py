"""Load stored tensors into a network: names by a key map, first layers for other channels, 2D kernels for volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.weight_files import StartError, read_tensor_names

MAX_UNUSED_SHARE = 0.2
"""Maximum unused tensors of a file, as a share of the loaded ones; with more, it is of another network."""
OPTIONAL_NAMES = r"mask_token$|pooler\."
"""Parameters that no image passes through, which a file may lack."""
SKIPPED_NAMES = (r"num_batches_tracked$", r"(^|\.)(classifier|fc|head)\.", OPTIONAL_NAMES, r"position_ids$")
"""Names that are skipped in any file: heads and unused parts."""


@dataclass(frozen=True)
class LoadedTensors:
    """Number of tensors of a file that were loaded unchanged, adapted in shape, and skipped."""

    unchanged: int
    adapted: int
    skipped: int

    def __str__(self) -> str:
        changed = f", {self.adapted} of them adapted in shape" if self.adapted else ""
        return (
            f"{self.unchanged + self.adapted} tensors loaded{changed}, {self.skipped} skipped (heads and unused parts)"
        )


def load_tensors(body: nn.Module, files: Sequence[Path], config: Mapping[str, Any], source: str) -> LoadedTensors:
    """Load the stored tensors into a network. The files must have all its parameters and running statistics.

    Args:
        config: `keys`, [pattern, replacement] pairs, and `leave`, patterns of mapped names.
        source: for messages.

    Raises:
        StartError: files that are damaged, incomplete, or of another network.
    """
    state = body.state_dict()
    stored, unused = _map_names(files, config, state)
    needed = {name for name, _ in body.named_parameters()} | {key for key in state if ".running_" in key}
    needed = {name for name in needed if not re.search(OPTIONAL_NAMES, name)}
    loaded: dict[str, torch.Tensor] = {}
    adapted = 0
    for name, value in stored.items():
        adapted_value = adapt_tensor(value, state[name].shape)
        if adapted_value is None:
            raise StartError(
                f"{source}: {name} has shape {list(value.shape)}, this network has {list(state[name].shape)}: the file is of "
                "another network"
            )
        adapted += adapted_value.shape != value.shape
        loaded[name] = adapted_value.to(state[name].dtype)
    if missing := sorted(needed - set(loaded)):
        raise StartError(
            f"{source}: {len(missing)} of {len(needed)} tensors are missing ({missing[0]}, ...): the file is incomplete, or of "
            "another network; fetch it again, or name its own entry (`m3b models list`)"
        )
    if len(unused["other"]) > MAX_UNUSED_SHARE * len(loaded):
        raise StartError(
            f"{source}: {len(unused['other'])} tensors in addition to the {len(loaded)} of this network ({unused['other'][0]}, "
            "...): the file is of a larger network; name its own entry (`m3b models list`)"
        )
    for name, factor in (config.get("gain") or {}).items():
        loaded[name] = loaded[name] * float(factor)
    body.load_state_dict({**state, **loaded})
    return LoadedTensors(len(loaded) - adapted, adapted, len(unused["other"]) + len(unused["known"]))


def _map_names(
    files: Sequence[Path], config: Mapping[str, Any], state: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, list[str]]]:
    """Return the tensors of the network by its names, and the names of the others: known to be skipped, or not."""
    from safetensors import safe_open

    keys = [(re.compile(pattern), target_name) for pattern, target_name in config.get("keys") or ()]
    skipped = re.compile("|".join((*SKIPPED_NAMES, *(config.get("leave") or ()))))
    tensors: dict[str, torch.Tensor] = {}
    unused: dict[str, list[str]] = {"known": [], "other": []}
    for file in files:
        read_tensor_names(file)
        with safe_open(str(file), "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - it is no dict
                target_name = name
                for pattern, text in keys:
                    target_name = pattern.sub(text, target_name)
                if target_name in state:
                    tensors[target_name] = stored.get_tensor(name)
                else:
                    unused["known" if skipped.search(target_name) else "other"].append(target_name)
    return tensors, unused


def adapt_tensor(value: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """Return a tensor in another shape, None if it cannot be adapted.

    A 2D kernel becomes 3D by repetition along the third axis, divided by its width (Carreira and Zisserman, CVPR 2017). The channels
    of a first layer are summed for one channel, since a grey image is equal in all; for more channels they are repeated and scaled to
    the same sum.
    """
    if value.shape == shape:
        return value
    if value.ndim == 4 and len(shape) == 5 and value.shape[2:] == shape[2:4]:
        value = value[..., None].expand(*value.shape, shape[4]) / shape[4]
    if value.ndim == len(shape) and value.ndim > 3 and value.shape[0] == shape[0] and value.shape[2:] == shape[2:]:
        length, target = value.shape[1], shape[1]
        if target == 1:
            value = value.sum(1, keepdim=True)
        elif length != target and length <= 4:  # a first layer: deeper ones have more channels
            repeats = -(-target // length)
            value = value.repeat(1, repeats, *(1,) * (value.ndim - 2))[:, :target] * (length / target)
    return value.contiguous() if value.shape == shape else None


def parameter_groups(model: nn.Module, plan: Mapping[str, Any], part: str = ".body.") -> Any:
    """Return parameter groups: pretrained ones learn at `network.backbone_lr` of the rate, others at all of it; None without any, and
    for the weights of a delivered model, all of which learn at the rate."""
    if not plan["network"].get("pretrained") or plan["network"].get("delivered"):
        return None
    trained = [(f".{name}", value) for name, value in model.named_parameters() if value.requires_grad]
    groups = [
        ([value for name, value in trained if part in name], float(plan["network"].get("backbone_lr", 0.1))),
        ([value for name, value in trained if part not in name], 1.0),
    ]
    return [(parameters, factor) for parameters, factor in groups if parameters]
